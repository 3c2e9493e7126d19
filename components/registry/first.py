"""The first champion where no candidate is shown to be better than the others.

The challenger becomes the first champion if it is better than the best baseline (`components.registry.promotion`). If
this is not shown, the cheapest candidate that is better than chance is served until a challenger replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.registry.barred import why_barred, why_leaked
from components.registry.judging import judge
from components.registry.ledger import Ledger
from components.registry.ledger_entries import State
from components.registry.records import decision_key, find_decision, record_decision
from components.registry.runs import BASELINES, evaluation_warnings, results_of
from components.registry.story import figures
from components.settings.promote import PromotionRule
from components.tracking import Registry, Version


@dataclass(frozen=True)
class Contest:
    """The circumstances of a task's decision.

    Attributes:
        rule: `params.promote`.
        task: name of the task.
        examples: output directory of the stage `examples`.
        out: `params.run.out`.
        registry: of the candidates.
        ledger: decisions are recorded in it.
        state: of the alias, which has no champion.
    """

    rule: PromotionRule
    task: str
    examples: Path
    out: Path
    registry: Registry
    ledger: Ledger
    state: State

    @property
    def finetuned(self) -> Path:
        """Folder of the task's results."""
        return self.out / "finetuned" / self.task


def first_champion(
    contest: Contest,
    challenger: Mapping[str, Any],
    decision: Mapping[str, Any],
    candidates: Sequence[Mapping[str, Any]],
) -> tuple[Version, dict[str, Any]] | list[str]:
    """The candidate that is served because no model is shown to be better.

    The candidates are tried from the cheapest on. One is passed over if

    - it is barred (rolled back, tainted, leaked, or slower than the limit),
    - it is cheaper than the challenger, and the challenger is shown to be better than it,
    - it has an encoder, and is shown to be worse than the best baseline or cannot be compared with it, or
    - it is not shown to be better than the constant prediction.

    The comparisons with the constant prediction have an error budget of their own, because they replace no champion.
    The j-th comparison on one version of the test rows has the error `rule.error_of(j)`. The probability that a model
    no better than chance becomes the first champion is therefore at most 1 - confidence.

    Args:
        contest: the circumstances.
        challenger: entry of registered.json.
        decision: on the challenger, not `promote`.
        candidates: entries of registered.json, one per class of cost, the cheapest first.

    Returns:
        The version with its decision; otherwise a sentence for every candidate that was passed over.
    """
    systems = [entry["system"] for entry in candidates]
    rank = systems.index(challenger["system"]) if challenger["system"] in systems else len(systems)
    made = [entry.facts["decision"] for entry in contest.state.decisions]
    passed: list[str] = []
    for number, entry in enumerate(candidates):
        version = contest.registry.get(entry["name"], entry["version"])
        if reason := _passed_over(contest, version, entry, challenger, decision, cheaper=number < rank):
            # The reasons of the challenger are those of the decision.
            passed += [reason] if number != rank else []
            continue
        because = _because(version, entry, challenger, decision)
        found = _compared_with_chance(contest, version, entry, made, because=because, candidates=candidates)
        if found["verdict"] == "promote":
            return version, found
        passed.append(f"{_named(version, entry)} is not the first champion: {found['reasons'][0]}")
        made.append(found)
    return passed


def _passed_over(
    contest: Contest,
    version: Version,
    entry: Mapping[str, Any],
    challenger: Mapping[str, Any],
    decision: Mapping[str, Any],
    *,
    cheaper: bool,
) -> str:
    """Why a candidate is passed over before it is compared with chance, or empty."""
    named, system = _named(version, entry), entry["system"]
    barred = why_barred(contest.registry, contest.state, version)
    if reason := barred or why_leaked(contest.out, contest.task, version, system):
        return reason
    words = results_of(contest.finetuned, system).name == BASELINES
    if system == challenger["system"]:
        # A words model as challenger was compared with the constant prediction.
        if words or not _may_be_as_good(decision):
            return f"{named} is not the first champion: {decision['reasons'][0]}"
        return ""
    # The decision on the challenger answers the question already if its opponent is this system.
    if cheaper and decision["against"] != f"baseline {system}":
        best = contest.registry.get(challenger["name"], challenger["version"])
        found = _judged(contest, best, challenger, rival=system)
        if found["verdict"] == "promote":
            return f"{_named(best, challenger)} is better than {named}: {found['reasons'][0]}"
    if not words:
        found = _judged(contest, version, entry)
        if not _may_be_as_good(found):
            return f"{named} is not the first champion: {found['reasons'][0]}"
    return ""


def _may_be_as_good(decision: Mapping[str, Any]) -> bool:
    """Whether a candidate was compared with the best baseline, and is not shown to be worse."""
    return decision["verdict"] != "reject" and decision["gain"] is not None


def _compared_with_chance(
    contest: Contest,
    version: Version,
    entry: Mapping[str, Any],
    made: Sequence[Mapping[str, Any]],
    *,
    because: str,
    candidates: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The decision against the constant prediction; read from the ledger, or recorded in it."""
    key = decision_key(contest.rule, version, None, contest.examples, first=True)
    earlier = find_decision(contest.state, key)
    if earlier is not None and earlier["gain"] is not None:
        return earlier
    found = _judged(contest, version, entry, rival=None, earlier=[other for other in made if other.get("first")])
    found |= {
        "first": True,
        "warnings": evaluation_warnings(contest.out / "evaluation" / contest.task, entry["system"], candidates),
    }
    if found["verdict"] == "promote":
        found["reasons"] = [because, *found["reasons"]]
    if earlier is None or earlier["reasons"] != found["reasons"]:
        record_decision(contest.registry, contest.ledger, contest.state, version, found, key=key)
    return found


def _judged(contest: Contest, version: Version, entry: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    return judge(
        contest.rule,
        contest.registry,
        version,
        None,
        examples=contest.examples,
        finetuned=contest.finetuned,
        challenger=entry,
        **changes,
    )


def _named(version: Version, entry: Mapping[str, Any]) -> str:
    return f"{version.label} ({entry['system']})"


def _because(
    version: Version, entry: Mapping[str, Any], challenger: Mapping[str, Any], decision: Mapping[str, Any]
) -> str:
    """The reason of the choice."""
    own = entry["system"] == challenger["system"]
    other = "it" if own else f"{challenger['name']}/{challenger['version']} ({challenger['system']})"
    shown = f"{other} is not shown to be better than {decision['against']}"
    if decision["gain"] is not None:
        shown = f"{other} is not shown to be better: {figures(decision)}"
    if decision["verdict"] == "reject":
        shown = f"{other} is rejected: {decision['reasons'][0]}"
    return f"{_named(version, entry)} is the first champion because nothing better is shown: {shown}"
