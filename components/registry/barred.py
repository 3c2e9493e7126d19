"""What bars a candidate from promotion whatever its score: rollbacks, removed documents, a person's choice, leakage."""

from __future__ import annotations

from pathlib import Path

from components.registry.ledger_entries import State, taint_in_words
from components.registry.runs import read_leakage
from components.registry.taints import tainted_ancestor
from components.tracking import Registry, Version


def why_barred(registry: Registry, state: State, candidate: Version) -> str:
    """Why a candidate is not promoted whatever its score, or empty."""
    how = f"train a new one, or run `headstart promote --version {candidate.number} --reason TEXT`"
    if (veto := state.vetoes.get(candidate.digest)) is not None:
        return f"{candidate.label} was rolled back on {veto.entry.time:%Y-%m-%d} by {veto.entry.by}; {how}"
    if (tainted := tainted_ancestor(registry, state, candidate)) is not None:
        return f"{tainted.label} {taint_in_words(state.tainted[tainted.digest])}; retrain without them"
    if (held := state.held_by(candidate.digest)) is not None:
        chosen = f"a person chose version {held.after} on {held.entry.time:%Y-%m-%d} ({held.action})"
        return f"{candidate.label} was known when {chosen}; {how}"
    return ""


def why_leaked(out: Path, task: str, candidate: Version, system: str) -> str:
    """Why the rule `leakage` refuses a system, or empty."""
    refused = read_leakage(out, task, system).get("refused", "")
    return f"{candidate.label}: {refused}; remove the copies, or take new test rows" if refused else ""
