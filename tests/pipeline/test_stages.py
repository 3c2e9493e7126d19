"""The table of stages: every item of every shipped params file makes a valid job."""

import json
import re
from collections.abc import Mapping
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
    if not params.intermediate_tasks:
        unused.append("intermediate")
    if not params.distil:
        unused.append("distil")
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


@pytest.fixture
def with_all_options(raw: dict[str, Any]) -> dict[str, Any]:
    """Settings with two tasks, task adaptation for one of them, and joint training of both."""
    raw["run"]["tasks"] = ["aws-type", "aws-service"]
    raw["adapt_task"] = {"aws-type": {"epochs": 3}}
    raw["together"] = {"aws": {"tasks": ["aws-type", "aws-service"], "temperature": 2.0}}
    return raw


def test_a_model_is_adapted_to_the_texts_of_a_task(with_all_options):
    params = Params.model_validate(with_all_options)
    tokens = STAGES["tokenize"].items(params)["task-aws-type-wordpiece"]
    assert {name: str(value) for name, value in tokens.items()} == {
        "examples": "artifacts/examples/aws-type",
        "judged": str({task: Path("artifacts/judged", task) for task in ("aws-type", "aws-service")}),
        "tokenizer": "artifacts/tokenizer/domain-wordpiece",
        "output": "artifacts/task-tokens/aws-type/wordpiece",
    }
    adapted = STAGES["adapt"].items(params)["ulmfit-aws-type"]
    assert str(adapted["pretrained"]) == "artifacts/encoder/ulmfit/adapted"
    assert adapted["tokens"] == tokens["output"]
    assert str(adapted["tokenizer"]) == "artifacts/encoder/ulmfit/adapted/tokenizer"
    assert str(adapted["output"]) == "artifacts/encoder/ulmfit/task-adapted-aws-type"
    assert adapted["epochs"] == 3
    assert adapted["training"].window == params.adapt["ulmfit"].training.window
    tuned = STAGES["finetune"].items(params)["aws-type-ulmfit-task-adapted"]
    assert tuned["encoder"] == adapted["output"] and tuned["start"] == "task-adapted"
    assert str(tuned["output"]) == "artifacts/finetuned/aws-type/ulmfit-task-adapted"


def test_outputs_of_joint_training_are_next_to_those_of_single_tasks(with_all_options):
    params = Params.model_validate(with_all_options)
    joint = STAGES["together"].items(params)
    assert list(joint)[:3] == ["aws-ulmfit-scratch", "aws-ulmfit-pretrained", "aws-ulmfit-adapted"]
    assert joint["aws-ulmfit-adapted"]["temperature"] == 2
    assert {task: str(path) for task, path in joint["aws-ulmfit-adapted"]["examples"].items()} == {
        "aws-type": "artifacts/examples/aws-type",
        "aws-service": "artifacts/examples/aws-service",
    }
    shared = joint["aws-ulmfit-adapted-aws-service"]
    assert shared["together"] == joint["aws-ulmfit-adapted"]["output"]
    assert str(shared["output"]) == "artifacts/finetuned/aws-service/ulmfit-adapted-with-aws"
    alone = ["scratch", "pretrained", "adapted"]
    joined = [f"{start}-with-aws" for start in alone]
    evaluated = STAGES["evaluate"].items(params)
    assert evaluated["aws-type"]["starts"] == [*alone, "task-adapted", *joined]
    assert evaluated["aws-service"]["starts"] == [*alone, *joined]
    (register,) = STAGES["register"].items(params).values()
    assert register["further"] == {"aws-type": ["task-adapted", *joined], "aws-service": joined}
    # Every system that is evaluated is written by a stage.
    written = {
        str(arguments["output"])
        for stage in ("finetune", "together")
        for arguments in STAGES[stage].items(params).values()
        if "task" in arguments
    }
    assert written == {
        f"artifacts/finetuned/{task}/ulmfit-{start}"
        for task, arguments in evaluated.items()
        for start in arguments["starts"]
    }


def test_an_intermediate_task_is_a_further_initialisation_of_the_other_tasks(raw):
    raw["run"] |= {"tasks": ["aws-type", "aws-service"], "starts": ["scratch", "adapted"]}
    raw["intermediate_tasks"] = ["aws-service"]
    params = Params.model_validate(raw)
    extracted = STAGES["intermediate"].items(params)["aws-service-ulmfit-adapted"]
    source = STAGES["finetune"].items(params)["aws-service-ulmfit-adapted"]
    assert extracted["finetuned"] == source["output"]
    job = STAGES["finetune"].items(params)["aws-type-ulmfit-adapted-after-aws-service"]
    assert job["encoder"] == extracted["output"]
    assert str(job["output"]) == "artifacts/finetuned/aws-type/ulmfit-adapted-after-aws-service"
    evaluated = STAGES["evaluate"].items(params)
    after = ["scratch-after-aws-service", "adapted-after-aws-service"]
    assert evaluated["aws-type"]["starts"] == ["scratch", "adapted", *after]
    assert evaluated["aws-service"]["starts"] == ["scratch", "adapted"], "no task starts from itself"
    leaked = STAGES["leakage"].items(params)["aws-type"]["systems"]["ulmfit-adapted-after-aws-service"]
    assert leaked == ["corpus/general", "corpus/domain", "train/aws-type", "train/aws-service"]


