"""Which model is served and why, in one sentence with the figures of the decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def story(
    decision: Mapping[str, Any],
    served: Mapping[str, Any] | None,
    *,
    evaluation: Mapping[str, Any],
    candidates: Sequence[Mapping[str, Any]],
) -> str:
    """The sentence.

    Args:
        decision: as in decision.json, with `system`, the one that it is about.
        served: {version, system} of the champion after the decision; None: no model is served.
        evaluation: evaluation.json; empty if it is missing.
        candidates: entries of registered.json, `system` and `dev_score`.
    """
    system, verdict, reasons = decision["system"], decision["verdict"], decision["reasons"]
    if served is None:
        return f"no model is served: {reasons[0]}"
    named = f"{served['system'] or 'a model'} (version {served['version']})"
    named_already = {system}
    if decision.get("first"):
        text = reasons[0]
        named_already |= {max(candidates, key=lambda entry: float(entry["dev_score"]))["system"]}
    elif verdict == "promote":
        text = f"{named} is served: {figures(decision)}"
    elif verdict == "unchanged":
        text = f"{named} stays: {reasons[0]}"
    elif verdict == "reject":
        text = f"{named} stays: {system} is rejected, {reasons[0]}"
        text += f" ({figures(decision)})" if decision.get("gain") is not None else ""
    elif decision.get("gain") is None:
        text = f"{named} stays: {reasons[0]}"
    else:
        text = f"{named} stays: {system} is not shown to be better, {figures(decision)}"
    named_already |= {served["system"]}
    return f"{text}{_better_row(evaluation, served['system'], named_already, candidates)}"


def figures(decision: Mapping[str, Any]) -> str:
    """Both scores, and the gain with its bounds."""
    text = f"{decision['metric']} {decision['candidate_score']:.4f} against {decision['champion_score']:.4f} of "
    text += f"{decision['against']}, gain {decision['gain']:+.4f}"
    if decision["low"] is None:
        return text
    return f"{text}, between {decision['low']:+.4f} and {decision['high']:+.4f}"


def _better_row(
    evaluation: Mapping[str, Any], served: str, named_already: set[str], candidates: Sequence[Mapping[str, Any]]
) -> str:
    """Why the model with the best score on test is not the served one, unless the sentence says it already."""
    scores = artifact_scores(evaluation)
    best = max(scores, key=lambda name: scores[name], default=served)
    if best in named_already or (served in scores and scores[best] <= scores[served]):
        return ""
    against = f" against {scores[served]:.4f}" if served in scores else ""
    why = why_not(evaluation, best, candidates)
    return f"; {best} has a higher score on test ({scores[best]:.4f}{against}), but {why}"


def artifact_scores(evaluation: Mapping[str, Any]) -> dict[str, float]:
    """System -> primary metric of its stored model on test."""
    systems = [found for found in evaluation.get("systems", []) if "artifact" in found]
    return {found["system"]: found["artifact"]["scores"][evaluation["main"]]["mean"] for found in systems}


def why_not(evaluation: Mapping[str, Any], system: str, candidates: Sequence[Mapping[str, Any]]) -> str:
    """Why a system of the evaluation is not the challenger.

    Args:
        evaluation: evaluation.json.
        system: its name.
        candidates: the best registered system of each class of cost, the cheapest first.
    """
    selection = {one["system"]: one["artifact"]["selection"] for one in evaluation["systems"] if "artifact" in one}
    families = {one["system"]: one["family"] for one in evaluation["systems"]}
    chosen = max(candidates, key=lambda entry: float(entry["dev_score"]), default=None)
    if families.get(system) == "baseline" and all(families.get(one["system"]) != "baseline" for one in candidates):
        return "it cannot be served"
    if chosen is None or chosen["system"] == system or chosen["system"] not in selection:
        return "models are chosen by their score of selection, not on test"
    return (
        f"the challenger is chosen by its score of selection, which is {selection[chosen['system']]:.4f} of "
        f"{chosen['system']} and {selection[system]:.4f} of {system}"
    )
