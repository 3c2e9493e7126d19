"""Decisions in the ledger: what identifies one, and what is written when it is made."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from components.artifacts import read_manifest
from components.registry.descriptions import add_decision
from components.registry.ledger import Ledger
from components.registry.ledger_entries import State
from components.settings.promote import PromotionRule
from components.tracking import Registry, Version

#: Version of the statistical method. Decisions of another version are made again.
METHOD = 3


def decision_key(
    rule: PromotionRule, candidate: Version, champion: Version | None, examples: Path, *, first: bool = False
) -> str:
    """Digest of the inputs of a decision.

    Args:
        rule: that decides.
        candidate: the version that is compared.
        champion: the served version, or None.
        examples: output directory of the stage `examples`.
        first: whether the candidate is compared with chance because no model is shown to be better.
    """
    inputs: dict[str, Any] = {
        "method": METHOD,
        "candidate": [candidate.number, candidate.digest],
        "champion": [champion.number, champion.digest] if champion is not None else None,
        # With the clusters, which are no part of the digest of the split.
        "test": read_manifest(examples).files["test.parquet"],
        # Decides the mode only, which is part of the rule.
        "rule": rule.model_dump(exclude={"tainted_margin"}),
    }
    if first:
        inputs["first"] = True
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def find_decision(state: State, key: str) -> dict[str, Any] | None:
    """The last decision with this key, or None."""
    made = [entry.facts["decision"] for entry in state.decisions if entry.facts["key"] == key]
    return made[-1] if made else None


def record_decision(
    registry: Registry, ledger: Ledger, state: State, candidate: Version, decision: dict[str, Any], *, key: str
) -> None:
    """Write a decision to the ledger, and to the tag and the description of the candidate."""
    ledger.append("decision", model=state.model, alias=state.alias, facts={"key": key, "decision": decision})
    registry.set_tag(candidate, "decision", "; ".join([decision["verdict"], *decision["reasons"]]))
    add_decision(registry, candidate, decision)
