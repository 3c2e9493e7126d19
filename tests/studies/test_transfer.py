"""The worth of transfer and negative transfer from evaluations with given numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from components.artifacts import writing
from components.errors import ArtifactError
from components.studies import negative_transfer, worth
from components.studies.outputs import Outputs


def worth_entry(labels: float, needed: tuple[float | None, float | None, float | None]) -> dict[str, Any]:
    names = ("labels", "low", "high")
    return {
        "budget": int(labels),
        "labels": labels,
        "score": 0.5,
        "most": 20.0,
        "needed": dict(zip(names, needed, strict=True)),
        "ratio": {
            name: None if value is None else value / labels
            for name, value in zip(("mean", "low", "high"), needed, strict=True)
        },
    }


def bounds(mean: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - 0.01, "high": mean + 0.01}


def part(kind: str, name: str, gain: float, *, hurts: bool) -> dict[str, Any]:
    found = {"score": bounds(0.6 + gain), "difference": bounds(gain), "hurts": hurts}
    return {"part": kind, "name": name, "rows": 40, "scratch": bounds(0.6), "starts": {"adapted": found}}


@pytest.fixture
def evaluation() -> dict[str, Any]:
    parts = [
        part("all", "", 0.2, hurts=False),
        part("class", "map", -0.1, hurts=True),
        part("class", "list", 0.3, hurts=False),
        part("slice", "s3", 0.0, hurts=False),
    ]
    return {
        "main": "macro_f1",
        "titles": {"macro_f1": "macro F1"},
        "unit": "labels a class",
        "headline": "With 5 labels a class, transfer was worth 2 times the labels.",
        "worth": {
            "ulmfit": {
                "adapted": [
                    worth_entry(5.0, (10.0, 7.5, 15.0)),
                    worth_entry(10.0, (19.0, 12.0, None)),
                    worth_entry(20.0, (None, None, None)),
                ]
            }
        },
        "transfer": {"ulmfit": [{"budget": 5, "parts": parts[:1]}, {"budget": 20, "parts": parts}]},
    }


def test_what_the_transfer_was_worth(outputs: Outputs, write_evaluation: Any, evaluation: dict[str, Any]) -> None:
    write_evaluation("aws-type", evaluation)
    found = worth.run(outputs)
    assert found.chapter.lead == ["aws-type: With 5 labels a class, transfer was worth 2 times the labels."]
    assert found.chapter.tables[0].rows == [
        ["ulmfit-adapted", "5", "0.500", "10 [7.5, 15]", "2 [1.5, 3]"],
        ["ulmfit-adapted", "10", "0.500", "19 [12, over 20]", "1.9 [1.2, over 2]"],
        ["ulmfit-adapted", "20", "0.500", "over 20", "over 1"],
    ]
    assert found.numbers["aws-type"]["worth"] == evaluation["worth"]
    assert "ulmfit-adapted, 5" in found.chapter.figures[0].svg and list(outputs.read) == ["evaluation/aws-type"]


def test_large_numbers_of_labels_have_all_digits(
    outputs: Outputs, write_evaluation: Any, evaluation: dict[str, Any]
) -> None:
    entry = worth_entry(2500.0, (12345.6, 10000.0, None)) | {"most": 25000.0}
    evaluation["worth"] = {"ulmfit": {"adapted": [entry]}}
    write_evaluation("aws-type", evaluation)
    found = worth.run(outputs)
    assert found.chapter.tables[0].rows == [
        ["ulmfit-adapted", "2,500", "0.500", "12,346 [10,000, over 25,000]", "4.94 [4, over 10]"]
    ]
    assert "ulmfit-adapted, 2,500" in found.chapter.figures[0].svg


def test_negative_transfer_and_forgetting(outputs: Outputs, write_evaluation: Any, evaluation: dict[str, Any]) -> None:
    write_evaluation("aws-type", evaluation)
    with writing(outputs.out / "encoder" / "ulmfit" / "adapted", kind="encoder") as draft:
        metrics = {"general_before_perplexity_per_word": 50.0, "general_after_perplexity_per_word": 200.0}
        (draft.path / "metrics.json").write_text(json.dumps(metrics))
    found = negative_transfer.run(outputs)
    assert found.chapter.lead == ["aws-type, 20 labels a class: ulmfit adapted hurts on class map."]
    parts, forgetting = found.chapter.tables
    assert parts.columns == ["part", "rows", "scratch", "adapted", "difference", ""]
    assert parts.rows[1] == [
        "class map", "40", "0.600 [0.590, 0.610]", "0.500 [0.490, 0.510]", "-0.100 [-0.110, -0.090]", "hurts",
    ]  # fmt: skip
    assert forgetting.rows == [["ulmfit", "perplexity per word", "50.00", "200.00", "4.00"]]
    assert found.numbers["forgetting"]["ulmfit"]["times"] == 4
    assert "class map" in found.chapter.figures[0].svg
    assert list(outputs.read) == ["evaluation/aws-type", "encoder/ulmfit/adapted"]

    evaluation["transfer"]["ulmfit"][1]["parts"][1]["starts"]["adapted"]["hurts"] = False
    write_evaluation("aws-type", evaluation)
    lead = negative_transfer.run(outputs).chapter.lead
    assert lead == ["aws-type, 20 labels a class: ulmfit adapted hurts on none of 3 classes and slices."]


@pytest.mark.parametrize("study", [worth, negative_transfer])
def test_an_evaluation_without_transferred_systems(outputs: Outputs, write_evaluation: Any, study: Any) -> None:
    write_evaluation("aws-type", {"worth": {}, "transfer": {}, "unit": "labels a class", "headline": ""})
    with pytest.raises(ArtifactError, match=r"aws-type: no family has both .* run.starts must name scratch"):
        study.run(outputs)
