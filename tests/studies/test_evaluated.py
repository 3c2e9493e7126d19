"""Systems, benefits, label efficiency and negative transfer from an evaluation with given numbers."""

import json
from typing import Any

import pytest

from components.core.artifacts import writing
from components.core.errors import ArtifactError, ConfigError
from components.studies.frame import Outputs
from tests.reporting.test_report import interval, system
from tests.studies.conftest import findings, fits

LAST = "20 labels a class"


def benefit(difference: float, *, holds: bool) -> dict[str, Any]:
    values = {"transferred": 0.6, "scratch": 0.6 - difference, "difference": difference}
    return {name: interval(value) for name, value in values.items()} | {"higher": holds}


def needed(against: str, labels: float | None, low: float | None, high: float | None) -> dict[str, Any]:
    """What a rival needs for the score with 5 labels."""
    needs = {"mean": labels, "low": low, "high": high}
    ratio = {name: None if value is None else value / 5 for name, value in needs.items()}
    row = {"system": "ulmfit-adapted", "budget": 5, "labels": 5.0, "score": 0.55, "against": against}
    return row | {"least": 5.0, "most": 20.0, "needs": needs, "ratio": ratio}


def part(kind: str, name: str, gain: float, *, hurts: bool = False) -> dict[str, Any]:
    values = {"score": 0.6 + gain, "difference": gain, "corrected": gain - 0.01}
    actual: dict[str, Any] = {key: interval(value) for key, value in values.items()} | {"hurts": hurts}
    return {"part": kind, "name": name, "rows": 40, "scratch": interval(0.6), "starts": {"adapted": actual}}


def evaluation() -> dict[str, Any]:
    differences = {"start": (0.25, True), "slope": (-0.01, False), "asymptote": (0.1, True)}
    parts = [part("all", "", 0.2), part("class", "map", -0.1, hurts=True), part("class", "list", 0.3)]
    parts.append(part("slice", "s3", 0.0))
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
            {"system": "ulmfit-adapted", "against": axis, "benefit": name} | benefit(of, holds=holds)
            for axis in ("epochs", "labels")
            for name, (of, holds) in differences.items()
        ],
        "label_efficiency": [needed("ulmfit-scratch", 10.0, 7.5, 15.0), needed("tfidf-words", None, 12.0, None)],
    }


@pytest.fixture
def evaluated(outputs: Outputs, write_evaluation: Any) -> Outputs:
    """An evaluated task, and encoders with their sizes."""
    for start, size in (("adapted", 2_000_000), ("scratch", 90_000)):
        with writing(outputs.out / "encoder" / "ulmfit" / start, kind="encoder") as draft:
            (draft.path / "metrics.json").write_text(json.dumps({"parameters": size, "perplexity_per_word": 1234.5}))
    write_evaluation("aws-type", evaluation())
    return outputs


#: Study -> (beginnings of its leading sentences, index and cells of a row, names in its figures).
SHOWN = {
    "benefits": (
        ["aws-type (macro F1): difference is clearly not 0 for ulmfit-adapted, epochs, start 0.250 [0.2"],
        (4, ["ulmfit-adapted", "labels", "slope", "0.600 [0.580, 0.620]", "0.610 [0.590, 0.630]",
             "-0.010 [-0.030, 0.010]", ""]),
        ["ulmfit-adapted", "macro F1"],
    ),
    "label-efficiency": (
        ["aws-type: With 5 labels a class, transfer was worth 2 times the labels.",
         "aws-type: ratio is clearly not 1 for ulmfit-adapted, 5, ulmfit-scratch 2 [1.5, 3]"],
        (1, ["ulmfit-adapted", "5", "0.550", "tfidf-words", "inf [12, inf]", "inf [2.4, inf]"]),
        ["tfidf-words", "ulmfit-adapted, 5, "],
    ),
    "negative-transfer": (
        [f"aws-type at {LAST}: corrected is clearly not 0 for ulmfit-adapted, all rows 0.190"],
        (1, ["ulmfit-adapted", "class map", "40", "0.600 [0.580, 0.620]", "0.500 [0.480, 0.520]",
             "-0.100 [-0.120, -0.080]", "-0.110 [-0.130, -0.090]", "yes"]),
        ["class map"],
    ),
    "systems": (
        [f"aws-type (macro F1): {LAST} is highest for ulmfit-adapted: 0.600 [0.580, 0.620]."],
        (1, ["ulmfit-scratch", "90,000", "1,234.5", "0.300 [0.280, 0.320]", "0.500 [0.480, 0.520]", "2.0 [1.0, 3.0]",
             "0.100 [0.080, 0.120]"]),
        ["tfidf-words"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("study", SHOWN)
def test_what_a_study_shows(evaluated, study):
    leads, (index, cells), drawn = SHOWN[study]
    actual = findings(evaluated, study)
    assert len(actual.chapter.lead) == len(leads)
    assert all(of.startswith(lead) for of, lead in zip(actual.chapter.lead, leads, strict=True)), actual.chapter.lead
    (table,) = actual.chapter.tables
    assert table.rows[index] == cells
    assert all(name in "".join(figure.svg for figure in actual.chapter.figures) for name in drawn)
    assert "evaluation/aws-type" in evaluated.read
    if study == "label-efficiency":
        assert actual.numbers["aws-type"][1]["needs"] == {"mean": None, "low": 12.0, "high": None}
    elif study != "systems":
        fits(actual, study)
        assert "slope" not in actual.chapter.lead[0] and "slice s3" not in actual.chapter.lead[0]


def test_rules_of_claims_read_the_columns_of_their_runs(evaluated, write_evaluation):
    for study, labels, unit in (("label-efficiency", 50, "labels a class"), ("systems", 100, "labels a class")):
        text = json.dumps(evaluation()).replace('"20"', f'"{labels}"').replace(": 20,", f": {labels},")
        write_evaluation("aws-type", json.loads(text.replace("20]", f"{labels}]").replace("labels a class", unit)))
        columns = {*findings(evaluated, study).chapter.tables[0].columns}
        assert {"system", unit} <= columns or f"ulmfit-adapted minus it, {labels} {unit}" in columns


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


def test_a_system_without_the_largest_budget(evaluated, write_evaluation):
    content = evaluation() | {"differences": {}}
    content["systems"][0]["budgets"].pop()
    for of in (content, *(each["budgets"][1] for each in content["systems"][1:])):
        of |= {"budgets": [5, -1]} if "budgets" in of else {"budget": -1}
    write_evaluation("aws-type", content)
    chapter = findings(evaluated, "systems").chapter
    assert chapter.tables[0].rows[0] == ["tfidf-words", "", "", "0.450 [0.430, 0.470]", "", "", ""]
    assert chapter.lead == ["aws-type (macro F1): all labels is highest for ulmfit-adapted: 0.600 [0.580, 0.620]."]


def test_sizes_of_a_family(evaluated):
    actual = findings(evaluated, "systems", family="ulmfit", system="ulmfit-scratch")
    assert [row["system"] for row in actual.numbers["aws-type (macro F1)"]] == ["ulmfit-scratch", "ulmfit-adapted"]
    assert actual.chapter.tables[0].rows[1][-1] == "-0.100 [-0.120, -0.080]"
    assert [row[1] for row in actual.chapter.tables[0].rows] == ["90,000", "2,000,000"]
    with pytest.raises(ConfigError, match="--system: unknown system 'ulmfit-adaptd'; did you mean 'ulmfit-adapted'"):
        findings(evaluated, "systems", system="ulmfit-adaptd")
