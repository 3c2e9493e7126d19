"""The stage `register`: content and lineage of versions, idempotence, errors."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
import yaml

from components.core.data_version import UNKNOWN, DataVersion, data_versions
from components.core.errors import ArtifactError, ConfigError
from components.core.measurements import RUN_ID
from components.data.tasks.examples import read_facts
from components.pipeline.lineage.trace import _traced, tree
from components.registry.lineage import Lineage
from components.registry.register import Candidate, RegisterJob, candidates, read_dev_score
from components.settings.registry import RegistrySettings
from components.settings.systems import System
from tests.conftest import git
from tests.registry.conftest import Pipeline


def test_every_model_becomes_a_version_with_its_parent(pipeline):
    result = pipeline.registered()

    assert [(model["name"], model["version"], model["start"], model["parent"]) for model in result["models"]] == [
        ("headstart-ulmfit-pretrained", "1", "pretrained", None),
        ("headstart-ulmfit-adapted", "1", "adapted", "headstart-ulmfit-pretrained/1"),
        ("headstart-letters", "1", "scratch", None),
        ("headstart-letters", "2", "pretrained", "headstart-ulmfit-pretrained/1"),
        ("headstart-letters", "3", "adapted", "headstart-ulmfit-adapted/1"),
    ]
    assert result["challengers"]["letters"] == {
        "name": "headstart-letters",
        "version": "3",
        "digest": result["models"][4]["digest"],
        "system": "ulmfit-adapted",
        "metric": "accuracy",
        "budget": 20,
        "dev_score": pytest.approx(22 / 26),
    }


def test_a_student_names_its_teachers(pipeline):
    pipeline.write_classifier("pretrained-from-small", knows=21)
    student = pipeline.registered(students={"ulmfit-pretrained-from-small": ["ulmfit-adapted"]})["models"][-1]
    assert (student["system"], student["start"]) == ("ulmfit-pretrained-from-small", "pretrained-from-small")
    assert student["parent"] == "headstart-ulmfit-pretrained/1"
    registry = pipeline.registry
    version = registry.find_number(student["name"], student["version"])
    teacher = registry.find_number("headstart-letters", "3")
    assert version is not None and teacher is not None and teacher.tags["system"] == "ulmfit-adapted"
    assert version.tags["teacher"] == teacher.label
    (traced,) = _traced(registry, version.label)
    lines = tree(traced)
    assert lines[lines.index("teachers:") + 1] == "- model: headstart-letters/3"


def test_equal_content_is_not_registered_twice(pipeline):
    first = pipeline.registered()
    # The same weights from another run, with other timings and facts.
    directory = pipeline.out / "encoder" / "ulmfit" / "pretrained"
    pipeline.write_encoder("pretrained", seed=1)
    (directory / "metrics.json").write_text('{"seconds": 99}')
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["files"]["metrics.json"] = {"bytes": 15, "sha256": "0" * 64}
    (directory / "manifest.json").write_text(json.dumps(manifest))

    assert pipeline.registered() == first

    pipeline.write_encoder("pretrained", seed=3)
    again = pipeline.registered()
    assert [model["version"] for model in again["models"]] == ["2", "1", "1", "2", "3"]


def md5(digit: int) -> str:
    return str(digit) * 32 + ".dir"


def stage(outs: dict[str, str], **deps: str) -> dict[str, object]:
    """The entry of a stage in a lock; a dependency is named with `__` for each slash."""
    named = [{"path": path.replace("__", "/"), "hash": "md5", "md5": digest} for path, digest in deps.items()]
    return {"cmd": "a", "deps": named, "outs": [{"path": path, "md5": digest} for path, digest in outs.items()]}


def write_lock(pipeline: Pipeline, **stages: dict[str, object]) -> Path:
    """The lock of an experiment, and the version of the root's data."""
    path = pipeline.root / "experiments" / "full" / "dvc.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    named = {name.replace("__", "@"): entry for name, entry in stages.items()}
    path.write_text(yaml.safe_dump({"schema": "2.0", "stages": named}))
    return path


