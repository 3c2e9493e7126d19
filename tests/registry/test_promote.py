"""The stage `promote`: verdict, alias, ledger, rollback, and recovery from crashes."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

import components.registry.judging as judging
from components.errors import ArtifactError, ConfigError, HeadstartError, RegistryError
from components.inference.prediction import predict_rows
from components.registry.champion import load_champion
from components.registry.commands import assign, rollback
from components.registry.judging import scored_rows
from components.registry.latency import ROUNDS, WARM_UP, measure_latency, spaced
from components.registry.ledger import Ledger
from components.registry.promote import promote
from components.registry.runs import evaluation_warnings
from components.registry.scored import Latency
from components.registry.stage import register
from components.task_models.classifier import TextClassifier
from components.tasks.data import Fields, Split
from components.tasks.examples import TaskFacts
from components.tracking import Registry, connect
from tests.registry.conftest import LABELS, Pipeline

NAME = "headstart-letters"


class Killed(BaseException):
    """The end of a process, which no `except Exception` intercepts."""


def killed(*_: object, **__: object) -> None:
    raise Killed


def run(pipeline: Pipeline, *, knows: int | None = None, **rule: object) -> dict:
    """Register the adapted classifier, which knows `knows` letters, and promote; returns the decision."""
    if knows is not None:
        pipeline.write_classifier("adapted", knows=knows)
    register(pipeline.register_job(starts=["adapted"]))
    return json.loads(promote(pipeline.promote_job(**rule)).read_text())["decisions"]["letters"]


def champion(pipeline: Pipeline) -> str | None:
    version = connect(pipeline.settings).alias(NAME, "champion")
    return version.number if version is not None else None


def labels_of(classifier: TextClassifier, *texts: str) -> list[str]:
    return [answer["label"] for answer in predict_rows(classifier, [(text,) for text in texts]) if answer]


def events(pipeline: Pipeline) -> list[str]:
    return [entry.event for entry in Ledger(connect(pipeline.settings)).entries()]


def champions(pipeline: Pipeline) -> list[str]:
    return [number for number, _ in Ledger(connect(pipeline.settings)).state(NAME, "champion").champions]


def test_the_first_model_is_promoted_and_predicts(pipeline: Pipeline) -> None:
    decision = run(pipeline)

    assert decision["verdict"] == "promote"
    assert decision["against"] == "most frequent class"
    assert decision["candidate_score"] == pytest.approx(22 / 26)
    assert (decision["alias_before"], decision["alias_after"]) == (None, "1")
    assert decision["candidate"]["name"] == NAME
    assert decision["candidate"]["latency_ms"].keys() == {"p50", "p99", "rounds", "conditions"}
    assert decision["test"]["rows"] == 260
    assert decision["last_change"]["action"] == "promote"
    assert champion(pipeline) == "1"
    assert events(pipeline) == ["decision", "change"]

    loaded = load_champion(pipeline.settings, "letters")
    assert labels_of(loaded, "a", "bb", "c", "d", "z") == ["x", "y", "z", "x", "z"]


def test_a_better_challenger_replaces_the_champion_and_rollback_restores_it(pipeline: Pipeline) -> None:
    run(pipeline, knows=16)
    decision = run(pipeline, knows=24, largest_slice_loss=1.0)

    assert decision["verdict"] == "promote"
    assert decision["gain"] == pytest.approx(8 / 26)
    assert (decision["champion"]["version"], decision["candidate"]["version"]) == ("1", "2")
    assert champion(pipeline) == "2"
    assert champions(pipeline) == ["1", "2"]

    lines = rollback(pipeline.settings, "letters")
    assert lines == [f"{NAME}@champion: version 1 restored, version 2 rolled back"]
    assert champion(pipeline) == "1"
    change = Ledger(connect(pipeline.settings)).state(NAME, "champion").last
    assert change is not None
    assert (change.action, change.before, change.after) == ("rollback", "2", "1")
    assert champions(pipeline) == ["1"]

    # The next run has the same challenger; a rolled-back version is not promoted again.
    for _ in range(2):
        decision = run(pipeline)
        assert decision["verdict"] == "reject"
        assert decision["reasons"][0].startswith(f"{NAME}/2 was rolled back")
    assert events(pipeline)[-2:] == ["change", "decision"]
    assert champion(pipeline) == "1"
    with pytest.raises(RegistryError, match=rf"^{NAME}: no champion is recorded before version 1 that still exists"):
        rollback(pipeline.settings, "letters")


def test_a_worse_challenger_is_rejected(pipeline: Pipeline) -> None:
    run(pipeline, knows=24)
    decision = run(pipeline, knows=16, largest_slice_loss=1.0)

    assert decision["verdict"] == "reject"
    assert decision["reasons"][0] == "not better by more than 0"
    assert (decision["alias_before"], decision["alias_after"]) == ("1", "1")
    assert champion(pipeline) == "1"
    version = connect(pipeline.settings).get(NAME, "2")
    assert version.tags["decision"].startswith("reject; not better by more than 0; accuracy 0.6154 against 0.9231")


def test_the_same_content_changes_nothing_and_is_not_scored(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(pipeline)
    before = events(pipeline)
    monkeypatch.setattr("components.registry.judging.load_version", _must_not_be_called)
    monkeypatch.setattr("components.registry.judging.read_split", _must_not_be_called)
    decision = run(pipeline)

    assert decision["verdict"] == "unchanged"
    assert decision["reasons"] == [f"{NAME}/1 is already the champion"]
    assert decision["last_change"]["action"] == "promote"
    assert events(pipeline) == before


def test_a_decision_with_the_same_inputs_is_not_repeated(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    run(pipeline, knows=24)
    first = run(pipeline, knows=16)
    before = events(pipeline)
    with monkeypatch.context() as patch:
        patch.setattr("components.registry.judging.load_version", _must_not_be_called)
        assert run(pipeline) == first
    assert events(pipeline) == before

    # Another rule or test split requires a new decision.
    assert run(pipeline, least_gain=0.01)["reasons"][0] == "not better by more than 0.01"
    pipeline.write_examples(rows=234)
    assert run(pipeline)["test"]["rows"] == 234


def _must_not_be_called(*_: object) -> None:
    raise AssertionError("scored again")


def test_a_verdict_without_a_comparison_is_not_final(pipeline: Pipeline) -> None:
    register(pipeline.register_job(starts=["adapted"]))
    models = pipeline.root / "mlruns" / "models"
    models.rename(pipeline.root / "elsewhere")
    decision = run(pipeline)
    assert decision["verdict"] == "reject"
    assert decision["reasons"][0].startswith(f"{NAME}/1 has no accuracy: ")

    (pipeline.root / "elsewhere").rename(models)
    assert run(pipeline)["verdict"] == "promote"


def test_latency_is_measured_once_per_artifact(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object, conditions: str) -> Latency:
        return Latency(99_999.0, 99_999.0, (99_999.0,) * ROUNDS, conditions)

    with monkeypatch.context() as patch:
        patch.setattr("components.registry.latency.measure_latency", slow)
        decision = run(pipeline)
    assert decision["verdict"] == "reject"
    assert decision["reasons"][0].startswith(f"{NAME}/1 takes 99999.0 ms per text, more than 10000 ms (10 rows, ")

    # A second attempt finds the stored value and does not measure until it passes.
    monkeypatch.setattr("components.registry.latency.measure_latency", _must_not_be_called)
    assert run(pipeline)["reasons"] == decision["reasons"]
    stored = json.loads(connect(pipeline.settings).get(NAME, "1").tags["latency"])
    ((conditions, latency),) = stored.items()
    assert (latency["p50"], conditions in decision["reasons"][0]) == (99_999.0, True)


def test_the_first_champion_has_to_beat_the_best_baseline(pipeline: Pipeline) -> None:
    pipeline.write_baselines(words=12, pairs=24)
    decision = run(pipeline, training_noise=False)  # knows 22 letters of 26
    assert decision["verdict"] == "reject"
    assert decision["against"] == "baseline pairs"
    assert decision["champion_score"] == pytest.approx(24 / 26)  # seed 0, as that of the classifier
    assert champion(pipeline) is None

    # Seeds are paired: the difference is 14 letters with seed 0, and 13 with seed 1.
    pipeline.write_baselines(words=3, pairs=8)
    decision = run(pipeline, confidence=0.9)
    assert (decision["verdict"], decision["against"]) == ("promote", "baseline pairs")
    assert decision["training_std"] == pytest.approx(np.std([14 / 26, 13 / 26], ddof=1))
    assert "2 pairs of runs of ulmfit-adapted and pairs on the same labels" in decision["reasons"][-1]

    # A challenger of a champion is not compared with the baselines.
    pipeline.write_baselines(words=26)
    assert run(pipeline, knows=16, largest_slice_loss=1.0)["against"] == f"{NAME}/1"


def test_unreadable_baselines_are_inconclusive(pipeline: Pipeline) -> None:
    pipeline.write_baselines(words=12)
    pipeline.write_examples(rows=234)
    decision = run(pipeline, knows=22)
    assert decision["verdict"] == "inconclusive"
    assert decision["reasons"][0].startswith("the best baseline could not be scored: ")
    assert "made from another version of the test rows; run its stage again" in decision["reasons"][0]


def test_clusters_of_the_examples_decide_the_interval(pipeline: Pipeline) -> None:
    run(pipeline, knows=16)
    decision = run(pipeline, knows=20, largest_slice_loss=1.0)
    assert (decision["verdict"], decision["units"], decision["count"]) == ("promote", "rows", 260)

    # Ten rows of each letter are one piece of evidence: 4 of 26 letters are too few.
    pipeline.write_examples(group="letter")
    pipeline.write_classifier("adapted", knows=20)
    rollback(pipeline.settings, "letters")
    pipeline.write_classifier("adapted", knows=21)
    decision = run(pipeline, knows=21, largest_slice_loss=1.0, confidence=0.99)
    assert (decision["verdict"], decision["units"], decision["count"]) == ("inconclusive", "clusters", 26)
    assert "clusters with about" in decision["reasons"][0]


def test_distinct_comparisons_on_one_test_version_are_counted(pipeline: Pipeline) -> None:
    assert run(pipeline, knows=20)["test_uses"] == 1
    second = run(pipeline, knows=19)
    assert (second["test_uses"], second["alpha"]) == (2, pytest.approx(0.05 / 6))
    # The same comparison by another rule is no new use of the test rows; another metric is.
    assert run(pipeline, least_gain=0.01)["test_uses"] == 2
    assert run(pipeline, metric="macro_f1")["test_uses"] == 3
    assert run(pipeline, knows=18)["test_uses"] == 4
    # New test rows begin anew.
    pipeline.write_examples(rows=234)
    assert run(pipeline, knows=17)["test_uses"] == 1


def test_scores_of_seeds_are_stored_and_pooled_over_retrainings(pipeline: Pipeline) -> None:
    run(pipeline, knows=20)
    decision = run(pipeline, knows=19)
    tags = connect(pipeline.settings).get(NAME, "2").tags
    stored = json.loads(tags["seed_scores"])
    assert (stored["recipe"], stored["metric"]) == ("ulmfit-adapted, budget 20", "accuracy")
    assert stored["scores"] == pytest.approx([19 / 26] * 2, abs=1e-5)
    assert decision["training_std"] == 0  # both seeds have the same predictions
    assert "4 runs of 2 versions (ulmfit-adapted, budget 20)" in decision["reasons"][-1]
    assert run(pipeline, training_noise=False)["training_std"] is None


def test_unknown_slices_of_the_rule_are_refused(pipeline: Pipeline) -> None:
    with pytest.raises(ConfigError, match=r"promote.slices: no test row is in a slice 'earli'.*early"):
        run(pipeline, slices={"earli": 0.02})
    run(pipeline, knows=16)
    decision = run(pipeline, knows=24, largest_slice_loss=1.0, slices={"early": 0.02})
    assert decision["verdict"] == "promote"
    assert [(change["name"], change["named"]) for change in decision["slices"]] == [("early", True), ("late", False)]


def test_a_champion_of_another_test_version_is_scored_again(pipeline: Pipeline) -> None:
    run(pipeline, knows=16)
    pipeline.write_examples(rows=234)
    decision = run(pipeline, knows=24, largest_slice_loss=1.0)

    assert decision["verdict"] == "promote"
    assert decision["champion_score"] == pytest.approx(16 / 26)
    assert decision["test"]["rows"] == 234


def test_an_altered_champion_gives_an_inconclusive_verdict(pipeline: Pipeline) -> None:
    run(pipeline, knows=16)
    (weights,) = (pipeline.root / "mlruns").rglob("head.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)

    decision = run(pipeline, knows=24)
    assert decision["verdict"] == "inconclusive"
    assert decision["reasons"][0].startswith(f"champion {NAME}/1 could not be scored: ")
    assert "head.safetensors: altered since it was written (SHA-256 differs)" in decision["reasons"][0]
    assert champion(pipeline) == "1"
    with pytest.raises(ArtifactError, match=r"head.safetensors: altered since it was written \(SHA-256 differs\)"):
        load_champion(pipeline.settings, "letters")


def test_a_replaced_bundle_is_detected_by_the_registered_digest(pipeline: Pipeline) -> None:
    run(pipeline, knows=16)
    (bundle,) = (path.parent for path in (pipeline.root / "mlruns").rglob("head.safetensors"))
    # The bundle is consistent but not the registered one.
    pipeline.write_classifier("adapted", knows=20)
    other = pipeline.out / "finetuned" / "letters" / "ulmfit-adapted" / "classifier"
    for name in ("head.safetensors", "manifest.json"):
        (bundle / name).write_bytes((other / name).read_bytes())

    with pytest.raises(ArtifactError, match=rf"^{NAME}/1: its files are not the ones that were registered"):
        load_champion(pipeline.settings, "letters")


def test_missing_files_are_named(pipeline: Pipeline) -> None:
    run(pipeline)
    (pipeline.root / "mlruns").rename(pipeline.root / "elsewhere")

    with pytest.raises(RegistryError, match=rf"{NAME}/1: .*No such"):
        load_champion(pipeline.settings, "letters")


def test_warnings_of_the_evaluation_are_part_of_the_decision(pipeline: Pipeline) -> None:
    def system(name: str, family: str, start: str, *means: float) -> dict[str, object]:
        cells = [
            {
                "budget": budget,
                "seeds": [],
                "scores": {"macro_f1": {"mean": mean, "low": mean - 0.02, "high": mean + 0.02}},
            }
            for budget, mean in zip((5, 20), means, strict=True)
        ]
        return {"system": name, "family": family, "start": start, "budgets": cells}

    def part(kind: str, name: str, *, hurts: bool) -> dict[str, object]:
        found = {
            "score": {"mean": 0.538, "low": 0.5, "high": 0.58},
            "difference": {"mean": -0.462, "low": -0.52, "high": -0.4},
            "hurts": hurts,
        }
        scratch = {"mean": 1.0, "low": 1.0, "high": 1.0}
        return {"part": kind, "name": name, "rows": 130, "scratch": scratch, "starts": {"adapted": found}}

    parts = [part("all", "", hurts=False), part("class", "x", hurts=False), part("slice", "late", hurts=True)]
    smaller = [part("class", "y", hurts=True)]
    content = {
        "main": "macro_f1",
        "systems": [
            system("tfidf-words", "baseline", "none", 0.4, 0.6),
            system("most-frequent", "baseline", "none", 0.1, 0.1),
            system("ulmfit-adapted", "ulmfit", "adapted", 0.5, 0.58),
        ],
        "transfer": {"ulmfit": [{"budget": 5, "parts": smaller}, {"budget": 20, "parts": parts}]},
    }
    evaluation = pipeline.out / "evaluation" / "letters" / "evaluation.json"
    pipeline.write_classifier("adapted", knows=20)
    evaluation.write_text(json.dumps(content))
    decision = run(pipeline)

    assert decision["warnings"] == [
        "a baseline does better: tfidf-words 0.600 [0.580, 0.620] against 0.580 [0.560, 0.600] with the most labels",
        "transfer hurts on slice 'late' (130 rows): 0.538 against 1.000 from scratch, difference -0.462 "
        "[-0.520, -0.400]",
    ]
    better = [
        system("tfidf-words", "baseline", "none", 0.6, 0.4),
        system("ulmfit-adapted", "ulmfit", "adapted", 0.5, 0.58),
    ]
    evaluation.write_text(json.dumps({"main": "macro_f1", "systems": better, "transfer": {}}))
    assert evaluation_warnings(evaluation.parent, "ulmfit-adapted") == []
    assert evaluation_warnings(evaluation.parent, "bert-adapted") == []
    assert evaluation_warnings(evaluation.parent / "nowhere", "ulmfit-adapted") == []
    evaluation.write_text("{")
    with pytest.raises(ArtifactError, match=r"evaluation.json: damaged .* run the stage evaluate again"):
        evaluation_warnings(evaluation.parent, "ulmfit-adapted")


@pytest.mark.parametrize("after_step", ["record", "alias"])
def test_a_change_interrupted_by_a_crash_is_completed_by_the_next_run(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, after_step: str
) -> None:
    register(pipeline.register_job(starts=["adapted"]))
    with monkeypatch.context() as patch:
        if after_step == "record":
            patch.setattr(Registry, "set_alias", killed)
        else:
            patch.setattr(Ledger, "mark_done", killed)
        with pytest.raises(Killed):
            promote(pipeline.promote_job())
    assert champion(pipeline) == (None if after_step == "record" else "1")
    assert events(pipeline) == ["decision", "change"]

    written = json.loads(promote(pipeline.promote_job()).read_text())
    assert written["recovered"] == [f"interrupted promote of {NAME} from version none to 1: finished"]
    assert written["decisions"]["letters"]["verdict"] == "unchanged"
    assert champion(pipeline) == "1"
    assert champions(pipeline) == ["1"]
    assert Ledger(connect(pipeline.settings)).entries()[-1].done == "recovered"
    assert json.loads(promote(pipeline.promote_job()).read_text())["recovered"] == []


def test_a_crash_before_the_change_is_recorded_repeats_it_without_the_comparison(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(pipeline.register_job(starts=["adapted"]))
    with monkeypatch.context() as patch:
        patch.setattr("components.registry.promote.move", killed)
        with pytest.raises(Killed):
            promote(pipeline.promote_job())
    assert events(pipeline) == ["decision"]

    monkeypatch.setattr("components.registry.judging.load_version", _must_not_be_called)
    written = json.loads(promote(pipeline.promote_job()).read_text())
    assert written["decisions"]["letters"]["verdict"] == "promote"
    assert champion(pipeline) == "1"
    assert events(pipeline) == ["decision", "change"]


@pytest.mark.parametrize("how", ["by hand", "by rollback"])
def test_an_alias_that_a_person_moves_during_the_decision_is_not_moved_back(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    run(pipeline, knows=12)
    run(pipeline, knows=18, largest_slice_loss=1.0)
    assert champion(pipeline) == "2"
    pipeline.write_classifier("adapted", knows=16)
    register(pipeline.register_job(starts=["adapted"]))
    registry = connect(pipeline.settings)
    compared: list[str | None] = []

    def moved(*arguments: object, **keywords: object) -> object:
        compared.append(champion(pipeline))
        if len(compared) == 1:
            if how == "by hand":
                registry.set_alias(NAME, "champion", registry.get(NAME, "1"))
            else:
                rollback(pipeline.settings, "letters")
            decision = original(*arguments, **keywords)  # type: ignore[arg-type]
            return decision | {"verdict": "promote"}  # against the champion that is none any more
        return original(*arguments, **keywords)  # type: ignore[arg-type]

    original = judging.judge
    monkeypatch.setattr("components.registry.promote.judge", moved)
    written = json.loads(promote(pipeline.promote_job(largest_slice_loss=1.0)).read_text())["decisions"]["letters"]
    assert compared == ["2", "1"], "it is made again, against the champion that the person has chosen"
    assert (written["verdict"], written["against"], champion(pipeline)) == ("promote", f"{NAME}/1", "3")
    changes = Ledger(connect(pipeline.settings)).state(NAME, "champion").changes
    chosen = "hand" if how == "by hand" else "rollback"
    assert [change.action for change in changes] == ["promote", "promote", chosen, "promote"]


def test_a_move_by_hand_is_respected_until_a_new_candidate_is_better(pipeline: Pipeline) -> None:
    run(pipeline, knows=14)
    assert run(pipeline, knows=18, largest_slice_loss=1.0)["verdict"] == "promote"
    registry = connect(pipeline.settings)
    registry.client.set_registered_model_alias(NAME, "champion", "1")  # on MLflow's page

    for night in range(2):
        written = json.loads(promote(pipeline.promote_job(largest_slice_loss=1.0)).read_text())
        decision = written["decisions"]["letters"]
        assert (decision["verdict"], champion(pipeline)) == ("reject", "1"), f"night {night}"
        assert decision["reasons"][0].startswith(f"{NAME}/2 was known when a person chose version 1 on ")
        found = [f"{NAME}@champion: version 1 was set by hand in MLflow; it is respected"]
        assert written["recovered"] == (found if night == 0 else [])
    state = Ledger(registry).state(NAME, "champion")
    assert [(change.action, change.after) for change in state.changes] == [
        ("promote", "1"),
        ("promote", "2"),
        ("hand", "1"),
    ]
    assert events(pipeline)[-2:] == ["change", "decision"], "one entry for all nights"

    decision = run(pipeline, knows=24, largest_slice_loss=1.0)
    assert (decision["verdict"], decision["against"], champion(pipeline)) == ("promote", f"{NAME}/1", "3")


def test_the_veto_of_a_rolled_back_model_survives_its_deletion(pipeline: Pipeline) -> None:
    run(pipeline, knows=14)
    run(pipeline, knows=22, largest_slice_loss=1.0)
    rollback(pipeline.settings, "letters")
    registry = connect(pipeline.settings)
    registry.client.delete_model_version(NAME, "2")

    decision = run(pipeline)  # the same content is registered again
    assert (decision["candidate"]["version"], decision["verdict"], champion(pipeline)) == ("3", "reject", "1")
    assert decision["reasons"][0].startswith(f"{NAME}/3 was rolled back on ")
    assert "`headstart promote --version 3 --reason TEXT`" in decision["reasons"][0]


@pytest.mark.parametrize("what", ["alias", "version"])
def test_a_deleted_champion_ends_the_run_until_a_person_chooses_one(pipeline: Pipeline, what: str) -> None:
    run(pipeline, knows=22)
    registry = connect(pipeline.settings)
    if what == "alias":
        registry.client.delete_registered_model_alias(NAME, "champion")
    else:
        registry.client.delete_model_version(NAME, "1")
    # Against the most frequent class this one would win.
    for _ in range(2):
        with pytest.raises(RegistryError, match=rf"version 1 was the champion, and the {what} was deleted in MLflow"):
            run(pipeline, knows=14)
    assert champion(pipeline) is None
    with pytest.raises(RegistryError, match=rf"version 1 was the champion, and the {what} was deleted in MLflow"):
        load_champion(pipeline.settings, "letters")

    line = assign(pipeline.settings, "letters", version="2", reason="the other one was deleted by mistake")
    assert line == f"{NAME}@champion: version 2 is the champion, version 1 was"
    assert run(pipeline)["verdict"] == "unchanged"
    assert run(pipeline, knows=24, largest_slice_loss=1.0)["alias_after"] == "3"


def test_only_production_moves_the_champion(pipeline: Pipeline) -> None:
    run(pipeline, knows=14)
    pipeline.write_classifier("adapted", knows=24)
    register(pipeline.register_job(starts=["adapted"]))
    experiment = pipeline.settings.model_copy(update={"production": False})
    job = pipeline.promote_job(largest_slice_loss=1.0).model_copy(update={"registry": experiment})
    decision = json.loads(promote(job).read_text())["decisions"]["letters"]
    assert (decision["verdict"], decision["against"], decision["alias_before"]) == (
        "promote",
        "most frequent class",
        None,
    )
    registry = connect(pipeline.settings)
    assert champion(pipeline) == "1"
    best = registry.alias(NAME, "best")
    assert best is not None and best.number == "2"
    assert labels_of(load_champion(experiment, "letters"), "w") == ["y"]
    assert labels_of(load_champion(pipeline.settings, "letters"), "w") != ["y"]


def test_a_rollback_without_a_champion_is_an_error(pipeline: Pipeline) -> None:
    with pytest.raises(RegistryError, match=rf"^{NAME}: has no champion to roll back$"):
        rollback(pipeline.settings, "letters")
    with pytest.raises(RegistryError, match=rf"^{NAME}@champion at sqlite.*: no version; run the stages register and"):
        load_champion(pipeline.settings, "letters")
    assert issubclass(RegistryError, HeadstartError)


def test_predictions_are_matched_by_label_name(pipeline: Pipeline) -> None:
    facts = TaskFacts("letters", "classification", ["new", "z", "x"], {"test": "t"})
    split = Split([("a",), ("b",), ("c",)], [np.array([number]) for number in (2, 0, 1)], [None] * 3)
    rows, statistics = scored_rows(facts, split, {"m": pipeline.classifier("adapted")})
    # a -> x, b -> y (absent from this test split), c -> z
    assert rows.scoring.scores(statistics["m"].sum(0))["accuracy"] == pytest.approx(2 / 3)
    classes = rows.scoring.classes(statistics["m"].sum(0))
    assert {name: found["recall"] for name, found in classes.items()} == {"new": 0, "z": 1, "x": 1, "y": 0}


def test_latency_is_measured_per_row_in_several_passes() -> None:
    calls: list[Fields] = []

    class Recorded:
        kind = "classification"
        labels = LABELS

        def answer(self, rows: Sequence[Fields], batch_size: int = 64) -> list[np.ndarray]:
            assert len(rows) == batch_size == 1
            calls.append(rows[0])
            return [np.array([1.0, 0.0, 0.0], dtype=np.float32)]

    rows = [(str(number),) for number in range(8)]
    measured = measure_latency(Recorded(), rows, conditions="here")
    assert calls == [*rows[:WARM_UP], *rows * ROUNDS]
    assert measured.p99 >= measured.p50 > 0
    assert (len(measured.rounds), measured.conditions) == (ROUNDS, "here")
    assert spaced(rows, 3) == [("0",), ("3",), ("7",)]
    assert spaced([], 3) == []
