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
    """The headline, and the comparisons with scratch and with the best baseline at the largest budget."""
    last = evaluation["budgets"][-1]
    found = [evaluation["headline"]] if evaluation["headline"] else []
    wanted = ("transfer", "baseline")
    found += [one["text"] for one in evaluation["statements"] if one["budget"] == last and one["kind"] in wanted]
    return found or ["No system was initialised from a language model, so there is nothing to compare."]


def _served(decision: Mapping[str, Any]) -> str:
    if not decision:
        return "Nothing was decided yet."
    served = decision.get("served")
    if served is None:
        return f"No model is served. The candidate was judged: {decision['verdict']}."
    system = f", {served['system']}" if served["system"] else ""
    new = decision.get("alias_before") != decision.get("alias_after")
    return f"Version {served['version']}{system}: {'promoted by this run' if new else 'it stays the champion'}."