def test_a_version_has_its_lineage_as_tags_and_datasets(pipeline):
    """The data of an experiment is the data it has read."""
    folder = pipeline.out / "encoder" / "ulmfit"
    pretrained, adapted = (f"{folder.as_posix()}/{start}" for start in ("pretrained", "adapted"))
    # Of several locks, the one with the outputs of the run is used.
    (pipeline.root / "dvc.lock").write_text("schema: '2.0'\nstages:\n  a:\n    outs: [{path: other/x, md5: '9'}]\n")
    write_lock(
        pipeline,
        ingest__general=stage({"artifacts/corpus/general": md5(2)}, datasets__general=md5(1), components__x=md5(9)),
        ingest__domain=stage({"artifacts/corpus/domain": md5(4)}, datasets__domain__a=md5(3)),
        pretrain=stage({pretrained: md5(5)}, artifacts__corpus__general=md5(2)),
        adapt=stage({adapted: md5(6)}, **{pretrained: md5(5)}, artifacts__corpus=md5(4)),
        register=stage({}),
    )
    # The experiment does not read the root's data.
    (pipeline.root / "datasets" / "domain").mkdir(parents=True)
    for name, out in (("data", {"path": "data", "md5": md5(7)}), ("datasets/domain", {"md5": md5(8)})):
        (pipeline.root / f"{name}.dvc").write_text(yaml.safe_dump({"outs": [out]}))
    for command in (["init", "-q"], ["add", "data.dvc"], ["commit", "-q", "-m", "data"], ["rev-parse", "HEAD"]):
        commit = git(pipeline.root, *command).strip()
    data = {"corpus/general": Path("datasets/general"), "corpus/domain": Path("datasets/domain/a")}
    pipeline.registered(tasks=[], data=data)
    registry = pipeline.registry
    of_general = {"datasets/general": md5(1)}
    for start, output, read in (
        ("pretrained", md5(5), of_general),
        ("adapted", md5(6), of_general | {"datasets/domain": md5(8)}),
    ):
        version = registry.get(f"headstart-ulmfit-{start}", "1")
        data_tag = ", ".join(map("=".join, read.items()))
        expected = {"git_commit": commit, "dvc_output": output, "data": data_tag}
        assert {name: version.tags[name] for name in expected} == expected
        inputs = registry.client.get_run(version.run_id).inputs.dataset_inputs
        assert {entry.dataset.name: entry.dataset.digest for entry in inputs} == read
        assert UNKNOWN not in version.tags.values()
    assert version.tags["parent"] == "headstart-ulmfit-pretrained/1"


def test_data_without_a_record_of_dvc_has_the_digest_of_its_files(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a.txt").write_text("a")
    paths = {"here": Path("own"), "absolute": tmp_path / "own", "gone": Path("gone")}
    first = data_versions(paths, project=tmp_path, out=Path("artifacts"))
    assert len(first["here"].digest) == 32 and first["here"].digest == first["absolute"].digest
    assert first["gone"] == DataVersion("gone", UNKNOWN)
    (tmp_path / "own" / "a.txt").write_text("b")
    assert data_versions(paths, project=tmp_path, out=Path("artifacts"))["here"] != first["here"]


def test_metrics_and_parameters_are_logged_in_the_run(pipeline):
    pipeline.registered()
    registry = pipeline.registry
    encoder, version = registry.get("headstart-ulmfit-pretrained", "1"), registry.get("headstart-letters", "3")
    run = registry.client.get_run(encoder.run_id)
    assert "MLFLOW_TRACKING_URI" not in os.environ  # MLflow sets it, and it would take precedence over later settings
    assert re.fullmatch(r"encoder/ulmfit/pretrained \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", run.info.run_name)
    assert run.data.params == {"training.rate": "0.1", "training.betas": "[0.9, 0.99]", "preset": "None"}
    assert run.data.metrics == {}, "the stage has logged what it has measured"
    # The registered classifier is the average of the runs with 20 labels.
    metrics = registry.client.get_run(version.run_id).data.metrics
    assert metrics == {"dev.accuracy": pytest.approx(22 / 26), "test.accuracy": 0.625}
    # MLflow's page of models compares versions by their scores on one data set.
    model = registry.client.get_logged_model(version.source.rpartition("/")[2])
    rows = read_facts(pipeline.out / "examples" / "letters").digests["test"]
    scores = {metric.key: (metric.value, metric.dataset_name, metric.dataset_digest) for metric in model.metrics}
    assert (model.status, scores) == ("READY", {"test.accuracy": (0.625, "letters, test", rows[:36])})


def test_a_registered_model_is_data_only_and_its_files_are_those_of_the_outputs(pipeline, monkeypatch):
    """A model is neither copied nor loaded to be registered."""
    copied: list[str] = []
    copy = shutil.copyfile
    monkeypatch.setattr(shutil, "copyfile", lambda *of, **more: copied.append(Path(of[0]).suffix) or copy(*of, **more))
    monkeypatch.setattr("components.registry.register.record_reference", lambda *_, **__: None)
    monkeypatch.setattr("components.registry.register.load_model", lambda *_: None)
    monkeypatch.setattr("components.registry.pyfunc.load_model", lambda *_, **__: pytest.fail("loaded"))
    pipeline.registered(starts=["adapted"])
    (head,) = (pipeline.root / "mlruns").rglob("head.safetensors")
    model = head.parents[2] / "MLmodel"
    files = {path.relative_to(model.parent).as_posix() for path in model.parent.rglob("*") if path.is_file()}
    weights = ("data/bundle/head.safetensors", "data/bundle/encoder/model.safetensors")
    made = pipeline.out / "finetuned" / "letters" / "ulmfit-adapted" / "classifier"
    assert {*weights, "data/bundle/encoder/tokenizer/config.json", "input_example.json"} <= files
    assert all((model.parent / name).samefile(made / name.removeprefix("data/bundle/")) for name in weights)
    assert ".safetensors" not in copied and not list(pipeline.out.glob(".register-*"))
    registry = pipeline.registry
    assert registry.size(registry.get("headstart-letters", "1")) > head.stat().st_size
    assert {Path(name).suffix for name in files if name.startswith("data/")} == {".json", ".safetensors"}
    assert not [name for name in files if Path(name).suffix in (".py", ".pyc", ".pkl", ".pickle", ".pt", ".joblib")]
    described = yaml.safe_load(model.read_text())
    flavor = described["flavors"]["python_function"]
    assert (flavor["loader_module"], flavor["data"]) == ("components.registry.pyfunc", "data/bundle")
    assert not flavor.get("code") and "python_model" not in flavor
    assert (model.parent / "requirements.txt").read_text().splitlines()[-1] == "headstart"
    assert json.loads(described["signature"]["inputs"]) == [{"type": "string", "name": "text", "required": True}]
    outputs = [column["name"] for column in json.loads(described["signature"]["outputs"])]
    assert outputs == ["label", "confidence", "probabilities"]


def test_an_altered_model_is_not_registered(pipeline):
    weights = pipeline.out / "encoder" / "ulmfit" / "pretrained" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)

    with pytest.raises(ArtifactError, match=r"pretrained/model.safetensors: altered since it was written"):
        pipeline.registered()
    assert pipeline.registry.versions("headstart-ulmfit-pretrained") == []
    assert not (pipeline.out / "registry" / "registered.json").exists()


