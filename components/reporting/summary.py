"""What a person wants to know first: did transfer pay, what is served, where it is wrong, what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.reporting.advice import Advice, advice

#: Number of wrong answers on the page; the JSON file has all that `evaluate` keeps.
SHOWN = 5


@dataclass(frozen=True)
class Summary:
    """The answers for one task.

    Attributes:
        task: its name.
        transfer: whether transfer paid, in sentences.
        served: which model is served, in a sentence.
        reasons: of the decision.
        mistakes: as in evaluation.json; empty if there are none.
        steps: what to do next.
    """

    task: str
    transfer: Sequence[str]
    served: str
    reasons: Sequence[str]
    mistakes: Mapping[str, Any]
    steps: Sequence[Advice]

    @property
    def worst(self) -> Sequence[Mapping[str, Any]]:
        """The wrong answers that are shown."""
        found: Sequence[Mapping[str, Any]] = self.mistakes.get("rows", [])
        return found[:SHOWN]

    def as_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return {**vars(self), "steps": [step.as_dict() for step in self.steps]}


def summary(task: str, evaluation: Mapping[str, Any], decision: Mapping[str, Any]) -> Summary:
    """The summary of a task.

    Args:
        task: its name.
        evaluation: result of the stage `evaluate`.
        decision: of the stage `promote` about the task; empty if it has not run.
    """
    return Summary(
        task,
        _transfer(evaluation),
        _served(decision),
        list(decision.get("reasons", [])),
        evaluation.get("mistakes", {}),
        advice(task, evaluation),
    )


def _transfer(evaluation: Mapping[str, Any]) -> list[str]:
    """The headline, and at the largest budget the comparisons with scratch and with the best baseline."""
    last = evaluation["budgets"][-1]
    found = [evaluation["headline"]] if evaluation["headline"] else []
    challenger = evaluation.get("challenger")
    # The recipes' comparison with the best baseline is about the same question as that of the stored models.
    wanted = ("transfer",) if challenger else ("transfer", "baseline")
    found += [one["text"] for one in evaluation["statements"] if one["budget"] == last and one["kind"] in wanted]
    found += [challenger["text"]] if challenger else []
    return found or ["No system was initialised from a language model, so there is nothing to compare."]


def _served(decision: Mapping[str, Any]) -> str:
    # The report of a run is written before its decision, so that of an earlier version may be read.
    text = decision.get("story", decision["verdict"]) if decision else "nothing was decided yet"
    return f"{text[0].upper()}{text[1:]}." if text.split()[0].isalpha() else f"{text}."
