"""Changes of an alias, recorded in the ledger.

A change is recorded, applied to the alias, and marked as done. MLflow sets an alias without a condition, so a writer
that is suspended before its request could overwrite a newer change. Each writer therefore reads the ledger again after
it has set the alias, and applies the newest change. What a process that died has left is completed by the next one
(`observe`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from components.errors import RegistryError
from components.registry.ledger import Ledger
from components.registry.ledger_entries import OWN, RECOVERED, Action, Change, State, taint_in_words
from components.tracking import Registry, Version

#: Tag of a version that was rolled back; its value is the time. For people: the ledger holds the vetoes.
ROLLED_BACK = "rolled_back"
#: Tag of a version that has learned from a document that was removed since; its value is the certificate. For people:
#: the ledger holds the digests.
TAINTED = "tainted"
#: Upper limit of the time between the record of a change and its writer's last request to set the alias.
LATE = timedelta(minutes=10)


class OvertakenError(RegistryError):
    """Another change of the alias was recorded first."""


def observe(
    registry: Registry, ledger: Ledger, *, model: str, alias: str, missing_ok: bool = False
) -> tuple[State, Version | None, list[str]]:
    """Compare an alias with the ledger: complete what another process has begun, and record what a person has changed
    in MLflow.

    Args:
        registry: with the alias.
        ledger: of the registry.
        model: registered model.
        alias: of the model.
        missing_ok: whether a deleted champion is returned as None instead of being an error.

    Returns:
        (state, version that the alias points to or None if nothing was promoted yet, one sentence per completed,
        abandoned or hand-made change).

    Raises:
        RegistryError: the champion or its alias was deleted. The ledger records it as an alarm.
    """
    sentences: list[str] = []
    while True:
        state = ledger.state(model, alias)
        present = registry.alias(model, alias)
        number = present.number if present is not None else None
        last = state.last
        if last is not None and present is not None and _is_version(present, last.after, last.after_digest):
            if not last.entry.done:
                ledger.mark_done(last, RECOVERED)
                sentences.append(f"interrupted {_what(last)}: finished")
            return state, present, sentences
        if last is not None and not last.entry.done and number == last.before:
            if (intended := registry.find_number(model, last.after)) is not None:
                registry.set_alias(model, alias, intended)
            else:
                reason = f"version {last.after} was deleted"
                _abandon(ledger, state, last, reason)
                sentences.append(f"interrupted {_what(last)}: abandoned, {reason}")
        elif last is not None and number is not None and _is_late(state, number):
            if (intended := registry.find_number(model, last.after)) is None:
                raise RegistryError(_deleted(registry, state))
            registry.set_alias(model, alias, intended)
        elif present is not None:
            if last is not None and not last.entry.done:
                reason = f"the alias now points to version {number}"
                _abandon(ledger, state, last, reason)
                sentences.append(f"interrupted {_what(last)}: abandoned, {reason}")
                continue
            facts = _facts("hand", last, present, reasons=["the alias differed from the last entry"])
            entry = ledger.append("change", model=model, alias=alias, expect=state.position, facts=facts)
            accepted = ledger.state(model, alias).last
            if accepted is not None and accepted.entry.id == entry.id:
                ledger.mark_done(accepted, OWN)
                sentences.append(f"{model}@{alias}: version {number} was set by hand in MLflow; it is respected")
        elif last is None or missing_ok:
            return state, None, sentences
        else:
            reason = _deleted(registry, state)
            if not state.alarmed:
                ledger.append("alarm", model=model, alias=alias, facts={"reason": reason})
            raise RegistryError(reason)


def _is_version(found: Version, number: str, digest: str) -> bool:
    """Whether it is the version that the ledger means: numbers start again if a registered model is deleted."""
    return found.number == number and (not digest or found.digest == digest)


def _what(change: Change) -> str:
    return f"{change.action} of {change.entry.model} from version {change.before or 'none'} to {change.after}"


def _is_late(state: State, number: str) -> bool:
    """Whether the alias may have been set by a writer whose change was superseded meanwhile."""
    recently = datetime.now(UTC) - LATE
    return any(
        change.after == number and change.entry.done != OWN and change.entry.time > recently
        for change in state.changes[:-1]
    )


def _deleted(registry: Registry, state: State) -> str:
    assert state.last is not None
    number, digest = state.last.after, state.last.after_digest
    found = registry.find_number(state.model, number)
    exists = found is not None and _is_version(found, number, digest)
    what = "the alias was deleted" if exists else "the version was deleted"
    return (
        f"{state.model}@{state.alias}: version {number} was the champion, and {what} in MLflow; choose a champion "
        "with `headstart promote --version V --reason TEXT` or `headstart rollback`, or restore the alias in MLflow"
    )


def missing_champion(registry: Registry, *, model: str, alias: str) -> str:
    """Why an alias does not exist: the champion was deleted (a message), or nothing was promoted yet (empty)."""
    state = Ledger(registry).state(model, alias)
    return _deleted(registry, state) if state.last is not None else ""


def _facts(
    action: Action, last: Change | None, after: Version, *, reasons: Sequence[str], vetoes: Sequence[str] = ()
) -> dict[str, Any]:
    return {
        "action": action,
        "before": last.after if last is not None else None,
        "after": after.number,
        "before_digest": last.after_digest if last is not None else "",
        "after_digest": after.digest,
        "reasons": list(reasons),
        "vetoes": list(vetoes),
    }


def _abandon(ledger: Ledger, state: State, change: Change, reason: str) -> None:
    facts = {"change": change.entry.id, "reason": reason}
    ledger.append("abandoned", model=state.model, alias=state.alias, expect=state.position, facts=facts)


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
    """Record a change and set the alias.

    Args:
        registry: with the alias.
        ledger: of the registry.
        state: that the change is based on, as `observe` returned it.
        action: what is done.
        after: the new champion.
        reasons: sentences.
        vetoes: content digests that are not promoted automatically from now on.

    Returns:
        The state afterwards. Its last change is another one if that was recorded meanwhile.

    Raises:
        OvertakenError: another change was recorded since `state`; nothing was changed.
        RegistryError: the alias cannot be set.
    """
    model, alias = state.model, state.alias
    facts = _facts(action, state.last, after, reasons=reasons, vetoes=vetoes)
    entry = ledger.append("change", model=model, alias=alias, expect=state.position, facts=facts)
    recorded = ledger.state(model, alias)
    change = next((change for change in recorded.changes if change.entry.id == entry.id), None)
    if change is None:
        raise OvertakenError(_overtaken(recorded, state))
    present = registry.alias(model, alias)
    if recorded.last is change and present is not None and present.number not in (change.before, change.after):
        reason = f"the alias was moved to version {present.number} by hand meanwhile"
        _abandon(ledger, recorded, change, reason)
        raise OvertakenError(f"{model}@{alias}: {reason}; run this again")
    while True:
        newest = recorded.last
        if newest is None:
            raise OvertakenError(_overtaken(recorded, state))
        version = registry.find_number(model, newest.after)
        if version is None:
            _abandon(ledger, recorded, newest, f"version {newest.after} was deleted")
            raise RegistryError(f"{model}/{newest.after}: was deleted meanwhile; run this again")
        registry.set_alias(model, alias, version)
        # Another process may have recorded and applied a newer change before the request above.
        recorded = ledger.state(model, alias)
        if recorded.last is not None and recorded.last.entry.id == newest.entry.id:
            break
    ledger.mark_done(change, OWN)
    for version in registry.versions(model) if vetoes else ():
        if version.digest in vetoes:
            registry.set_tag(version, ROLLED_BACK, entry.time.isoformat(timespec="seconds"))
    return recorded


def _overtaken(recorded: State, state: State) -> str:
    before = state.last.after if state.last is not None else "none"
    now = recorded.last.after if recorded.last is not None else "none"
    return f"{state.model}@{state.alias}: was moved from version {before} to {now} meanwhile; run this again"


def roll_back(
    registry: Registry, ledger: Ledger, *, model: str, alias: str, to: str = "", reason: str = ""
) -> tuple[State, str, Version, list[str]]:
    """Restore an earlier champion. The contents of the champions after it are vetoed.

    Args:
        registry: with the alias.
        ledger: of the registry.
        model: registered model.
        alias: of the model.
        to: version number; by default the previous champion that exists and is not vetoed.
        reason: why, for the ledger.

    Returns:
        (state afterwards, number of the version that was the champion, restored version, numbers of the champions
        between them that were passed over because they were deleted).

    Raises:
        RegistryError: there is no champion, no previous one, or `to` was not a champion, was deleted or is tainted.
    """
    state, _, _ = observe(registry, ledger, model=model, alias=alias, missing_ok=True)
    if state.last is None:
        raise RegistryError(f"{model}: has no champion to roll back")
    *earlier, (number, digest) = state.champions
    found, passed, tainted = None, [], dict[str, str]()
    for index in reversed(range(len(earlier))):
        candidate, content = earlier[index]
        if candidate == number or (content and (content == digest or (content in state.vetoes and not to))):
            continue
        if to and candidate != to:
            continue
        version = registry.find_number(model, candidate)
        if version is not None and _is_version(version, candidate, content):
            if (taint := state.tainted.get(version.digest)) is not None:
                tainted[candidate] = f"version {candidate} {taint_in_words(taint)}"
                continue
            found = (index, version)
            break
        passed.append(candidate)
    if found is None:
        known = ", ".join(dict.fromkeys(candidate for candidate, _ in reversed(earlier) if candidate != number))
        what = f"version {to} is no champion before version {number} that exists" if to else ""
        what = what or f"no champion is recorded before version {number} that still exists"
        if tainted:
            what = "; ".join(tainted.values())
        hint = f" (champions: {known})" if known else ""
        raise RegistryError(f"{model}: {what}{hint}; choose one with `headstart promote --version V --reason TEXT`")
    index, restored = found
    contents = [content for _, content in state.champions[index + 1 :] if content and content != restored.digest]
    vetoes, reasons = list(dict.fromkeys(contents)), [reason] if reason else []
    after = move(registry, ledger, state, action="rollback", after=restored, reasons=reasons, vetoes=vetoes)
    return after, number, restored, passed
