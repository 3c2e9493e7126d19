"""Versions without files, changes of their alias, and entries of the ledger: no change of an alias reads a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from components.registry.alias_changes import OvertakenError, move, observe
from components.registry.ledger import Ledger
from components.registry.ledger_entries import OWN, Entry, State
from components.settings.registry import RegistrySettings
from components.tracking import Registry, Version, connect

M, A = "headstart-letters", "champion"
START = datetime(2026, 11, 24, 3, tzinfo=UTC)


def add(registry: Registry, digest: str) -> Version:
    """Register a version with this content digest."""
    number = registry.append(M, tags={"digest": digest, "kind": "classifier"}, text="", about="")
    return registry.get(M, str(number))


def number(registry: Registry) -> str | None:
    version = registry.alias(M, A)
    return version.number if version is not None else None


def set_by_hand(registry: Registry, version: str) -> None:
    registry.client.set_registered_model_alias(M, A, version)


def promote(registry: Registry, version: Version, action: Any = "promote", **facts: Any) -> State:
    ledger = Ledger(registry)
    state, _, _ = observe(registry, ledger, model=M, alias=A)
    return move(registry, ledger, state, action=action, after=version, reasons=["better"], **facts)


def change(position: int, after: str, *, expect: int | None, action: str = "promote", **changes: Any) -> Entry:
    """The entry of a change at a position of the ledger."""
    facts = {
        "action": action,
        "before": None,
        "after": after,
        "before_digest": "",
        "after_digest": f"d{after}",
        "reasons": [],
        "vetoes": [],
    }
    time = START + timedelta(days=position)
    entry = Entry(position, f"c{position}", time, "change", M, A, "nina@host", expect, OWN, facts=facts)
    return replace(entry, **changes)


def _contend(uri: str, rounds: int, barrier: Any, version: str, results: Any) -> None:
    registry = connect(RegistrySettings(tracking=uri))
    ledger, own = Ledger(registry), registry.get(M, version)
    for _ in range(rounds):
        state, _, _ = observe(registry, ledger, model=M, alias=A)
        barrier.wait(120)
        try:
            move(registry, ledger, state, action="promote", after=own, reasons=[])
            results.put((state.position, version))
        except OvertakenError:
            results.put((state.position, None))
        barrier.wait(120)


def contend(uri: str, *, rounds: int, starter: Callable[..., Any], barrier: Any, results: Any) -> None:
    """Two processes change the same state at once, several times: in each round exactly one wins, and the alias is the
    last winner's."""
    registry = connect(RegistrySettings(tracking=uri))
    first, *rivals = (add(registry, digest) for digest in ("a", "b", "c"))
    begun = len(promote(registry, first).changes)
    workers = [starter(target=_contend, args=(uri, rounds, barrier, rival.number, results)) for rival in rivals]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=240) for _ in range(2 * rounds)]
    for worker in workers:
        worker.join(60)
    winners: dict[int, list[str]] = {}
    for position, version in found:
        winners.setdefault(position, []).extend([version] if version else [])
    assert len(winners) == rounds, "both started each round from the same state"
    assert all(len(versions) == 1 for versions in winners.values())
    state = Ledger(registry).state(M, A)
    assert [change.after for change in state.changes[begun:]] == [winners[position][0] for position in sorted(winners)]
    assert number(registry) == winners[max(winners)][0]
