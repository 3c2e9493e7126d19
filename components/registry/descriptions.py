"""Descriptions of registered models and versions in words, in the Markdown of MLflow's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.artifacts import read_json
from components.registry.candidates import Candidate
from components.registry.runs import artifact_of
from components.settings.names import FROM, FROZEN
from components.tasks.budgets import budget_name
from components.tracking import Registry, Version

#: Beginning of the part of a version's description that `promote` writes.
DECISION = "Decision:"
ENCODERS = {"pretrained": "pretrained on general text", "adapted": "adapted to the domain's text"}
STARTS = {
    "scratch": "random weights",
    "vectors": "word vectors of the text, without a step of language modelling",
    "pretrained": "the pretrained language model",
    "adapted": "the language model that was adapted to the domain's text",
}


def describe_model(candidate: Candidate, *, alias: str) -> str:
    """A registered model: what its versions are."""
    if candidate.task is None:
        how = ENCODERS.get(candidate.start, candidate.start)
        return f"Language models of the family {candidate.family}, {how}: one version per retraining that changed them."
    return (
        f"Models of the task {candidate.task}: one version per system and retraining that changed it. The alias "
        f"`{alias}` marks the best one; `headstart champion` and `headstart champion --history` say since when and why."
    )


def describe_version(
    candidate: Candidate,
    *,
    out: Path,
    facts: Mapping[str, Any],
    data: Mapping[str, str],
    parent: Version | None,
    teachers: Sequence[Version] = (),
) -> str:
    """A version: what it is, the data that it has learned from, its score.

    Args:
        candidate: the model.
        out: `params.run.out`, with the evaluation.
        facts: of the model: `budget` and `seeds` of a classifier.
        data: path -> digest of the data.
        parent: version that it was initialised from.
        teachers: versions whose predictions it has learned.
    """
    lines = [_what(candidate, facts)]
    if parent is not None:
        lines.append(f"Initialised from {parent.label}.")
    if candidate.teachers:
        systems, labels = ", ".join(candidate.teachers), ", ".join(teacher.label for teacher in teachers)
        lines.append(f"Learned from the predictions of {systems}" + (f" ({labels})." if labels else "."))
    read = ", ".join(f"{path} (version {digest[:12]})" for path, digest in data.items())
    lines.append(f"Data: {read or 'unknown'}.")
    if candidate.task is not None and (score := _score(candidate, out)):
        lines.append(score)
    return "\n\n".join(lines)


def add_decision(registry: Registry, version: Version, decision: Mapping[str, Any]) -> None:
    """Write the decision on a version into its description, in place of an earlier one."""
    text, _, _ = registry.description(version).partition(f"{DECISION} ")
    gain = ""
    if decision.get("gain") is not None:
        interval = "" if decision.get("low") is None else f" [{decision['low']:+.4f}, {decision['high']:+.4f}]"
        gain = f"Gain over {decision['against']}: {decision['gain']:+.4f}{interval} ({decision['metric']}). "
    reasons = "; ".join(decision["reasons"])
    registry.describe(version, f"{text.rstrip()}\n\n{DECISION} {decision['verdict']}. {gain}{reasons}".strip())


def _what(candidate: Candidate, facts: Mapping[str, Any]) -> str:
    if candidate.computed_from:
        parts = " and ".join(candidate.computed_from)
        return f"{candidate.family}, computed from {parts}, {ENCODERS[candidate.start]}."
    if candidate.task is None:
        return f"Language model {candidate.family}, {ENCODERS.get(candidate.start, candidate.start)}."
    budget, seeds = facts.get("budget"), facts.get("seeds", [])
    labels = "" if budget is None else f" with the label budget {budget_name(budget)}"
    seeded = f", seed {seeds[0]}" if len(seeds) == 1 else f", the average of {len(seeds)} seeds" if seeds else ""
    model = f"Model of the task {candidate.task}"
    if candidate.is_words:
        return f"{model}: {candidate.system}, a linear model on words, without a language model{labels}{seeded}."
    start = candidate.start.removesuffix(FROZEN).partition(FROM)[0]
    start = STARTS.get(start, start)
    if candidate.is_frozen:
        return f"{model}: {candidate.family}, a head on {start} without fine-tuning{labels}{seeded}."
    return f"{model}: {candidate.family}, fine-tuned from {start}{labels}{seeded}."


def _score(candidate: Candidate, out: Path) -> str:
    """The primary metric of the model on test with its interval."""
    path = out / "evaluation" / str(candidate.task) / "evaluation.json"
    found = read_json(path, made_by="the stage evaluate", missing_ok=True)
    artifact = artifact_of(found, candidate.system)
    if not artifact:  # not evaluated, or by an earlier version
        return ""
    score, title = artifact["scores"][found["main"]], found["titles"][found["main"]]
    interval = f"[{score['low']:.3f}, {score['high']:.3f}]"
    return (
        f"Score: {title} {score['mean']:.3f} {interval} on {found['rows']['test']:,} test rows "
        f"({found['confidence']:.0%} interval), from {artifact['labels']:,} labelled rows."
    )
