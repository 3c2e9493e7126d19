"""Benefits, label efficiency and negative transfer from an evaluation with given numbers."""

import json
from typing import Any

import pytest

from components.core.artifacts import writing
from components.core.errors import ArtifactError
from components.studies.benefits import benefits_of_transfer, label_efficiency, negative_transfer


def interval(mean: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - 0.02, "high": mean + 0.02}


def system(name: str, family: str, start: str, scores: tuple[float, float]) -> dict[str, Any]:
    cells = [
        {"budget": budget, "labels": float(budget), "scores": {"macro_f1": interval(score), "accuracy": interval(0.9)}}
        for budget, score in zip((5, 20), scores, strict=True)
    ]
    curve = [{"epoch": 0, "macro_f1": 0.4}, {"epoch": 1, "macro_f1": 0.5}]
    return {"system": name, "family": family, "start": start, "budgets": cells, "training_curve": curve}


def benefit(difference: float, *, holds: bool) -> dict[str, Any]:
    return {
        "transferred": interval(0.6),
        "scratch": interval(0.6 - difference),
        "difference": interval(difference),
        "holds": holds,
    }


def needed(labels: float | None, low: float | None, high: float | None) -> dict[str, Any]:
    """What a rival needs for the score with 5 labels."""
    ratio = {"mean": labels, "low": low, "high": high, "most": 20.0}
    return {
        "least": 5.0,
        "most": 20.0,
        "needed": {"labels": labels, "low": low, "high": high},
        "ratio": {name: None if value is None else value / 5 for name, value in ratio.items()},
    }


def part(kind: str, name: str, gain: float, *, hurts: bool) -> dict[str, Any]:
    actual = {"score": interval(0.6 + gain), "difference": interval(gain), "hurts": hurts}
    return {"part": kind, "name": name, "rows": 40, "scratch": interval(0.6), "starts": {"adapted": actual}}


@pytest.fixture
def evaluation() -> dict[str, Any]:
    of_labels = {
        "start": benefit(0.25, holds=True),
        "slope": benefit(-0.01, holds=False),
        "asymptote": benefit(0.1, holds=True),
    }
    against = {
        "ulmfit-scratch": needed(10.0, 7.5, 15.0),
        "tfidf-words": needed(None, 12.0, None),
    }
    parts = [
        part("all", "", 0.2, hurts=False),
        part("class", "map", -0.1, hurts=True),
        part("class", "list", 0.3, hurts=False),
        part("slice", "s3", 0.0, hurts=False),
    ]
    return {
        "main": "macro_f1",
        "headline": "With 5 labels a class, transfer was worth 2 times the labels.",
        "transfer": {"ulmfit": [{"budget": 5, "parts": parts[:1]}, {"budget": 20, "parts": parts}]},
        "unit": "labels a class",
        "systems": [
            system("tfidf-words", "baseline", "none", (0.45, 0.58)),
            system("ulmfit-scratch", "ulmfit", "scratch", (0.3, 0.5)),
            system("ulmfit-adapted", "ulmfit", "adapted", (0.55, 0.6)),
        ],
        "benefits": {"ulmfit": {"adapted": {"training": of_labels, "labels": of_labels}}},
        "label_efficiency": {"ulmfit": {"adapted": [{"labels": 5.0, "score": 0.55, "against": against}]}},
    }


def test_the_lead_names_the_benefits_that_hold(outputs, write_evaluation, evaluation):
    write_evaluation("aws-type", evaluation)
    actual = benefits_of_transfer(outputs)
    assert actual.chapter.lead == [
        "aws-type: over scratch, ulmfit-adapted has a higher start +0.250, asymptote +0.100 against labels; "
        "no higher slope."
    ]
    assert actual.numbers == {"aws-type": evaluation["benefits"]}
    (table,) = actual.chapter.tables
    assert table.rows[4] == [
        "ulmfit-adapted", "labels", "slope", "0.600 [0.580, 0.620]", "0.610 [0.590, 0.630]", "-0.010 [-0.030, 0.010]",
        "not clear",
    ]  # fmt: skip
    assert len(table.rows) == 6 and table.rows[0][1] == "epochs" and table.rows[0][-1] == ""
    svg = actual.chapter.figures[0].svg
    assert "ulmfit-adapted" in svg and "tfidf-words" not in svg and "macro F1" in svg
    assert list(outputs.read) == ["evaluation/aws-type"]