def test_only_items_that_apply_are_made(with_all_options):
    """Neither a task after itself, nor a system that is no teacher or student, nor a task that is in no group."""
    with_all_options["intermediate_tasks"] = ["aws-type"]
    with_all_options["distil"] = {"small": {"teachers": ["ulmfit-adapted"], "students": ["ulmfit-scratch"]}}
    with_all_options["run"]["tasks"].append("aws-operation")
    params = Params.model_validate(with_all_options)
    after = {item for item in STAGES["finetune"].items(params) if "-after-" in item}
    assert {item.partition("-ulmfit")[0] for item in after} == {"aws-service", "aws-operation"}
    of_task = {item.removeprefix("aws-type-small-") for item in STAGES["distil"].items(params) if "-type-" in item}
    assert of_task == {"teacher-ulmfit-adapted", "ulmfit-scratch"}
    grouped = {arguments["task"] for arguments in STAGES["together"].items(params).values() if "task" in arguments}
    assert grouped == {"aws-type", "aws-service"}
    assert "aws-operation-with-aws" not in STAGES["leakage"].items(params)


def test_documents_are_a_dependency_of_those_texts_that_read_them(raw):
    raw["distil"] = {
        name: {"teachers": ["ulmfit-adapted"], "students": ["ulmfit-scratch"], "source": source}
        for name, source in (("few", "task"), ("many", "both"))
    }
    items = STAGES["unlabelled"].items(Params.model_validate(raw))
    read = {item: arguments["corpus"] and str(arguments["corpus"]) for item, arguments in items.items()}
    assert read == {
        "aws-type-baselines": None,
        "aws-type-few": None,
        "aws-type-many": "artifacts/corpus/domain",
    }


def test_two_items_of_one_name_are_refused(raw):
    raw["together"] = {"a": {"tasks": ["aws-type", "aws-service"]}}
    part = each(over(group="together"), "{group}", "group")
    with pytest.raises(ConfigError, match="two items of a stage have the name 'a'"):
        joined(part, part)(Params.model_validate(raw))


def test_students_are_scored_and_inherit_what_their_teachers_have_read(raw):
    raw["run"]["starts"] = ["scratch", "pretrained", "adapted"]
    raw["distil"] = {"small": {"teachers": ["ulmfit-adapted"], "students": ["ulmfit-scratch"]}}
    params = Params.model_validate(raw)
    taught = STAGES["distil"].items(params)["aws-type-small-teacher-ulmfit-adapted"]
    assert str(taught["output"]) == "artifacts/distilled/aws-type/small/ulmfit-adapted"
    assert str(taught["finetuned"]) == "artifacts/finetuned/aws-type/ulmfit-adapted"
    student = STAGES["distil"].items(params)["aws-type-small-ulmfit-scratch"]
    assert (student["student"], student["start"]) == ("ulmfit-scratch", "scratch-from-small")
    assert str(student["output"]) == "artifacts/finetuned/aws-type/ulmfit-scratch-from-small"
    assert str(student["encoder"]) == "artifacts/encoder/ulmfit/scratch"
    assert STAGES["evaluate"].items(params)["aws-type"]["students"] == ["ulmfit-scratch-from-small"]
    seen = STAGES["leakage"].items(params)["aws-type"]["systems"]
    assert seen["ulmfit-scratch"] == ["corpus/domain", "train/aws-type"]
    assert seen["ulmfit-scratch-from-small"] == ["corpus/domain", "corpus/general", "train/aws-type"]
    (register,) = STAGES["register"].items(params).values()
    assert register["students"] == {"ulmfit-scratch-from-small": ["ulmfit-adapted"]}
    # The overrides for random weights apply to such a student, so its stage depends on them.
    settings = identity_of("distil", "aws-type-small-ulmfit-scratch", params).settings
    assert "finetune.ulmfit.scratch.epochs" in settings and settings["distil.small.source"] == "task"


def test_static_vectors_have_the_initialisations_of_their_teacher(raw):
    raw["static"] = {"words": {"teacher": "ulmfit", "width": 64, "words": 100}}
    raw["finetune"]["words"] = raw["finetune"]["ulmfit"]
    raw["run"]["families"] = ["words"]
    params = Params.model_validate(raw)
    for start in params.run.starts:
        job = STAGES["static"].items(params)[f"words-{start}"]
        assert str(job["teacher"]) == f"artifacts/encoder/ulmfit/{start}"
        assert str(job["output"]) == f"artifacts/encoder/words/{start}"
        finetuned = STAGES["finetune"].items(params)[f"aws-type-words-{start}"]
        assert finetuned["encoder"] == job["output"]
    assert params.block("words") == Block("word2vec", "wordpiece", published=False, parents=("ulmfit",))
    (register,) = STAGES["register"].items(params).values()
    assert register["parents"] == {"words": ["ulmfit"]}
    del raw["adapt"]["ulmfit"]
    assert {*STAGES["static"].items(Params.model_validate(raw))} == {"words-pretrained", "words-scratch"}


@pytest.mark.parametrize("static", [0, 50])
def test_a_file_of_vectors_fills_the_static_channel_in_every_stage(raw, static):
    """Without a channel it is read by pretraining only."""
    raw["pretrain"]["ulmfit"] |= {"vectors": "glove.txt", "vectors_digest": "1"}
    raw["pretrain"]["ulmfit"]["model"] = {"static": static}
    params = Params.model_validate(raw)
    jobs = {stage: STAGES[stage].items(params)["ulmfit"] for stage in ("pretrain", "adapt", "scratch")}
    expected = {stage: "glove.txt" if static or stage == "pretrain" else None for stage in jobs}
    assert {stage: job.get("vectors") for stage, job in jobs.items()} == expected
    assert {job["vectors_digest"] for job in jobs.values() if job.get("vectors")} == {"1"}


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
