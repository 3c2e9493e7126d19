"""Versions that have learned from documents that were removed since: the record of them, and their successors."""

from __future__ import annotations

from collections.abc import Sequence

from components.registry.alias_changes import TAINTED
from components.registry.ledger import LEDGER, Ledger
from components.registry.ledger_entries import State
from components.tracking import Registry, Version


def record_taints(
    registry: Registry, tainted: Sequence[Version], *, certificate: str, documents: int, reason: str
) -> None:
    """Tag the versions, and append an entry to the ledger for every model of the registry, so that models which are
    trained from tainted ones later are recognised too.

    Args:
        registry: of the versions.
        tainted: versions that have learned from the documents.
        certificate: name of the certificate of removal.
        documents: number of documents.
        reason: for the ledger.
    """
    contents = list(dict.fromkeys(version.digest for version in tainted))
    if not contents:
        return
    ledger = Ledger(registry)
    for model in registry.models():
        if model == LEDGER:
            continue
        own = [version for version in tainted if version.name == model]
        facts = {
            "certificate": certificate,
            "documents": documents,
            "tainted": {version.number: version.digest for version in own},
            "contents": contents,
            "reason": reason or "documents removed",
        }
        ledger.append("taint", model=model, alias=registry.settings.alias, facts=facts)
        for version in own:
            registry.set_tag(version, TAINTED, certificate)


def tainted_ancestor(registry: Registry, state: State, version: Version) -> Version | None:
    """The version, or the model that it was initialised from, that has learned from removed documents; None if none
    has."""
    found: Version | None = version
    while found is not None and found.digest not in state.tainted:
        name, _, number = found.tags.get("parent", "").rpartition("/")
        found = registry.find_number(name, number) if name else None
    return found
