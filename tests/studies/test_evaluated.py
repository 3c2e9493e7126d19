"""Systems, benefits, label efficiency and negative transfer from an evaluation with given numbers."""

import json
from typing import Any

import pytest

from components.core.artifacts import writing
from components.core.errors import ArtifactError, ConfigError
from components.studies.frame import Outputs
from tests.reporting.test_report import interval, system
from tests.studies.conftest import findings, fits


def benefit(difference: float, *, holds: bool) -> dict[str, Any]:
    return {
        "transferred": interval(0.6),
        "scratch": interval(0.6 - difference),
        "difference": interval(difference),
        "higher": holds,
    }


def needed(against: str, labels: float | None, low: float | None, high: float | None) -> dict[str, Any]:
    """What a rival needs for the score with 5 labels."""
    needs = {"mean": labels, "low": low, "high": high}
    ratio = {name: None if value is None else value / 5 for name, value in needs.items()}
    row = {"system": "ulmfit-adapted", "budget": 5, "labels": 5.0, "score": 0.55, "against": against}
    return row | {"least": 5.0, "most": 20.0, "needs": needs, "ratio": ratio}


def part(kind: str, name: str, gain: float, *, hurts: bool) -> dict[str, Any]:
    actual = {"score": interval(0.6 + gain), "difference": interval(gain), "hurts": hurts}
    actual["corrected"] = interval(gain - 0.01)
    return {"part": kind, "name": name, "rows": 40, "scratch": interval(0.6), "starts": {"adapted": actual}}


@pytest.fixture
def evaluation() -> dict[str, Any]:
    of_labels = {
        "start": benefit(0.25, holds=True),
        "slope": benefit(-0.01, holds=False),
        "asymptote": benefit(0.1, holds=True),
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
        "budgets": [5, 20],
        "differences": {
            "20": {
                "tfidf-words": {"ulmfit-scratch": interval(0.08), "ulmfit-adapted": interval(-0.01)},
                "ulmfit-scratch": {"ulmfit-adapted": interval(-0.1)},
            }
        },
        "systems": [
            system("tfidf-words", "baseline", "none", [0.45, 0.58]),
            system("ulmfit-scratch", "ulmfit", "scratch", [0.3, 0.5]),
            system("ulmfit-adapted", "ulmfit", "adapted", [0.55, 0.6]),
        ],
        "benefits": [
            {"system": "ulmfit-adapted", "against": axis, "benefit": name} | of
            for axis in ("epochs", "labels")
            for name, of in of_labels.items()
        ],
        "label_efficiency": [needed("ulmfit-scratch", 10.0, 7.5, 15.0), needed("tfidf-words", None, 12.0, None)],
    }


def test_the_lead_names_the_benefits_that_hold(outputs, write_evaluation, evaluation):
    write_evaluation("aws-type", evaluation)
    actual = findings(outputs, "benefits")
    fits(actual, "benefits")
    (lead,) = actual.chapter.lead
    assert lead.startswith(
        "aws-type (macro F1): difference is clearly not 0 for ulmfit-adapted, epochs, start 0.250 [0.2"
    )
    assert lead.count("; ") == 3 and "slope" not in lead
    (table,) = actual.chapter.tables
    assert table.rows[4] == [
        "ulmfit-adapted", "labels", "slope", "0.600 [0.580, 0.620]", "0.610 [0.590, 0.630]", "-0.010 [-0.030, 0.010]",
        "",
    ]  # fmt: skip
    assert len(table.rows) == 6 and table.rows[0][1] == "epochs" and table.rows[0][-1] == "yes"
    svg = actual.chapter.figures[0].svg
    assert "ulmfit-adapted" in svg and "macro F1" in svg
    assert list(outputs.read) == ["evaluation/aws-type"]


def test_labels_that_rivals_need(outputs, write_evaluation, evaluation):
    write_evaluation("aws-type", evaluation)
    actual = findings(outputs, "label-efficiency")
    fits(actual, "label-efficiency")
    assert actual.chapter.lead[0] == "aws-type: With 5 labels a class, transfer was worth 2 times the labels."
    assert "ratio is clearly not 1 for ulmfit-adapted, 5, ulmfit-scratch 2 [1.5, 3]" in actual.chapter.lead[1]
    assert actual.chapter.tables[0].rows == [
        ["ulmfit-adapted", "5", "0.550", "ulmfit-scratch", "10 [7.5, 15]", "2 [1.5, 3]"],
        ["ulmfit-adapted", "5", "0.550", "tfidf-words", "inf [12, inf]", "inf [2.4, inf]"],
    ]
    curves, ranges = actual.chapter.figures
    assert "tfidf-words" in curves.svg and "ulmfit-adapted, 5, " in ranges.svg
    assert actual.numbers["aws-type"][1]["needs"] == {"mean": None, "low": 12.0, "high": None}


