"""What challenger and champion are judged by: their files, their predictions by label name, their latency."""

import json
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from components.core.errors import ArtifactError, RegistryUnavailableError, SchemaError
from components.data.tasks.data import Split
from components.data.tasks.examples import TaskFacts
from components.registry.champion import load_version
from components.registry.contest import ROUNDS, measure_latency, promote, scored_rows
from components.registry.decide import Latency
from components.registry.tracking import Registry, Version
from components.serving.models import FixedModel
from headstart import load
from tests.registry.conftest import LABELS, Pipeline
from tests.registry.promoting import NAME, champion, events, must_not_be_called, run


def test_latency_is_measured_once_per_artifact(pipeline, monkeypatch):
    def slow(*_):
        return Latency(99_999.0, (99_999.0,) * ROUNDS)

    with monkeypatch.context() as patch:
        patch.setattr("components.registry.contest.measure_latency", slow)
        decision = run(pipeline)
    assert decision["verdict"] == "reject"
    reason = decision["reasons"][0]
    assert reason.startswith(
        f"{NAME}/1 takes 99999.0 ms of a processor per text, more than promote.latency_ms: 10000 (8 rows, "
    )

    # A second attempt finds the stored value and does not measure until it passes.
    monkeypatch.setattr("components.registry.contest.measure_latency", must_not_be_called)
    assert run(pipeline)["reasons"] == decision["reasons"]
    stored = json.loads(pipeline.registry.get(NAME, "1").tags["latency"])
    ((conditions, latency),) = stored.items()
    assert (latency["median"], conditions in decision["reasons"][0]) == (99_999.0, True)

    # A damaged one is measured again.
    for damaged in ("{", "[1]", json.dumps({conditions: 3}), json.dumps({conditions: {"average": 3}})):
        pipeline.registry.set_tag(pipeline.registry.get(NAME, "1"), "latency", damaged)
        with monkeypatch.context() as patch:
            patch.setattr("components.registry.contest.measure_latency", slow)
            assert run(pipeline)["reasons"] == decision["reasons"]
        assert json.loads(pipeline.registry.get(NAME, "1").tags["latency"]) == stored


def test_latency_is_the_processor_time_of_one_text_in_the_median_pass(monkeypatch):
    """However long other programs keep the processor."""
    clock, passes = [0.0], iter([99.0, 0.001, 0.003, 0.002, 50.0, 0.002])
    monkeypatch.setattr(time, "process_time", lambda: clock[0])
    cost, calls = [0.0], [0]

    def answer(rows, batch_size):
        for _ in rows:
            if calls[0] % 3 == 0:
                cost[0] = next(passes)
            calls[0] += 1
            clock[0] += cost[0]
        time.sleep(0.001)
        assert (len(rows), batch_size, torch.get_num_threads()) == (1, 1, 1)
        return [np.array([1.0, 0.0, 0.0], dtype=np.float32)] * len(rows)

    classifier = SimpleNamespace(kind="classification", labels=LABELS, answer=answer)
    measured = measure_latency(classifier, [("a",)] * 3)
    assert measured.rounds == pytest.approx((1.0, 3.0, 2.0, 50_000.0, 2.0))
    assert (measured.median, calls[0]) == (2.0, 3 * (1 + ROUNDS))


def test_a_rule_without_latency_measures_none(pipeline, monkeypatch):
    monkeypatch.setattr("components.registry.contest.measure_latency", must_not_be_called)
    decision = run(pipeline, latency_ms=None)
    assert (decision["verdict"], decision["candidate"]["latency_ms"]) == ("promote", None)


def test_nothing_is_decided_while_the_files_cannot_be_downloaded(pipeline, monkeypatch):
    def away(*_, **__):
        raise RegistryUnavailableError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr("components.registry.contest.load_version", away)
        with pytest.raises(RegistryUnavailableError, match="no answer"):
            run(pipeline)
    assert champion(pipeline) is None
    assert events(pipeline) == []
    assert run(pipeline)["verdict"] == "promote"


