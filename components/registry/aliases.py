"""Changes of the alias that names the champion: each is recorded in the ledger, applied, and marked as done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from components.core.errors import RegistryError
from components.registry.ledger import (
    ABANDONED,
    OWN,
    RECOVERED,
    ROLLED_BACK,
    Action,
    Entry,
    Ledger,
    OvertakenError,
    State,
    is_version,
    missing_champion,
)
from components.registry.tracking import Registry, Version

#: Upper limit of the time between the record of a change and its writer's last request to set the alias.
LATE = timedelta(minutes=10)


def observe(
    registry: Registry, ledger: Ledger, *, model: str, alias: str, missing_ok: bool = False
) -> tuple[State, Version | None, list[str]]:
    """Compare an alias with the ledger: complete what another process has begun, and record what a person has changed
    in MLflow. `missing_ok`: whether a deleted champion is returned as None instead of being an error. Returns (state,
    version that the alias points to or None if nothing was promoted yet, one sentence per completed, abandoned or
    hand-made change). Raises RegistryError: the champion or its alias was deleted."""
    sentences: list[str] = []
    while True:
        state = ledger.state(model, alias)
        present, last = registry.alias(model, alias), state.last
        number = present.number if present is not None else None
        begun = last if last is not None and not last.mark else None
        what = (
            f"interrupted {begun['action']} of {model} from version {begun['before'] or 'none'} to {begun['after']}"
            if begun
            else ""
        )
        if last is not None and present is not None and is_version(present, last["after"], last["after_digest"]):
            if begun is not None:
                ledger.mark(begun, RECOVERED)
                sentences.append(f"{what}: finished")
            return state, present, sentences
        if begun is not None and number == begun["before"]:
            if (intended := registry.find_number(model, begun["after"])) is not None:
                registry.set_alias(model, alias, intended)
                continue
            ledger.mark(begun, ABANDONED)
            sentences.append(f"{what}: abandoned, version {begun['after']} was deleted")
        elif last is not None and present is not None and _is_late(state, present):
            if (intended := registry.find_number(model, last["after"])) is None:
                raise RegistryError(missing_champion(registry, state))
            registry.set_alias(model, alias, intended)
        elif present is not None and begun is not None:
            ledger.mark(begun, ABANDONED)
            sentences.append(f"{what}: abandoned, the alias now points to version {number}")
        elif present is not None:
            try:
                entry = _change(ledger, state, "hand", present, reasons=["the alias differed from the last entry"])
            except OvertakenError:
                continue
            ledger.mark(entry, OWN)
            sentences.append(f"{model}@{alias}: version {number} was set by hand in MLflow; it is respected")
        elif last is None or missing_ok:
            return state, None, sentences
        else:
            raise RegistryError(missing_champion(registry, state))


def _is_late(state: State, present: Version) -> bool:
    """Whether the alias may have been set by a writer whose change was superseded meanwhile."""
    recently = datetime.now(UTC) - LATE
    return any(
        change.mark != OWN and change.time > recently and is_version(present, change["after"], change["after_digest"])
        for change in state.changes[:-1]
    )


def _change(
    ledger: Ledger, state: State, action: Action, after: Version, *, reasons: Sequence[str], vetoes: Sequence[str] = ()
) -> Entry:
    facts = {
        "action": action,
        "before": state.last["after"] if state.last is not None else None,
        "after": after.number,
        "before_digest": state.last["after_digest"] if state.last is not None else "",
        "after_digest": after.digest,
        "reasons": list(reasons),
        "vetoes": list(vetoes),
    }
    return ledger.append("change", model=state.model, alias=state.alias, facts=facts, seen=state)


def move(
    registry: Registry,
    ledger: Ledger,
    state: State,
    *,
    action: Action,
    after: Version,
    reasons: Sequence[str],
    vetoes: Sequence[str] = (),
) -> State:
    """Record a change and set the alias. `vetoes`: content digests that are not promoted automatically from now on.
    Returns the state afterwards, in which another change may be the last. Raises OvertakenError: another change was
    recorded since `state`; nothing was changed."""
    model, alias = state.model, state.alias
    change = _change(ledger, state, action, after, reasons=reasons, vetoes=vetoes)
    present = registry.alias(model, alias)
    if present is not None and present.number not in (change["before"], change["after"]):
        ledger.mark(change, ABANDONED)
        where = f"{model}@{alias}: the alias was moved to version {present.number} by hand meanwhile"
        raise OvertakenError(f"{where}; run this again")
    newest = change
    while True:
        registry.set_alias(model, alias, registry.get(model, newest["after"]))
        recorded = ledger.state(model, alias)
        # Another process may have recorded and applied a newer change before the request above.
        if recorded.last is None or recorded.last.position == newest.position:
            break
        newest = recorded.last
    ledger.mark(change, OWN)
    for version in registry.versions(model) if vetoes else ():
        if version.digest in vetoes:
            registry.set_tag(version, ROLLED_BACK, change.time.isoformat(timespec="seconds"))
    return recorded
