"""Comparison of model families on one corpus and one budget: quality against cost.

All families are pretrained on the same text with the same budget, in seconds on one machine or in tokens. The quality
of an encoder is measured by the test scores of its classifiers, frozen and fine-tuned. Perplexity per word is
comparable between causal models with different tokenizers (Mielke 2019); for character models, bits per character are
reported. The loss of a masked model is comparable only with the loss of other masked models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from components.artifacts import read_json, read_manifest
from components.errors import ArtifactError
from components.models import family as family_named
from components.settings.systems import FROZEN

START = "pretrained"
#: Kinds of classifiers -> end of the name of their start.
KINDS = {"frozen": FROZEN, "tuned": ""}
#: Measurements of pretraining that an entry has; None if the model has none.
MEASURED = ("parameters", "tokens", "seconds", "tokens_per_second", "perplexity_per_word", "bits_per_character")


def entries(out: Path, *, families: Sequence[str], tasks: Sequence[str]) -> list[dict[str, Any]]:
    """The families of a finished run, best first.

    Args:
        out: `params.run.out`.
        families: blocks of `pretrain`.
        tasks: blocks of `data.tasks`.

    Returns:
        [{name, family, objective, every entry of `MEASURED`, tuning_seconds (of one fine-tuning run at the largest
        budget, mean over tasks), scores: [{task, labels, frozen, tuned, chosen}], quality}]. Scores are accuracy, or
        the primary metric of a task without accuracy: frozen and tuned are (mean, low, high) or None, chosen the mean
        of whichever has the better dev score; quality is the mean of chosen.

    Raises:
        ArtifactError: a family is not pretrained, or a task is not evaluated.
    """
    evaluations = {task: _json(out / "evaluation" / task / "evaluation.json") for task in tasks}
    rows = []
    for name in families:
        trained, computed = out / "metrics/pretrain" / f"{name}.json", out / "encoder" / name / START / "metrics.json"
        # The metrics of a computed encoder (`static`) are in its directory.
        metrics = _json(computed if computed.is_file() and not trained.is_file() else trained)
        family = str(read_manifest(out / "encoder" / name / START).facts["family"])
        scores: list[dict[str, Any]] = []
        tuning: list[float] = []
        for task, evaluation in evaluations.items():
            scores += _scores(name, task, evaluation, tuning)
        rows.append(
            {"name": name, "family": family, "objective": family_named(family).objective}
            | {key: metrics.get(key) for key in MEASURED}
            | {"tuning_seconds": sum(tuning) / max(1, len(tuning)), "scores": scores}
            | {"quality": float(np.mean([score["chosen"] for score in scores]))}
        )
    return sorted(rows, key=lambda row: -row["quality"])


def _scores(name: str, task: str, evaluation: Mapping[str, Any], tuning: list[float]) -> list[dict[str, Any]]:
    """The scores of a family on a task, by budget; adds the seconds of fine-tuning to `tuning`."""
    systems = {system["system"]: system["budgets"] for system in evaluation["systems"]}
    scores = []
    for budget in evaluation["budgets"]:
        cells = {
            kind: cell
            for kind, end in KINDS.items()
            for cell in systems.get(f"{name}-{START}{end}", [])
            if cell["budget"] == budget
        }
        if not cells:
            raise ArtifactError(f"{task}: no scores of {name}-{START}; add {START!r} to run.starts and run again")
        if "tuned" in cells and budget == evaluation["budgets"][-1]:
            tuning.append(cells["tuned"]["training"]["seconds"])
        selection = f"selection_{evaluation['main']}"
        preferred = max(cells, key=lambda kind: cells[kind]["training"][selection])
        measured = {
            kind: cell["scores"].get("accuracy") or cell["scores"][evaluation["main"]] for kind, cell in cells.items()
        }
        classes = len(evaluation["labels"]) if evaluation["unit"] == "labels a class" else 1
        scores.append(
            {"task": task, "labels": round(next(iter(cells.values()))["labels"] * classes)}
            | {
                kind: tuple(measured[kind][of] for of in ("mean", "low", "high")) if kind in cells else None
                for kind in KINDS
            }
            | {"chosen": measured[preferred]["mean"]}
        )
    return scores


def table(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Column names and rows of text for the terminal and the report."""
    columns = ["family", "parameters", "tokens", "tokens/s", "perplexity per word", "bits per character"]
    columns += [f"{score['task']} {score['labels']:g} {kind}" for score in rows[0]["scores"] for kind in KINDS]
    forms = dict(zip((MEASURED[0], MEASURED[1], *MEASURED[3:]), (",", ",", ",.0f", ",.1f", ".3f"), strict=True))
    cells = [
        [
            row["name"],
            *("" if row[key] is None else format(row[key], form) for key, form in forms.items()),
            *(_interval(score[kind]) for score in row["scores"] for kind in KINDS),
        ]
        for row in rows
    ]
    return columns, cells


def _interval(bounds: tuple[float, float, float] | None) -> str:
    return "" if bounds is None else "{:.3f} [{:.3f}, {:.3f}]".format(*bounds)


def _json(path: Path) -> dict[str, Any]:
    return read_json(path, made_by="`headstart retrain`")
