"""The table of stages: every item of every shipped params file makes a valid job."""

import json
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from components.core.errors import ConfigError
from components.data.tasks.examples import read_facts, read_split
from components.interchange.importing import source_digest
from components.pipeline import stages
from components.pipeline.checks import check_params
from components.pipeline.dvc_yaml import dvc_yaml
from components.pipeline.identity import identities, identity_of
from components.pipeline.jobs import each, joined, over
from components.pipeline.running import run_stage
from components.pipeline.stages import STAGES, Stage
from components.settings.loading import load_params
from components.settings.params import Block, Params
from components.settings.systems import System
from tests.settings.test_settings import changed

ROOT = Path(__file__).parents[2]
SHIPPED = sorted([ROOT / "params.yaml", *ROOT.glob("experiments/*/params.yaml")])


class Work(SimpleNamespace):
    """The job of a stage of the tests."""

    model_fields: Mapping[str, Any] = {}


@pytest.fixture
def raw() -> dict[str, Any]:
    """The shipped params.yaml with the initialisations that every family can have."""
    content = yaml.safe_load((ROOT / "params.yaml").read_text())
    content["run"]["starts"] = ["scratch", "pretrained", "adapted"]
    return content


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_item_is_a_valid_job(path):
    params = load_params(path)
    unused = [] if "adapted" in params.run.starts else ["adapt"]
    if not {"scratch", "vectors"} & {*params.run.starts}:
        unused.append("scratch")
    if all(block.source for block in params.pretrain.values()) and "adapt" in unused:
        # No text is read.
        unused += ["ingest", "tokenizer", "tokenize"]
    if not params.intermediate_tasks:
        unused.append("intermediate")
    if not params.together:
        unused.append("together")
    if not params.static:
        unused.append("static")
    for name, stage in STAGES.items():
        items = stage.items(params)
        assert items or name in unused
        for arguments in items.values():
            assert {*arguments} <= {*dict(stage.job(arguments))}


def test_further_starts_and_ways_are_items_not_stages():
    assert len(STAGES) <= 24


def plain(value: Any) -> Any:
    """An argument as in YAML."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, Path | System) else value


CASES = yaml.safe_load((Path(__file__).parent / "items.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_the_items_and_their_arguments(raw, case):
    params = Params.model_validate(changed(raw, case["changes"]))
    for pattern, names in case.get("all", {}).items():
        stage, _, of_item = pattern.partition(" ")
        items = [item for item in STAGES[stage].items(params) if fnmatchcase(item, of_item or "*")]
        assert (sorted(items) if of_item else items) == (sorted(names) if of_item else names), pattern
    for stage, expected in case.get("items", {}).items():
        items = STAGES[stage].items(params)
        for item, arguments in expected.items():
            for name, value in arguments.items():
                given = plain(items[item].get(name, "absent"))
                if (stage, name) == ("leakage", "systems"):
                    given = {system: given[system] for system in value}
                assert given == value, (stage, item, name)


def test_every_system_that_is_evaluated_is_written_by_a_stage(raw):
    params = Params.model_validate(changed(raw, CASES[0]["changes"]))
    learned = [each for stage in ("finetune", "together") for each in STAGES[stage].items(params).values()]
    assert {str(each["output"]) for each in learned if "task" in each} == {
        f"artifacts/finetuned/{task}/{system}"
        for task, arguments in STAGES["evaluate"].items(params).items()
        for system in arguments["systems"]
    }
    adapted = STAGES["adapt"].items(params)["ulmfit-aws-type"]
    assert adapted["training"].window == params.adapt["ulmfit"].training.window
    # The overrides for random weights apply to a student from them, so its stage depends on them.
    params = Params.model_validate(changed(raw, CASES[4]["changes"]))
    settings = identity_of("finetune", "aws-type-ulmfit-scratch-from-small", params).settings
    assert "finetune.ulmfit.scratch.epochs" in settings
    params = Params.model_validate(changed(raw, CASES[5]["changes"]))
    assert params.block("words") == Block("word2vec", "wordpiece", published=False, parents=("ulmfit",))


def test_two_items_of_one_name_are_refused(raw):
    raw["together"] = {"a": {"tasks": ["aws-type", "aws-service"]}}
    part = each(over(group="together"), "{group}", "group")
    with pytest.raises(ConfigError, match="two items of a stage have the name 'a'"):
        joined(part, part)(Params.model_validate(raw))


def test_metrics_and_curve_are_copied_to_the_paths_in_dvc_yaml(raw, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def work(job: Work):
        output = tmp_path / "written"
        output.mkdir()
        (output / "metrics.json").write_text(json.dumps({"loss": job.loss}))
        (output / "curve.csv").write_text("step,loss\n1,2\n")
        return output

    monkeypatch.setattr(stages.importlib, "import_module", lambda name: SimpleNamespace(work=work))
    monkeypatch.setitem(STAGES, "sample", Stage("core.errors:work", "", lambda params: {"one": {"loss": 3}}, 1))
    run_stage("sample", Params.model_validate(raw), item="one")
    assert json.loads(Path("artifacts/metrics/sample/one.json").read_text()) == {"loss": 3}
    assert Path("artifacts/curves/sample/one.csv").read_text() == "step,loss\n1,2\n"


def test_examples_of_a_task_outside_of_the_run(raw, monkeypatch, tmp_path):
    """Studies read them; `headstart lectures` makes those that a claim names."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(f"row {n},{'ab'[n % 2]}\n" for n in range(40)))
    of = {"path": str(tmp_path), "train": "train.csv", "text": "text", "label": "label", "test": None, "dev": None}
    raw["data"]["tasks"]["outside"] = of | {"selection": "budget"}
    params = Params.model_validate(raw)
    assert "outside" not in params.run.tasks
    written = run_stage("examples", params, item="outside")
    assert (
        read_facts(written).task == "outside"
        and len(read_split(written, "train")) + len(read_split(written, "test")) == 40
    )