def test_missing_outputs_are_named(pipeline):
    with pytest.raises(ArtifactError, match=r"registered.json: missing; run the stage register first"):
        pipeline.promoted()
    (pipeline.out / "finetuned" / "letters" / "ulmfit-adapted" / "runs.json").write_text("[]")
    with pytest.raises(ArtifactError, match=r"runs.json: cannot be read .* run the stage finetune again"):
        pipeline.registered()
    shutil.rmtree(pipeline.out / "encoder" / "ulmfit" / "adapted")
    with pytest.raises(ArtifactError, match=r"ulmfit/adapted: not a complete output .* run the stage that makes it"):
        pipeline.registered()


def test_the_dev_score_is_the_best_of_each_run(tmp_path):
    def run(start, budget, *points):
        curve = [{"span_f1": span, "accuracy": accuracy} for span, accuracy in points]
        return {"system": f"flair-{start}", "start": start, "budget": budget, "score": "span_f1", "curve": curve}

    path = tmp_path / "runs.json"
    path.write_text(
        json.dumps(
            [
                run("adapted", 20, (0.9, 0.9)),
                run("adapted", -1, (0.4, 0.95), (0.6, 0.7)),
                run("adapted", -1, (0.5, 0.8)),
                run("adapted-frozen", -1, (1.0, 1.0)),
            ]
        )
    )
    for system, metric, expected in (
        ("flair-adapted", None, (-1, "span_f1", 0.55)),
        ("flair-adapted", "accuracy", (-1, "accuracy", 0.75)),
        ("flair-adapted-frozen", None, (-1, "span_f1", 1.0)),
    ):
        budget, name, score = read_dev_score(path, system=system, metric=metric).values()
        assert (budget, name, score) == (*expected[:2], pytest.approx(expected[2]))
    message = r"promote.metric: 'macro_f1' is not a metric of .*runs.json; known: accuracy, sp"
    with pytest.raises(ConfigError, match=message):
        read_dev_score(path, system="flair-adapted", metric="macro_f1")


