"""The stage `promote`: verdicts, and what is recorded of them."""

from __future__ import annotations

import json

import pytest

from components.core.errors import ArtifactError, ConfigError
from components.registry.champion import load_champion
from components.registry.contest import promote
from components.registry.explain import Evaluated
from components.registry.ledger import Ledger, rollback
from tests.registry.promoting import NAME, champion, champions, events, labels_of, must_not_be_called, run


def test_the_first_model_is_promoted_and_predicts(pipeline):
    decision = run(pipeline)

    assert decision["verdict"] == "promote"
    assert decision["against"] == "most frequent class"
    assert decision["candidate_score"] == pytest.approx(22 / 26)
    assert (decision["champion"], decision["alias_after"]) == (None, "1")
    assert decision["candidate"]["name"] == NAME
    assert decision["candidate"]["latency_ms"].keys() == {"median", "rounds", "conditions"}
    assert decision["test"]["rows"] == 260
    assert champion(pipeline) == "1"
    assert events(pipeline) == ["decision", "change"]

    loaded = pipeline.champion()
    assert labels_of(loaded, "a", "bb", "c", "d", "z") == ["x", "y", "z", "x", "z"]


def test_a_better_challenger_replaces_the_champion_and_rollback_restores_it(pipeline):
    run(pipeline, knows=16)
    decision = run(pipeline, knows=24)

    assert decision["verdict"] == "promote"
    assert decision["gain"] == pytest.approx(8 / 26)
    assert (decision["champion"]["version"], decision["candidate"]["version"]) == ("1", "2")
    assert champion(pipeline) == "2"
    assert champions(pipeline) == ["1", "2"]

    lines = rollback(pipeline.settings, "letters")
    assert lines == [f"{NAME}@champion: version 1 restored, version 2 rolled back"]
    assert champion(pipeline) == "1"
    change = Ledger(pipeline.registry).state(NAME).last
    assert change is not None
    assert (change["action"], change["before"], change["after"]) == ("rollback", "2", "1")
    assert champions(pipeline) == ["1"]

    # The next run has the same challenger; a rolled-back version is not promoted again.
    for _ in range(2):
        decision = run(pipeline)
        assert decision["verdict"] == "reject"
        assert decision["reasons"][0].startswith(f"{NAME}/2 was rolled back")
    assert events(pipeline)[-2:] == ["change", "decision"]
    assert champion(pipeline) == "1"


def test_the_same_content_changes_nothing_and_is_not_scored(pipeline, monkeypatch):
    run(pipeline)
    before = events(pipeline)
    monkeypatch.setattr("components.registry.contest.load_version", must_not_be_called)
    monkeypatch.setattr("components.registry.contest.read_split", must_not_be_called)
    decision = run(pipeline)

    assert decision["verdict"] == "unchanged"
    assert decision["reasons"] == [f"{NAME}/1 is already the champion"]
    assert events(pipeline) == before


def test_a_decision_with_the_same_inputs_is_not_repeated(pipeline, monkeypatch):
    run(pipeline, knows=24)
    first = run(pipeline, knows=16)
    before = events(pipeline)
    with monkeypatch.context() as patch:
        patch.setattr("components.registry.contest.load_version", must_not_be_called)
        assert run(pipeline) == first
    assert events(pipeline) == before

    # Another rule or test split requires a new decision.
    assert run(pipeline, least_gain=0.01)["reasons"][0] == "not better by more than 0.01"
    pipeline.write_examples(rows=234)
    assert run(pipeline)["test"]["rows"] == 234


def test_a_verdict_without_a_comparison_is_not_final(pipeline):
    pipeline.registered(starts=["adapted"])
    models = pipeline.root / "mlruns" / "models"
    models.rename(pipeline.root / "elsewhere")
    decision = run(pipeline)
    assert decision["verdict"] == "reject"
    assert decision["reasons"][0].startswith(f"{NAME}/1 has no accuracy: ")

    (pipeline.root / "elsewhere").rename(models)
    assert run(pipeline)["verdict"] == "promote"


def test_the_first_champion_has_to_beat_the_best_baseline(pipeline):
    pipeline.write_baselines(words=12, pairs=24)
    decision = run(pipeline)  # knows 22 letters of 26
    assert decision["verdict"] == "reject"
    assert decision["against"] == "baseline pairs"
    assert decision["champion_score"] == pytest.approx(25 / 26)  # the average of its seeds
    assert champion(pipeline) is None

    pipeline.write_baselines(words=3, pairs=8)
    decision = run(pipeline, confidence=0.9)
    assert (decision["verdict"], decision["against"]) == ("promote", "baseline pairs")
    assert decision["recipe"] == "", "the evaluation compares no recipes"

    # A challenger of a champion is not compared with the baselines.
    pipeline.write_baselines(words=26)
    assert run(pipeline, knows=16)["against"] == f"{NAME}/1"


def test_clusters_of_the_examples_decide_the_interval(pipeline):
    run(pipeline, knows=16)
    decision = run(pipeline, knows=20)
    assert (decision["verdict"], decision["units"], decision["count"]) == ("promote", "rows", 260)

    # Ten rows of each letter are one piece of evidence: 4 of 26 letters are too few.
    pipeline.write_examples(group="letter")
    pipeline.write_classifier("adapted", knows=20)
    rollback(pipeline.settings, "letters")
    pipeline.write_classifier("adapted", knows=21)
    decision = run(pipeline, knows=21, confidence=0.99)
    assert (decision["verdict"], decision["units"], decision["count"]) == ("inconclusive", "clusters", 26)
    assert "clusters with about" in decision["reasons"][0]