def test_labels_that_rivals_need(outputs, write_evaluation, evaluation):
    write_evaluation("aws-type", evaluation)
    actual = label_efficiency(outputs)
    assert actual.chapter.lead == [
        "aws-type: With 5 labels a class, transfer was worth 2 times the labels.",
        "aws-type: with 5 labels a class ulmfit-adapted reaches 0.550; from scratch that takes 10 [7.5, 15], "
        "2 [1.5, 3] times as many.",
    ]
    assert actual.chapter.tables[0].rows == [
        ["ulmfit-adapted", "5", "0.550", "ulmfit-scratch", "10 [7.5, 15]", "2 [1.5, 3]"],
        [
            "ulmfit-adapted",
            "5",
            "0.550",
            "tfidf-words",
            "more than 20 [12, more than 20]",
            "more than 4 [2.4, more than 4]",
        ],
    ]
    curves, ranges = actual.chapter.figures
    assert "tfidf-words" in curves.svg and "ulmfit-adapted, 5" in ranges.svg
    assert actual.numbers["aws-type"]["label_efficiency"] == evaluation["label_efficiency"]


def test_negative_transfer_and_forgetting(outputs, write_evaluation, evaluation):
    write_evaluation("aws-type", evaluation)
    with writing(outputs.out / "encoder" / "ulmfit" / "adapted", kind="encoder") as draft:
        metrics = {"general_before_perplexity_per_word": 50.0, "general_after_perplexity_per_word": 200.0}
        (draft.path / "metrics.json").write_text(json.dumps(metrics))
    actual = negative_transfer(outputs)
    assert actual.chapter.lead == ["aws-type, 20 labels a class: ulmfit adapted hurts on class map."]
    parts, forgetting = actual.chapter.tables
    assert parts.columns == ["part", "rows", "scratch", "adapted", "difference", ""]
    assert parts.rows[1] == [
        "class map", "40", "0.600 [0.580, 0.620]", "0.500 [0.480, 0.520]", "-0.100 [-0.120, -0.080]", "hurts",
    ]  # fmt: skip
    assert forgetting.rows == [["ulmfit", "perplexity per word", "50.00", "200.00", "4.00"]]
    assert actual.numbers["forgetting"]["ulmfit"]["times"] == 4
    assert "class map" in actual.chapter.figures[0].svg
    assert list(outputs.read) == ["evaluation/aws-type", "encoder/ulmfit/adapted"]

    evaluation["transfer"]["ulmfit"][1]["parts"][1]["starts"]["adapted"]["hurts"] = False
    write_evaluation("aws-type", evaluation)
    lead = negative_transfer(outputs).chapter.lead
    assert lead == ["aws-type, 20 labels a class: ulmfit adapted hurts on none of 3 classes and slices."]


@pytest.mark.parametrize(
    ("study", "needs"),
    [
        (benefits_of_transfer, r"no family has both .* run.starts must name scratch"),
        (negative_transfer, r"no family has both .* run.starts must name scratch"),
        (label_efficiency, r"no transferred system .* run.starts must name pretrained"),
    ],
)
def test_an_evaluation_without_transferred_systems(outputs, write_evaluation, study, needs):
    write_evaluation("aws-type", {"systems": [], "benefits": {}, "label_efficiency": {}, "transfer": {}})
    with pytest.raises(ArtifactError, match=f"aws-type: {needs}"):
        study(outputs)