def test_a_row_is_all_that_a_stage_needs(raw, monkeypatch):
    row = Stage("core.errors:work", "Counts", each(over(task="run.tasks"), "{task}", "examples", output="n/{task}"), 7)
    monkeypatch.setitem(STAGES, "count", row)
    params = Params.model_validate(raw)
    written = yaml.safe_load(dvc_yaml(params, Path("params.yaml"), root=ROOT))["stages"]["count"]
    task = params.run.tasks[0]
    identity = f"{params.run.out}/identity/count/{task}.json"
    assert written["foreach"][task]["deps"] == [identity, f"{params.run.out}/examples/{task}"]
    assert written["foreach"][task]["outs"] == [f"{params.run.out}/n/{task}"]
    assert (written["do"]["desc"], written["do"]["meta"]) == ("Counts", {"minutes": 7, "retries": 0})
    assert "components/core/errors.py" in identities(params)["count"][task].code


def test_errors_of_unknown_stages_and_items_suggest_the_nearest(raw):
    params = Params.model_validate(raw)
    with pytest.raises(ConfigError, match="unknown stage 'pretrian'; did you mean 'pretrain'\\?"):
        run_stage("pretrian", params)
    with pytest.raises(ConfigError, match="stage pretrain: unknown item 'bert'; known: ulmfit"):
        run_stage("pretrain", params, item="bert")
    with pytest.raises(ConfigError, match="stage report has no items; found 'ulmfit'"):
        run_stage("report", params, item="ulmfit")


def test_the_digest_of_a_source_is_checked(raw, tmp_path, monkeypatch):
    source = tmp_path / "vectors.txt"
    source.write_text("king 1 2\nqueen 2 1\n")
    digest = source_digest(source)
    raw["pretrain"]["ulmfit"] |= {"source": str(source), "digest": "0" * 64}
    with pytest.raises(ConfigError) as caught:
        check_params(Params.model_validate(raw))
    message = str(caught.value)
    assert re.search(
        r"pretrain.ulmfit.model: the source determines embedding, .*; remove them \(keys.*slowness", message
    )
    assert f"pretrain.ulmfit.digest: {'0' * 64}, but {source} has {digest}" in message
    raw["pretrain"]["ulmfit"]["source"] = str(tmp_path / "nothing")
    raw["promote"]["metric"] = "accuracy"
    with pytest.raises(ConfigError, match=r"pretrain.ulmfit.source: .*nothing: does not exist") as caught:
        check_params(Params.model_validate(raw))
    assert "promote.metric" not in str(caught.value)
    for stage in ("pretrain", "scratch"):
        arguments = STAGES[stage].items(Params.model_validate(raw))["ulmfit"]
        assert (arguments["source"], arguments["digest"]) == (str(tmp_path / "nothing"), "0" * 64)


def test_missing_files_of_a_task_are_reported_by_split(raw, tmp_path):
    (tmp_path / "train.jsonl").touch()
    files = {"train": ["train.jsonl", "more.jsonl"], "test": "test.json#test"}
    raw["data"]["tasks"]["aws-type"] = {"path": str(tmp_path), "dev": None, **files}
    raw["data"]["general"]["path"] = raw["data"]["domain"]["path"] = str(tmp_path)
    with pytest.raises(ConfigError) as caught:
        check_params(Params.model_validate(raw))
    assert [line.strip() for line in str(caught.value).splitlines()[1:]] == [
        f"data.tasks.aws-type.train: {tmp_path}/more.jsonl does not exist",
        f"data.tasks.aws-type.test: {tmp_path}/test.json does not exist",
    ]
