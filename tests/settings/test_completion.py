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


def test_labels_alone_are_a_run_of_words_models(write):
    file = write({})
    params, completed = resolve(file)
    assert (params.run.out, params.run.tasks, params.run.families, params.run.starts) == ("artifacts", ["mood"], [], [])
    task = params.data.tasks["mood"]
    assert (task.dev, task.test, task.budgets, task.selection) == (None, None, ["all"], "budget")
    assert stages(file) == OF_WORDS
    why = "neither a model (pretrain) nor text of 5,000,000 words for one: words models only"
    assert completed.reasons["run.families"] == why
    assert completed.reasons["data.tasks.mood.test"] == "there is no test.csv; a share of train (test_share)"


def test_files_beside_train_are_dev_and_test(write):
    Path("data/test.csv").write_text("text,label\na,b\n")
    task = load_params(write({})).data.tasks["mood"]
    assert (task.dev, task.test) == (None, "test.csv")
    named = {"data": {"tasks": {"mood": TASK | {"test": None}}}}
    assert load_params(write(named)).data.tasks["mood"].test is None


@pytest.fixture
def encoder(tmp_path: Path) -> str:
    """The configuration of a model of sentence-transformers that scales its vectors to length 1."""
    folder = tmp_path / "models/mini"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    modules = [{"type": "sentence_transformers.models.Pooling"}, {"type": "sentence_transformers.models.Normalize"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    return "models/mini"


def test_an_imported_encoder_needs_no_corpus(write, encoder):
    file = write({"pretrain": {"mini": {"source": encoder}}})
    params = load_params(file)
    assert (params.run.families, params.run.starts, params.corpora) == (["mini"], ["pretrained"], {})
    assert (params.pretrain["mini"].family, params.pretrain["mini"].tokenizer) == ("bert", "wordpiece")
    settings = params.finetune["mini"]
    assert (settings.method, settings.layers, settings.pooling, settings.pairs) == ("auto", "last", "trained", "apart")
    assert settings.training.rate == 0.00005
    trained = {"pretrain@mini", "finetune@mood-mini-pretrained"}
    assert stages(file) == OF_WORDS | trained


def test_a_key_of_the_file_takes_precedence_over_the_recipe(write, encoder):
    block = {"source": encoder}
    for training in ({"rate": 0.001}, {"rate": 0.001, "batch_size": 8}):
        named = {"pretrain": {"mini": block}, "finetune": {"mini": {"training": training}}}
        settings = load_params(write(named)).finetune["mini"]
        assert (settings.layers, settings.pooling, settings.training.rate) == ("last", "trained", 0.001)
        assert settings.training.batch_size == training.get("batch_size", 16)
        assert settings.training.schedule == "slanted_triangular"
    ours = {"mini": {"pooling": "max", "training": {"rate": 0.001}}}
    settings = load_params(write({"pretrain": {"mini": {"source": encoder}}, "finetune": ours})).finetune["mini"]
    assert (settings.pooling, settings.layers) == ("max", "last")
    assert (settings.training.rate, settings.training.batch_size) == (0.001, 16)
    in_full = {"mini": {"epochs": 2, "training": {"rate": 0.001, "batch_size": 8}}}
    settings = load_params(write({"pretrain": {"mini": {"source": encoder}}, "finetune": in_full})).finetune["mini"]
    assert (settings.pooling, settings.layers, settings.method) == ("concat", "all", "finetune")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of 200,000 words are enough, so that no test writes a large file."""
    monkeypatch.setattr(recipes, "LEAST_WORDS", 200_000)


@pytest.mark.parametrize("method", ["features", "finetune", "contrastive", "auto"])
def test_every_method_learns_from_an_imported_encoder(write, encoder, method):
    file = write({"pretrain": {"minilm": {"source": str(encoder)}}, "finetune": {"minilm": {"method": method}}})
    settings = load_params(file).finetune["minilm"]
    assert settings.method == method
    assert settings.contrastive.embeddings == (method in {"features", "finetune"})


@pytest.mark.usefixtures("short")
def test_a_short_text_without_labels_trains_no_language_model(write):
    """A text for `headstart suggest`; words models read it too."""
    data = {"tasks": {"mood": TASK}, "unlabelled": ["reviews.txt"]}
    Path("reviews.txt").write_text("a b c d e " * 20_000)
    words = {"unlabelled@domain-mood", "unlabelled@domain-unlabelled-0", "ingest@domain"}
    assert stages(write({"data": data})) == OF_WORDS | words
    Path("reviews.txt").write_text("a b c d e " * 130_000)
    assert "pretrain@ulmfit" in stages(write({"data": data}))
    # `init` writes it for words models only.
    assert stages(write({"data": data, "pretrain": {}})) == OF_WORDS | words
    general = {"path": "general", "text": "text"}
    given = {"data": data | {"general": general}}
    assert "adapt@ulmfit" in stages(write(given))
    Path("reviews.txt").write_text("a b c d e")
    assert not any(name.startswith("adapt") for name in stages(write(given)))


@pytest.mark.usefixtures("short")
def test_text_without_labels_is_pretrained_on(write):
    data = {"tasks": {"mood": TASK}, "unlabelled": ["reviews.txt", {"path": "more", "text": "body"}]}
    file = write({"data": data})
    Path("more").mkdir()
    Path("more/a.csv").write_text("body\n" + "a text of a few words\n" * 60_000)
    params = load_params(file)
    assert (params.run.families, params.run.starts) == (["ulmfit"], ["scratch", "pretrained"])
    assert [source.text for source in params.data.unlabelled] == ["text", "body"]
    assert {name: source.path for name, source in params.corpora.items()} == {"domain": "artifacts/domain-texts"}
    actual = stages(file)
    assert {
        "unlabelled@domain-mood",
        "unlabelled@domain-unlabelled-0",
        "unlabelled@domain-unlabelled-1",
        "ingest@domain",
    } <= actual
    assert not any("general" in name or name.startswith("adapt") for name in actual)
    pretraining = STAGES["pretrain"].items(params)["ulmfit"]
    assert pretraining["tokens"] == Path("artifacts/tokens/domain-wordpiece")
    leakage = STAGES["leakage"].items(params)["mood"]["systems"]
    assert leakage["ulmfit-pretrained"] == ["corpus/domain", "train/mood"]


def test_a_default_budget_of_a_causal_model_is_bounded_in_passes(write):
    data = {"tasks": {"mood": TASK}, "general": {"path": "g", "text": "t"}, "domain": {"path": "d", "text": "t"}}
    given = {"tokens": 500, "rate": 0.1, "batch_size": 2}
    pretrain = {"ulmfit": {}, "gpt": {"training": given}, "bert": {}, "elmo": {"training": given}}
    adapt = {"elmo": {"training": given | {"tokens": 900}}}
    params = load_params(write({"data": data, "pretrain": pretrain, "adapt": adapt}))
    budgets = {
        name: [(block.training.tokens, block.training.passes) for block in (params.pretrain[name], params.adapt[name])]
        for name in pretrain
    }
    default = 3_000_000
    assert budgets == {
        "ulmfit": [(default, 4), (default, 4)],
        "gpt": [(500, None), (500, 4)],  # the budget of adaptation is not in the file
        "bert": [(default, None), (default, None)],  # masks differ in every pass
        "elmo": [(500, None), (900, None)],
    }


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


@pytest.mark.usefixtures("short")
def test_general_text_is_adapted_to_the_domain(write):
    data = {"tasks": {"mood": TASK}, "general": {"path": "wiki"}, "unlabelled": ["reviews.txt"]}
    Path("reviews.txt").write_text("a text of a few words " * 60_000)
    params = load_params(write({"data": data}))
    assert params.run.starts == ["scratch", "pretrained", "adapted"]
    assert params.adapt["ulmfit"].training == params.pretrain["ulmfit"].training
    assert params.tokenizer.domain_vocabulary == "domain"
    params = load_params(write({"data": {"tasks": {"mood": TASK}, "general": {"path": "wiki"}}}))
    assert (params.run.starts, params.tokenizer.domain_vocabulary) == (["scratch", "pretrained"], "general")
    assert list(params.corpora) == ["general"]


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