def test_distinct_comparisons_on_test_rows_are_counted(pipeline):
    assert run(pipeline, knows=20)["test_uses"] == 1
    second = run(pipeline, knows=19)
    assert (second["test_uses"], second["alpha"]) == (2, pytest.approx(0.05 / 6))
    # The same comparison by another rule is no new use of the test rows; another metric is.
    assert run(pipeline, least_gain=0.01)["test_uses"] == 2
    assert run(pipeline, metric="macro_f1")["test_uses"] == 3
    # Another version of the test rows without a new row.
    pipeline.write_examples(rows=234)
    assert run(pipeline, knows=17)["test_uses"] == 4


def test_unknown_slices_of_the_rule_are_refused(pipeline):
    with pytest.raises(ConfigError, match=r"promote.slices: no test row is in a slice 'earli'.*early"):
        run(pipeline, slices={"earli": 0.02})
    run(pipeline, knows=16)
    decision = run(pipeline, knows=24, slices={"early": 0.02})
    assert decision["verdict"] == "promote"
    assert [(change["name"], change["named"]) for change in decision["slices"]] == [("early", True), ("late", False)]


def test_only_production_moves_the_champion(pipeline):
    run(pipeline, knows=14)
    pipeline.write_classifier("adapted", knows=24)
    pipeline.registered(starts=["adapted"])
    experiment = pipeline.settings.model_copy(update={"production": False})
    job = pipeline.promote_job().model_copy(update={"registry": experiment})
    decision = json.loads(promote(job).read_text())["decisions"]["letters"]
    assert (decision["verdict"], decision["against"], decision["champion"]) == (
        "promote",
        "most frequent class",
        None,
    )
    registry = pipeline.registry
    assert champion(pipeline) == "1"
    best = registry.alias(NAME, "best")
    assert best is not None and best.number == "2"
    assert labels_of(load_champion(experiment, "letters"), "w") == ["y"]
    assert labels_of(pipeline.champion(), "w") != ["y"]


def test_unreadable_baselines_are_inconclusive(pipeline):
    pipeline.write_baselines(words=12)
    pipeline.write_examples(rows=234)
    decision = run(pipeline, knows=22)
    assert decision["verdict"] == "inconclusive"
    assert decision["reasons"][0].startswith("the best baseline could not be scored: ")
    assert "made from another version of the test rows; run its stage again" in decision["reasons"][0]


def test_what_the_evaluation_says_stands_beside_the_decision(pipeline):
    pipeline.write_classifier("adapted", knows=20)
    pipeline.write_baselines(words=3, pairs=8)
    folder = pipeline.out / "evaluation" / "letters"
    path = folder / "evaluation.json"

    def part(kind, name, *, hurts):
        change = {"mean": -0.462, "low": -0.522, "high": -0.402}
        start = {"score": {"mean": 0.538}, "difference": change, "hurts": hurts}
        return {"part": kind, "name": name, "rows": 130, "scratch": {"mean": 1.0}, "starts": {"adapted": start}}

    parts = [part("all", "", hurts=False), part("class", "x", hurts=False), part("slice", "late", hurts=True)]
    recipes = {"pairs": {"ulmfit-adapted": {"mean": -0.4, "low": -0.7, "high": 0.1}}}
    # Of the largest budget, which is the last one.
    content = json.loads(path.read_text()) | {
        "seeds": [0, 1],
        "transfer": {"ulmfit": [{"parts": [part("class", "y", hurts=True)]}, {"parts": parts}]},
        "differences": {"2": {"pairs": {"ulmfit-adapted": dict.fromkeys(("mean", "low", "high"), 0.0)}}, "8": recipes},
    }
    path.write_text(json.dumps(content))
    decision = run(pipeline)
    assert decision["warnings"] == [
        "transfer hurts on slice 'late' (130 rows): 0.538 against 1.000 from scratch, difference -0.462 "
        "[-0.522, -0.402]",
    ]
    sentence = "as recipes, ulmfit-adapted minus pairs: accuracy +0.4000 [-0.1000, +0.7000], mean over 2 seeds"
    assert (decision["verdict"], decision["recipe"]) == ("promote", sentence)
    assert Evaluated.read(folder).recipe_difference("ulmfit-adapted", "ulmfit-adapted") == "", "one recipe"
    nothing = Evaluated.read(folder / "nowhere")
    assert (nothing.recipe_difference("ulmfit-adapted", "pairs"), nothing.warnings("ulmfit-adapted")) == ("", [])
    path.write_text(json.dumps(content | {"transfer": {}}))
    assert Evaluated.read(folder).warnings("ulmfit-adapted") == []
    for text, problem in (("{", "cannot be read"), (json.dumps({"systems": content["systems"]}), "damaged")):
        path.write_text(text)
        with pytest.raises(ArtifactError, match=rf"evaluation.json: {problem} .* run the stage evaluate again"):
            Evaluated.read(folder)
