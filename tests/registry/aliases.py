"""Versions without files, changes of their alias, and entries of the ledger: no change of an alias reads a model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from mlflow.exceptions import MlflowException

from components.registry.ledger import OWN, Entry, Ledger, OvertakenError, State, move, observe
from components.registry.tracking import Registry, Version, connect
from components.settings.registry import RegistrySettings

M, A = "headstart-letters", "champion"
START = datetime(2026, 11, 24, 3, tzinfo=UTC)


def add(registry: Registry, digest: str, to: str = M, **tags: str) -> Version:
    """Register a version with this content digest and without files."""
    with suppress(MlflowException):
        registry.client.create_registered_model(to)
    tags = {"digest": digest, "kind": "classifier", **tags}
    version = registry.client.create_model_version(to, "headstart:/no-files", tags=registry.tags(tags))
    return registry.get(to, str(version.version))


def number(registry: Registry) -> str | None:
    version = registry.alias(M, A)
    return version.number if version is not None else None


def set_by_hand(registry: Registry, version: str) -> None:
    registry.client.set_registered_model_alias(M, A, version)


def state_of(registry: Registry) -> State:
    return Ledger(registry).state(M)


def observed(registry: Registry) -> tuple[State, Version | None, list[str]]:
    return observe(Ledger(registry), M)


def promote(registry: Registry, version: Version, action: Any = "promote", **facts: Any) -> State:
    ledger = Ledger(registry)
    state, _, _ = observed(registry)
    return move(ledger, state, action=action, after=version, reasons=["better"], **facts)


def begun(registry: Registry, digests: str) -> list[Version]:
    """A version of each digest, a letter; the first one is promoted."""
    versions = [add(registry, digest) for digest in digests]
    promote(registry, versions[0])
    return versions


def change(position: int, after: str, action: str = "promote", **changes: Any) -> Entry:
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
    return replace(Entry(position, time, "change", M, A, "nina@host", facts=facts, mark=OWN), **changes)


def _contend(uri: str, rounds: int, barrier: Any, version: str, results: Any) -> None:
    registry = connect(RegistrySettings(tracking=uri))
    ledger, mine = Ledger(registry), registry.get(M, version)
    for _ in range(rounds):
        state, _, _ = observed(registry)
        barrier.wait(120)
        try:
            move(ledger, state, action="promote", after=mine, reasons=[])
            results.put((len(state.changes), version))
        except OvertakenError:
            results.put((len(state.changes), None))
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
    ends = [results.get(timeout=240) for _ in range(2 * rounds)]
    for worker in workers:
        worker.join(60)
    winners: dict[int, list[str]] = {}
    for position, version in ends:
        winners.setdefault(position, []).extend([version] if version else [])
    assert len(winners) == rounds, "both started each round from the same state"
    assert all(len(versions) == 1 for versions in winners.values())
    state = Ledger(registry).state(M)
    order = [winners[position][0] for position in sorted(winners)]
    assert [change["after"] for change in state.changes[begun:]] == order
    assert number(registry) == order[-1]
