"""What a person may do next after a run, with the command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

from components.settings.names import BASELINE
from components.tasks.budgets import budget_name

#: Gain of the primary metric between the two largest label budgets from which more labels are advised.
GAIN = 0.01
#: Number of rows and share of a class from which a confusion is named.
CONFUSED, SHARE = 5, 0.15


@dataclass(frozen=True)
class Advice:
    """One step.

    Attributes:
        text: a sentence.
        command: that does it; empty if there is none.
        page: of `headstart ui` that shows it; empty if there is none.
    """

    text: str
    command: str = ""
    page: str = ""

    def as_dict(self) -> dict[str, str]:
        """A JSON object."""
        return asdict(self)


def advice(task: str, evaluation: Mapping[str, Any], *, flags: str = "") -> list[Advice]:
    """The next steps for a task, the most useful first.

    Args:
        task: its name.
        evaluation: result of the stage `evaluate`.
        flags: that every command needs in addition.
    """
    return [
        *_labels(task, evaluation, flags),
        *_transfer(task, evaluation, flags),
        *_confusion(task, evaluation, flags),
        *(Advice(sentence, f"headstart check --settings{flags}") for sentence in cut_texts(evaluation)),
    ]


def cut_texts(evaluation: Mapping[str, Any]) -> list[str]:
    """One sentence for each system that does not read all texts to their end."""
    return [
        f"{system} does not read {share:.1%} of the texts to their end: raise max_length and set chunk in finetune."
        for system, share in evaluation.get("cut", {}).items()
    ]


def _labels(task: str, evaluation: Mapping[str, Any], flags: str) -> list[Advice]:
    """Whether more labels help, by the last step of the label curve of the best system."""
    budgets, unit = evaluation["budgets"], evaluation["unit"]
    if len(budgets) < 2:
        return []
    cells = best_cells(evaluation)
    if len(cells) < 2:
        return []
    before, after = cells[-2], cells[-1]
    scores = [cell["scores"][evaluation["main"]]["mean"] for cell in (before, after)]
    gain = scores[1] - scores[0]
    title = evaluation["titles"][evaluation["main"]]
    step = f"from {budget_name(before['budget'])} to {budget_name(after['budget'])} {unit}"
    if gain >= GAIN:
        return [
            Advice(
                f"Label more texts: {step}, {title} rose from {scores[0]:.3f} to {scores[1]:.3f}.",
                f"headstart suggest --task {task} --count 50{flags}",
            )
        ]
    return [
        Advice(
            f"Look at the errors before labelling more: {step}, {title} did not rise "
            f"({scores[0]:.3f} to {scores[1]:.3f}).",
            f"headstart ui{flags}",
            f"/errors?{urlencode({'task': task})}",
        )
    ]


def _transfer(task: str, evaluation: Mapping[str, Any], flags: str) -> list[Advice]:
    """What to try if a system without a language model is as good."""
    stored = [one for one in evaluation["systems"] if "artifact" in one]
    system = max(stored, key=lambda one: one["artifact"]["scores"][evaluation["main"]]["mean"], default=None)
    if system is None or system.get("family") != BASELINE:
        return []
    best = system["system"]
    tried = any(one.get("family") != BASELINE for one in evaluation["systems"])
    hint = "Another encoder, or more text of the domain, may help."
    if not tried:
        hint = "A published encoder may help: headstart init FILE --start NAME --overwrite, then headstart fit."
    return [
        Advice(
            f"The best system, {best}, has no language model. {hint}",
            f"headstart study which-source{flags}" if tried else "headstart starts",
        )
    ]


def _confusion(task: str, evaluation: Mapping[str, Any], flags: str) -> list[Advice]:
    """The most frequent confusion of the best system."""
    found = most_confused(evaluation)
    if found is None:
        return []
    true, predicted, count, rows = found
    return [
        Advice(
            f"Look at {true}: {count} of {rows} predictions for its rows are {predicted}. More labels of both "
            "classes, or a clearer definition, may help.",
            f"headstart ui{flags}",
            f"/errors?{urlencode({'task': task, 'true': true, 'predicted': predicted})}#rows",
        )
    ]


def best_cells(evaluation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The label budgets of the system that is best with the most labels, in their order."""
    best = evaluation["best"].get(str(evaluation["budgets"][-1]))
    system = next((one for one in evaluation["systems"] if one["system"] == best), None)
    if system is None:
        return []
    order: Sequence[int] = evaluation["budgets"]
    return sorted(system["budgets"], key=lambda cell: order.index(cell["budget"]))


def most_confused(evaluation: Mapping[str, Any]) -> tuple[str, str, int, int] | None:
    """(true label, predicted label, number, rows of the true label) of the most frequent confusion of the best system
    with the most labels, over all seeds; None if none is frequent."""
    cells = best_cells(evaluation)
    matrix = cells[-1].get("confusion") if cells else None
    if not matrix:
        return None
    labels = evaluation["labels"]
    count, true, predicted = max(
        (row[other], own, other) for own, row in enumerate(matrix) for other in range(len(row)) if own != other
    )
    rows = sum(matrix[true])
    if count < CONFUSED or count < SHARE * rows:
        return None
    return labels[true], labels[predicted], int(count), int(rows)
