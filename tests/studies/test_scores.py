"""Benefits and label efficiency from an evaluation with given numbers."""

from __future__ import annotations

from typing import Any

import pytest

from components.errors import ArtifactError
from components.studies import benefits, label_efficiency
from components.studies.outputs import Outputs


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


@pytest.fixture
def evaluation() -> dict[str, Any]:
    of_labels = {
        "start": benefit(0.25, holds=True),
        "slope": benefit(-0.01, holds=False),
        "asymptote": benefit(0.1, holds=True),
    }
    against = {
        "ulmfit-scratch": {"labels": 21.5, "ratio": 4.3, "at_least_ratio": None},
        "tfidf-words": {"labels": None, "ratio": None, "at_least_ratio": 4.0},
    }
    return {
        "main": "macro_f1",
        "unit": "labels a class",
        "systems": [
            system("tfidf-words", "baseline", "none", (0.45, 0.58)),
            system("ulmfit-scratch", "ulmfit", "scratch", (0.3, 0.5)),
            system("ulmfit-adapted", "ulmfit", "adapted", (0.55, 0.6)),
        ],
        "benefits": {"ulmfit": {"adapted": {"training": of_labels, "labels": of_labels}}},
        "label_efficiency": {"ulmfit": {"adapted": [{"labels": 5.0, "score": 0.55, "against": against}]}},
    }


def test_the_lead_names_the_benefits_that_hold(
    outputs: Outputs, write_evaluation: Any, evaluation: dict[str, Any]
) -> None:
    write_evaluation("aws-type", evaluation)
    found = benefits.run(outputs)
    assert found.chapter.lead == [
        "aws-type: over scratch, ulmfit-adapted has a higher start +0.250, asymptote +0.100 against labels; "
        "no higher slope."
    ]
    assert found.numbers == {"aws-type": evaluation["benefits"]}
    (table,) = found.chapter.tables
    assert table.rows[4] == [
        "ulmfit-adapted", "labels", "slope", "0.600 [0.580, 0.620]", "0.610 [0.590, 0.630]", "-0.010 [-0.030, 0.010]",
        "not clear",
    ]  # fmt: skip
    assert len(table.rows) == 6 and table.rows[0][1] == "epochs" and table.rows[0][-1] == ""
    svg = found.chapter.figures[0].svg
    assert "ulmfit-adapted" in svg and "tfidf-words" not in svg and "macro F1" in svg
    assert list(outputs.read) == ["evaluation/aws-type"]


def test_benefits_with_one_label_budget_are_those_of_training(
    outputs: Outputs, write_evaluation: Any, evaluation: dict[str, Any]
) -> None:
    del evaluation["benefits"]["ulmfit"]["adapted"]["labels"]
    write_evaluation("aws-type", evaluation)
    found = benefits.run(outputs)
    assert found.chapter.lead == [
        "aws-type: over scratch, ulmfit-adapted has a higher start +0.250, asymptote +0.100 against epochs; "
        "no higher slope."
    ]
    assert {row[1] for row in found.chapter.tables[0].rows} == {"epochs"}


def test_labels_that_rivals_need(outputs: Outputs, write_evaluation: Any, evaluation: dict[str, Any]) -> None:
    write_evaluation("aws-type", evaluation)
    found = label_efficiency.run(outputs)
    assert found.chapter.lead == [
        "aws-type: with 5 labels a class ulmfit-adapted reaches 0.550; from scratch that takes 21.5, 4.30 times as "
        "many."
    ]
    assert found.chapter.tables[0].rows == [
        ["ulmfit-adapted", "5", "0.550", "ulmfit-scratch", "21.5", "4.30"],
        ["ulmfit-adapted", "5", "0.550", "tfidf-words", "more than available", "more than 4"],
    ]
    assert "tfidf-words" in found.chapter.figures[0].svg


def test_large_numbers_of_labels_have_all_digits(
    outputs: Outputs, write_evaluation: Any, evaluation: dict[str, Any]
) -> None:
    evaluation["label_efficiency"]["ulmfit"]["adapted"][0] |= {
        "labels": 2000.0,
        "against": {"ulmfit-scratch": {"labels": 12345.6, "ratio": 6.1728, "at_least_ratio": None}},
    }
    write_evaluation("aws-type", evaluation)
    found = label_efficiency.run(outputs)
    assert found.chapter.tables[0].rows == [["ulmfit-adapted", "2,000", "0.550", "ulmfit-scratch", "12,346", "6.17"]]
    assert "with 2,000 labels a class" in found.chapter.lead[0] and "takes 12,346, 6.17" in found.chapter.lead[0]


def test_an_evaluation_without_transferred_systems(outputs: Outputs, write_evaluation: Any) -> None:
    write_evaluation("aws-type", {"systems": [], "benefits": {}, "label_efficiency": {}})
    with pytest.raises(ArtifactError, match=r"aws-type: no family has both .* run.starts must name scratch"):
        benefits.run(outputs)
    with pytest.raises(ArtifactError, match=r"aws-type: no transferred system .* run.starts must name pretrained"):
        label_efficiency.run(outputs)
