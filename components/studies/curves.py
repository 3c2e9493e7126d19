"""Curves of an evaluation for figures, and its intervals as text."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from components.reporting.figures import Line
from components.settings.names import BASELINE, FROZEN


def main_score(evaluation: Mapping[str, Any]) -> str:
    """Name of the primary metric."""
    return str(evaluation["main"])


def label_curves(evaluation: Mapping[str, Any], systems: Collection[str] | None = None) -> dict[str, Line]:
    """System -> primary metric on test with its interval against labels per class. Frozen systems are omitted."""
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
    """System -> primary metric on dev against epochs of fine-tuning at the largest budget; at least two points."""
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
    """`0.512 [0.480, 0.544]`; `0.512` for a single value, which has no interval."""
    bounds = f" [{found['low']:.3f}, {found['high']:.3f}]" if found["low"] < found["high"] else ""
    return f"{found['mean']:.3f}{bounds}"