def test_predictions_are_matched_by_label_name(pipeline):
    facts = TaskFacts("letters", "classification", ["new", "z", "x"], {"test": "t"})
    split = Split([("a",), ("b",), ("c",)], [np.array([number]) for number in (2, 0, 1)], [None] * 3)
    rows, statistics = scored_rows(facts, split, {"m": pipeline.classifier("adapted")})
    # a -> x, b -> y (absent from this test split), c -> z
    assert rows.scoring.scores(statistics["m"].sum(0))["accuracy"] == pytest.approx(2 / 3)
    classes = rows.scoring.classes(statistics["m"].sum(0))
    assert {name: result["recall"] for name, result in classes.items()} == {"new": 0, "z": 1, "x": 1, "y": None}


def test_an_altered_champion_gives_an_inconclusive_verdict(pipeline):
    run(pipeline, knows=16)
    (labels,) = (pipeline.root / "mlruns").rglob("bundle/labels.json")
    labels.write_bytes(labels.read_bytes()[:-1] + b"!")

    decision = run(pipeline, knows=24)
    assert decision["verdict"] == "inconclusive"
    assert decision["reasons"][0].startswith(f"champion {NAME}/1 could not be scored: ")
    assert "labels.json: altered since it was written (SHA-256 differs)" in decision["reasons"][0]
    assert champion(pipeline) == "1"
    with pytest.raises(ArtifactError, match=r"labels.json: altered since it was written \(SHA-256 differs\)"):
        pipeline.champion()


def test_a_replaced_bundle_is_detected_by_the_registered_digest(pipeline):
    run(pipeline, knows=16)
    (bundle,) = (path.parent for path in (pipeline.root / "mlruns").rglob("head.safetensors"))
    # The bundle is consistent but not the registered one.
    pipeline.write_classifier("adapted", knows=20)
    other = pipeline.out / "finetuned" / "letters" / "ulmfit-adapted" / "classifier"
    for name in ("head.safetensors", "manifest.json"):
        (bundle / name).write_bytes((other / name).read_bytes())

    with pytest.raises(ArtifactError, match=rf"^{NAME}/1: its files are not the ones that were registered"):
        pipeline.champion()


def test_a_champion_of_another_test_version_is_scored_again(pipeline):
    run(pipeline, knows=16)
    pipeline.write_examples(rows=234)
    decision = run(pipeline, knows=24)

    assert decision["verdict"] == "promote"
    assert decision["champion_score"] == pytest.approx(16 / 26)
    assert decision["test"]["rows"] == 234


ROWS = [("a",), ("bb",), ("ccc",)]


def registered(pipeline: Pipeline) -> tuple[Registry, Version, Path]:
    """The registry, the version of the adapted classifier, and its folder in the artifact store."""
    pipeline.registered(starts=["adapted"])
    registry = pipeline.registry
    (head,) = pipeline.root.glob("mlruns/**/head.safetensors")
    return registry, registry.get("headstart-letters", "1"), head.parents[2]


def test_the_data_of_an_earlier_version_is_loaded_and_its_code_is_not_run(pipeline, tmp_path, monkeypatch):
    """Earlier versions stored the bundle as an artifact beside a package `components` and a script."""
    registry, version, stored = registered(pipeline)
    (stored / "data").rename(stored / "artifacts")
    marker = tmp_path / "executed"
    for name in ("code/components/__init__.py", "code/components/learners/task_models/heads.py", "model.py"):
        (stored / name).parent.mkdir(parents=True, exist_ok=True)
        (stored / name).write_text(f"open({str(marker)!r}, 'w').close()\n")
    (stored / "python_model.pkl").write_bytes(b"cposix\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR.")
    answers = load_version(registry, version).answer(ROWS)
    np.testing.assert_array_equal(answers, pipeline.classifier("adapted").answer(ROWS))
    assert "promote" in promote(pipeline.promote_job()).read_text()
    assert not marker.exists()


@pytest.mark.parametrize("schema", [0, None])
def test_another_schema_is_refused_with_what_to_do(schema, pipeline):
    registry, version, stored = registered(pipeline)
    path = stored / "data" / "bundle" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": schema}))
    message = r"^headstart-letters/1: the schema of the registered model is not .* reads \(1\); run the pipeline again"
    with pytest.raises(SchemaError, match=message):
        load_version(registry, version)
    shutil.copytree(path.parent, pipeline.root / "copy")
    for read in (FixedModel, load):  # a directory that a person names
        with pytest.raises(SchemaError, match=r"manifest.json: schema .* is not supported"):
            read(pipeline.root / "copy")