def test_a_model_is_logged_in_the_run_of_its_stage(pipeline, monkeypatch):
    """The run that monitoring has made keeps its times; a model without one gets a run below the retraining's."""
    encoder = (pipeline.out / "encoder" / "ulmfit" / "adapted").as_posix()
    stages = {"adapt@ulmfit": {"outs": [{"path": encoder, "hash": "md5", "md5": "3" * 32 + ".dir"}]}}
    (pipeline.root / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}))
    registry = pipeline.registry
    client, experiment = registry.client, registry.experiment_id()
    retrain = client.create_run(experiment, tags={"headstart.run": "r-1", "headstart.stage": "retrain"}).info.run_id
    tags = {"headstart.dvc_output": "3" * 32 + ".dir", "headstart.outcome": "Completed"}
    adapt = client.create_run(experiment, start_time=1000, tags=tags).info.run_id
    client.log_param(adapt, "training.rate", "0.5")
    client.set_terminated(adapt, end_time=9000)
    monkeypatch.setenv(RUN_ID, "r-1")

    pipeline.registered(tasks=[])
    run = client.get_run(registry.get("headstart-ulmfit-adapted", "1").run_id)
    assert run.info.run_id == adapt
    assert (run.info.start_time, run.info.end_time, run.info.status) == (1000, 9000, "FINISHED")
    other = client.get_run(registry.get("headstart-ulmfit-pretrained", "1").run_id)
    assert other.data.tags["mlflow.parentRunId"] == retrain


def listed(family: str, starts: dict[str, list[str]], **changes: object) -> list[Candidate]:
    job: dict[str, object] = {"registry": RegistrySettings(), "out": Path("out"), "families": [family]}
    job |= {"tasks": [*starts], "starts": ["pretrained", "adapted"], "parameters": {}}
    systems = {task: [System.of(family, start) for start in of_task] for task, of_task in starts.items()}
    return list(candidates(RegisterJob.model_validate(job | {"systems": systems} | changes)))


def test_models_of_additional_initialisations_and_their_parents():
    both, usual = ["adapted-with-both", "scratch-with-both"], ["scratch", "pretrained", "adapted"]
    actual = listed("ulmfit", {"a": [*usual, "task-adapted", *both], "b": [*usual, *both[:1]]})
    parents = {f"{each.task}: {each.system}": each.parent for each in actual}
    assert list(parents)[:3] == ["None: ulmfit-pretrained", "None: ulmfit-adapted", "None: ulmfit-task-adapted-a"]
    adapted, of_task = (System("ulmfit", start) for start in ("adapted", "task-adapted-a"))
    assert parents["None: ulmfit-task-adapted-a"] == parents["a: ulmfit-adapted-with-both"] == (adapted, None)
    assert parents["a: ulmfit-task-adapted"] == (of_task, None) and parents["a: ulmfit-scratch-with-both"] is None
    folders = {each.directory.as_posix() for each in actual}
    assert {"out/encoder/ulmfit/task-adapted-a", "out/finetuned/b/ulmfit-adapted-with-both"} <= folders
    assert "b: ulmfit-task-adapted" not in parents
    assert {parent for parent in parents.values() if parent} <= {each.key for each in actual}


def test_a_teacher_is_registered_before_the_vectors_that_are_computed_from_it():
    actual = listed("minilm-static", {"a": ["pretrained", "adapted"]}, parents={"minilm-static": ["minilm"]})
    assert [(str(item.system), item.task, item.section) for item in actual] == [
        ("minilm-pretrained", None, "pretrain"),
        ("minilm-adapted", None, "adapt"),
        ("minilm-static-pretrained", None, "static"),
        ("minilm-static-adapted", None, "static"),
        ("minilm-static-pretrained", "a", "finetune"),
        ("minilm-static-adapted", "a", "finetune"),
    ]
    assert (actual[3].parent, actual[5].parent) == (actual[1].key, actual[3].key)


def test_of_two_stages_that_wrote_an_output_the_newest_counts():
    """DVC keeps the entry of a stage that an earlier version had."""
    entries = {
        name: {"outs": [{"path": path}], "deps": [{"path": read} for read in deps]}
        for name, path, deps in (
            ("distil@t-teacher", "distilled/t", ["finetuned/t/teacher"]),
            ("distil@t-student", "finetuned/t/student", ["distilled/t"]),
            ("finetune@t-teacher", "finetuned/t/teacher", []),
            ("finetune@t-student", "finetuned/t/student", ["finetuned/t/teacher"]),
        )
    }
    stages, paths = Lineage("commit", {}, entries).before(Path("finetuned/t/student"))
    assert set(stages) == {"finetune@t-student", "finetune@t-teacher"} and "distilled/t" not in paths