def test_negative_transfer(outputs, write_evaluation, evaluation):
    write_evaluation("aws-type", evaluation)
    actual = findings(outputs, "negative-transfer")
    fits(actual, "negative-transfer")
    (lead,) = actual.chapter.lead
    assert lead.startswith(
        "aws-type at 20 labels a class: corrected is clearly not 0 for ulmfit-adapted, all rows 0.190"
    )
    assert "class map -0.110 [-0.130, -0.090]" in lead and "slice s3" not in lead
    (parts,) = actual.chapter.tables
    assert parts.rows[1] == [
        "ulmfit-adapted", "class map", "40", "0.600 [0.580, 0.620]", "0.500 [0.480, 0.520]", "-0.100 [-0.120, -0.080]",
        "-0.110 [-0.130, -0.090]", "yes",
    ]  # fmt: skip
    assert "class map" in actual.chapter.figures[0].svg


@pytest.mark.parametrize(
    ("study", "needs"),
    [
        ("benefits", r"no family has both .* run.starts must name scratch"),
        ("negative-transfer", r"no family has both .* run.starts must name scratch"),
        ("label-efficiency", r"no transferred system .* run.starts must name pretrained"),
        ("systems", "no system was evaluated"),
    ],
)
def test_an_evaluation_without_transferred_systems(outputs, write_evaluation, study, needs):
    write_evaluation("aws-type", {"systems": [], "benefits": [], "label_efficiency": [], "transfer": {}})
    with pytest.raises(ArtifactError, match=f"aws-type: {needs}"):
        findings(outputs, study)


@pytest.fixture
def sizes(outputs: Outputs, write_evaluation: Any, evaluation: dict[str, Any]) -> Outputs:
    """Encoders of 2,000,000 parameters, adapted and from scratch."""
    for start, size in (("adapted", 2_000_000), ("scratch", 90_000)):
        with writing(outputs.out / "encoder" / "ulmfit" / start, kind="encoder") as draft:
            (draft.path / "metrics.json").write_text(json.dumps({"parameters": size, "perplexity_per_word": 1234.5}))
    write_evaluation("aws-type", evaluation)
    return outputs


def test_all_systems_and_ties(sizes, write_evaluation, evaluation):
    chapter = findings(sizes, "systems").chapter
    assert chapter.tables[0].columns[-2:] == ["20 labels a class", "ulmfit-adapted minus it, 20 labels a class"]
    assert chapter.tables[0].rows == [
        ["tfidf-words", "", "", "0.450 [0.430, 0.470]", "0.580 [0.560, 0.600]", "0.010 [-0.010, 0.030]"],
        ["ulmfit-scratch", "90,000", "1,234.5", "0.300 [0.280, 0.320]", "0.500 [0.480, 0.520]", "0.100 [0.080, 0.120]"],
        ["ulmfit-adapted", "2,000,000", "1,234.5", "0.550 [0.530, 0.570]", "0.600 [0.580, 0.620]", ""],
    ]
    assert chapter.lead == [
        "aws-type (macro F1): 20 labels a class is highest for ulmfit-adapted: 0.600 [0.580, 0.620]."
    ]
    assert len(chapter.figures) == 1 and "tfidf-words" in chapter.figures[0].svg
    text = json.dumps(evaluation).replace('"20"', '"100"').replace(": 20,", ": 100,").replace("20]", "100]")
    write_evaluation("aws-type", json.loads(text))
    fits(findings(sizes, "systems"), "systems")


def test_a_system_without_the_largest_budget(sizes, write_evaluation, evaluation):
    evaluation["systems"][0]["budgets"].pop()
    evaluation["budgets"][1] = evaluation["systems"][1]["budgets"][1]["budget"] = -1
    evaluation["systems"][2]["budgets"][1]["budget"] = -1
    evaluation["differences"] = {}
    write_evaluation("aws-type", evaluation)
    chapter = findings(sizes, "systems").chapter
    assert chapter.tables[0].rows[0] == ["tfidf-words", "", "", "0.450 [0.430, 0.470]", "", ""]
    assert chapter.lead == ["aws-type (macro F1): all labels is highest for ulmfit-adapted: 0.600 [0.580, 0.620]."]


def test_sizes_of_a_family(sizes):
    actual = findings(sizes, "systems", family="ulmfit", system="ulmfit-scratch")
    assert [row["system"] for row in actual.numbers["aws-type (macro F1)"]] == ["ulmfit-scratch", "ulmfit-adapted"]
    assert actual.chapter.tables[0].rows[1][-1] == "-0.100 [-0.120, -0.080]"
    assert [row[1] for row in actual.chapter.tables[0].rows] == ["90,000", "2,000,000"]
    with pytest.raises(ConfigError, match="--system: unknown system 'ulmfit-adaptd'; did you mean 'ulmfit-adapted'"):
        findings(sizes, "systems", system="ulmfit-adaptd")
