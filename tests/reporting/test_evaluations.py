"""Sentences of the report about an evaluation."""

from __future__ import annotations

from typing import Any

from components.reporting.evaluations import _runs


def test_runs_are_counted_by_system_and_budget() -> None:
    def cell(budget: int, names: int) -> dict[str, Any]:
        return {"budget": budget, "seeds": [0, 1, 2], "training": {"left_out": 0, "label_names": names}}

    evaluation = {
        "unit": "labels per class",
        "systems": [
            {"system": "tfidf-words", "budgets": [{"budget": 5, "seeds": [0, 1, 2]}]},
            {"system": "bert-adapted", "budgets": [cell(5, 3), cell(20, 0), cell(-1, 1)]},
        ],
    }
    assert _runs(evaluation, "label_names") == (
        "bert-adapted at 5 labels per class: 3 of 3; bert-adapted at all labels per class: 1 of 3"
    )
    assert _runs(evaluation, "left_out") == ""
