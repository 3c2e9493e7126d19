"""Curves of an evaluation as figures, and its numbers as cells: what the studies of scores share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from components.reporting.figures import Line
from components.settings.names import BASELINE, FROZEN


def main_score(evaluation: Mapping[str, Any]) -> str:
    """The score that systems are compared by."""
    return str(evaluation["main"])


def label_curves(evaluation: Mapping[str, Any], systems: Collection[str] | None = None) -> dict[str, Line]:
    """Score on test with its interval against labels a class, one curve a system that was trained end to end."""
    score = main_score(evaluation)
    curves = {}
    for system in evaluation["systems"]:
        if system["start"].endswith(FROZEN) or (systems is not None and system["system"] not in systems):
            continue
        cells = [cell["scores"][score] for cell in system["budgets"]]
        curves[system["system"]] = Line(
            x=[cell["labels"] for cell in system["budgets"]],
            y=[cell["mean"] for cell in cells],
            low=[cell["low"] for cell in cells],
            high=[cell["high"] for cell in cells],
            dashed=system["family"] == BASELINE,
        )
    return curves


def training_curves(evaluation: Mapping[str, Any]) -> dict[str, Line]:
    """Score on dev against epochs of fine-tuning at the largest budget, one curve a system that was trained longer."""
    score = main_score(evaluation)
    return {
        system["system"]: Line(
            [point["epoch"] for point in system["training_curve"]],
            [point[score] for point in system["training_curve"]],
            dashed=system["start"] == "scratch",
        )
        for system in evaluation["systems"]
        if len(system["training_curve"]) > 1
    }


def interval(found: Mapping[str, float]) -> str:
    """`0.512 [0.480, 0.544]`; of a single value, whose spread nobody knows, `0.512`."""
    bounds = f" [{found['low']:.3f}, {found['high']:.3f}]" if found["low"] < found["high"] else ""
    return f"{found['mean']:.3f}{bounds}"
