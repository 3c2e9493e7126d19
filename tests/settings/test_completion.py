"""Defaults that are computed from other settings and from the files of a task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.core.errors import ConfigError
from components.models import FAMILIES
from components.pipeline.jobs import PARALLEL
from components.pipeline.stages import STAGES
from components.settings import recipes
from components.settings.loading import load_params, resolve
from components.settings.tokenizer import PIECES, WORDS

TASK = {"path": "data", "train": "train.csv", "text": "text", "label": "label"}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """write(settings) -> the path of params.yaml in an empty project with the file data/train.csv."""
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data/train.csv").write_text("text,label\na,b\n")
    monkeypatch.chdir(tmp_path)

    def written(settings: dict[str, Any]) -> Path:
        file = tmp_path / "params.yaml"
        file.write_text(yaml.safe_dump({"data": {"tasks": {"mood": TASK}}} | settings))
        return file

    return written


def stages(file: Path) -> set[str]:
    params = load_params(file)
    return {f"{name}@{item}" if item else name for name, stage in STAGES.items() for item in stage.items(params)}


OF_WORDS = {"identity", "examples@mood", "checks", "baseline@mood", "evaluate@mood", "leakage@mood"}
OF_WORDS |= {"unlabelled@mood-baselines", "report", "register", "promote"}


@pytest.fixture
def encoder(tmp_path: Path) -> str:
    """The configuration of a model of sentence-transformers that scales its vectors to length 1."""
    folder = tmp_path / "models/mini"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    modules = [{"type": "sentence_transformers.models.Pooling"}, {"type": "sentence_transformers.models.Normalize"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    return "models/mini"


CASES = yaml.safe_load((Path(__file__).parent / "completed.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_what_the_file_leaves_out_is_computed(write, encoder, case, monkeypatch):
    # So that no test writes a large file.
    monkeypatch.setattr(recipes, "LEAST_WORDS", 200_000)
    for name, size in case.get("files", {}).items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(b"a" * size)
    data = {"tasks": {"mood": TASK | case.get("task", {})}, **case.get("data", {})}
    file = write({"data": data, **case.get("settings", {})})
    params, completed = resolve(file)
    for key, expected in case.get("values", {}).items():
        value = params.model_dump(mode="json")
        for part in key.split("."):
            value = value[int(part) if isinstance(value, list) else part]
        assert value == expected, key
    assert case.get("reasons", {}).items() <= completed.reasons.items()
    made = stages(file)
    assert "stages" not in case or made == OF_WORDS | {*case["stages"]}
    assert {*case.get("some", ())} <= made
    assert "no" not in case or not any(name.startswith(case["no"]) for name in made)


def test_words_models_read_text_without_labels_where_rows_are_one_text(write, encoder):
    pairs = {key: value for key, value in TASK.items() if key != "text"} | {"kind": "pair"}
    ours = {"pretrain": {"mini": {"source": encoder}}}
    params = load_params(write({"data": {"tasks": {"mood": TASK, "same": pairs}, "unlabelled": ["more.txt"]}} | ours))
    jobs = STAGES["baseline"].items(params)
    texts = Path("artifacts/unlabelled/mood/baselines")
    assert jobs["mood"]["unlabelled"] == texts
    actual = STAGES["unlabelled"].items(params)
    collected = actual["mood-baselines"]
    assert (collected["corpus"], collected["output"]) == (Path("artifacts/corpus/domain"), texts)
    assert collected["which"] == "domain" and actual["same-baselines"]["which"] is None
    # Words models beside an encoder are those of the stage.
    tuned = STAGES["finetune"].items(params).values()
    assert tuned and all(job["baselines"] == jobs[job["task"]]["output"] for job in tuned)
    assert STAGES["leakage"].items(params)["mood"]["systems"]["baselines"] == ["corpus/domain", "train/mood"]
    without = load_params(write({"data": {"tasks": {"mood": TASK}}} | ours))
    assert STAGES["unlabelled"].items(without)["mood-baselines"]["which"] is None and without.corpora == {}


def test_an_own_model_without_general_text_is_not_adapted(write):
    settings = {"run": {"starts": ["adapted"]}, "pretrain": {"ulmfit": {}}}
    with pytest.raises(ConfigError, match="without data.general, ulmfit is pretrained on the text of the domain"):
        load_params(write(settings))


def test_the_tables_agree_with_the_families():
    assert list(recipes.FAMILIES) == list(FAMILIES)
    for name, defaults in recipes.FAMILIES.items():
        assert defaults.tokenizer in (*FAMILIES[name].tokenizers, PARALLEL), name
        assert (defaults.tokenizer == PARALLEL) == (FAMILIES[name].objective == "translation"), name
        assert defaults.causal == (FAMILIES[name].objective == "causal"), name
    assert set(recipes.MODEL_TYPES.values()) <= set(FAMILIES)


EXPERIMENTS = json.loads((Path(__file__).parent / "left_out.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_experiments_have_the_settings_that_their_files_leave_out(name):
    """The values that the files of the experiments named before every key had a default; vocabularies without a size
    have that of the default."""
    assert (PIECES, WORDS) == (8000, 12000)
    actual: Any = load_params(Path(__file__).parents[2] / "experiments" / name / "params.yaml").model_dump(mode="json")
    for key, expected in EXPERIMENTS[name].items():
        value = actual
        for part in key.split("."):
            value = value[part]
        assert value == expected, key


def test_the_settings_of_a_folder_have_an_output_folder_of_their_own(write):
    file = write({})
    folder = file.parent / "experiments/one"
    folder.mkdir(parents=True)
    (folder / "params.yaml").write_bytes(file.read_bytes())
    assert load_params(folder / "params.yaml").run.out == "artifacts/one"
