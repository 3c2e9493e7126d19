"""Comparison of model families on one corpus and one budget: quality against cost.

All families are pretrained on the same text with the same budget, in seconds on one machine or in tokens. The quality
of an encoder is measured by the test scores of its classifiers, frozen and fine-tuned. Perplexity per word is
comparable between causal models with different tokenizers (Mielke 2019); for character models, bits per character are
reported. The loss of a masked model is comparable only with that of other masked models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from components.artifacts import read_json, read_manifest
from components.errors import ArtifactError
from components.models import family as family_named
from components.settings.names import FROZEN

START = "pretrained"


@dataclass(frozen=True)
class Score:
    """Test accuracy (for tasks without accuracy, the primary metric) on one task at one label budget.

    Attributes:
        task: name of the task.
        labels: label budget in rows, over all classes.
        frozen: (mean over seeds, lower bound, upper bound) with the encoder frozen; None if not run.
        tuned: the same after fine-tuning.
        chosen: mean of whichever has the better dev score.
    """

    task: str
    labels: float
    frozen: tuple[float, float, float] | None
    tuned: tuple[float, float, float] | None
    chosen: float


@dataclass(frozen=True)
class Entry:
    """A row of the table.

    Attributes:
        name: name of the block in params.yaml.
        family: model family.
        objective: pretraining objective.
        parameters: number of trained parameters; tied ones count once.
        tokens: tokens of pretraining (characters for a character model).
        seconds: duration of pretraining.
        tokens_per_second: throughput of pretraining.
        tuning_seconds: duration of one fine-tuning run at the largest budget, mean over tasks.
        perplexity_per_word: on held-out text; None if the objective has no perplexity.
        bits_per_character: on held-out text; None if the model has none.
        scores: one entry per task and budget.
    """

    name: str
    family: str
    objective: str
    parameters: int
    tokens: int
    seconds: float
    tokens_per_second: float
    tuning_seconds: float
    perplexity_per_word: float | None
    bits_per_character: float | None
    scores: tuple[Score, ...]

    @property
    def quality(self) -> float:
        """Mean of `Score.chosen` over tasks and budgets."""
        return sum(score.chosen for score in self.scores) / len(self.scores)

    def as_dict(self) -> dict[str, Any]:
        """The entry as a JSON object."""
        return asdict(self) | {"quality": self.quality}


def entries(out: Path, *, families: Sequence[str], tasks: Sequence[str]) -> list[Entry]:
    """The families of a finished run, best first.

    Args:
        out: `params.run.out`.
        families: blocks of `pretrain`.
        tasks: blocks of `data.tasks`.

    Raises:
        ArtifactError: a family is not pretrained, or a task is not evaluated.
    """
    evaluations = {task: _json(out / "evaluation" / task / "evaluation.json") for task in tasks}
    found = [
        _entry(
            name,
            _json(_metrics(out, name)),
            evaluations,
            family=str(read_manifest(out / "encoder" / name / START).facts["family"]),
        )
        for name in families
    ]
    return sorted(found, key=lambda entry: -entry.quality)


def _metrics(out: Path, name: str) -> Path:
    """The metrics of an encoder; those of a computed encoder (`static`) are in its directory."""
    trained = out / "metrics" / "pretrain" / f"{name}.json"
    computed = out / "encoder" / name / START / "metrics.json"
    return computed if computed.is_file() and not trained.is_file() else trained


def _entry(
    name: str,
    trained: Mapping[str, Any],
    evaluations: Mapping[str, Mapping[str, Any]],
    *,
    family: str,
) -> Entry:
    scores = []
    tuning = []
    for task, evaluation in evaluations.items():
        systems = {system["system"]: system for system in evaluation["systems"]}
        cells = {
            kind: {cell["budget"]: cell for cell in systems.get(f"{name}-{START}{end}", {"budgets": []})["budgets"]}
            for kind, end in (("frozen", FROZEN), ("tuned", ""))
        }
        for budget in evaluation["budgets"]:
            both = {kind: found.get(budget) for kind, found in cells.items()}
            if not any(both.values()):
                raise ArtifactError(f"{task}: no scores of {name}-{START}; add {START!r} to run.starts and run again")
            classes = len(evaluation["labels"]) if evaluation["unit"] == "labels a class" else 1
            labels = next(cell["labels"] for cell in both.values() if cell) * classes
            if both["tuned"] and budget == evaluation["budgets"][-1]:
                tuning.append(both["tuned"]["training"]["seconds"])
            measured = {kind: _score(cell, evaluation) if cell else None for kind, cell in both.items()}
            preferred = max((cell for cell in both.values() if cell), key=lambda cell: _selection(cell, evaluation))
            scores.append(Score(task, round(labels), **measured, chosen=_score(preferred, evaluation)[0]))
    objective = family_named(family).objective
    return Entry(
        name=name,
        family=family,
        objective=objective,
        parameters=trained["parameters"],
        tokens=trained["tokens"],
        seconds=trained["seconds"],
        tokens_per_second=trained["tokens_per_second"],
        tuning_seconds=sum(tuning) / max(1, len(tuning)),
        perplexity_per_word=trained.get("perplexity_per_word"),
        bits_per_character=trained.get("bits_per_character"),
        scores=tuple(scores),
    )


def _selection(cell: Mapping[str, Any], evaluation: Mapping[str, Any]) -> float:
    return float(cell["training"][f"selection_{evaluation['main']}"])


def _score(cell: Mapping[str, Any], evaluation: Mapping[str, Any]) -> tuple[float, float, float]:
    """Accuracy, or the primary metric of a task without accuracy: mean, lower bound, upper bound."""
    found = cell["scores"].get("accuracy") or cell["scores"][evaluation["main"]]
    return found["mean"], found["low"], found["high"]


def table(found: Sequence[Entry]) -> tuple[list[str], list[list[str]]]:
    """Column names and rows of text for the terminal and the report."""
    columns = ["family", "parameters", "tokens", "tokens/s", "perplexity per word", "bits per character"]
    for score in found[0].scores:
        columns += [f"{score.task} {score.labels:g} frozen", f"{score.task} {score.labels:g} tuned"]
    rows = []
    for entry in found:
        row = [entry.name, f"{entry.parameters:,}", f"{entry.tokens:,}", f"{entry.tokens_per_second:,.0f}"]
        row += [_number(entry.perplexity_per_word, ",.1f"), _number(entry.bits_per_character, ".3f")]
        for score in entry.scores:
            row += [_interval(score.frozen), _interval(score.tuned)]
        rows.append(row)
    return columns, rows


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _interval(found: tuple[float, float, float] | None) -> str:
    return "" if found is None else f"{found[0]:.3f} [{found[1]:.3f}, {found[2]:.3f}]"


def _json(path: Path) -> dict[str, Any]:
    return read_json(path, made_by="`headstart retrain`")
