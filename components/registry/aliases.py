"""Changes of the alias that names the champion, and the commands for them: rollback, choice of a version, history.

Each change is recorded in the ledger, applied, and marked as done. The commands take no lock; a retraining that is
running sees the change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING

from components.core.errors import ConfigError, RegistryError
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
    in_words,
    is_version,
    missing_champion,
    none_promoted,
    taint_in_words,
)
from components.registry.reading import Reading
from components.registry.version import Version, numbered
from components.settings.registry import RegistrySettings, with_models

if TYPE_CHECKING:
    from components.registry.tracking import Registry

#: Upper limit of the time between the record of a change and its writer's last request to set the alias.
LATE = timedelta(minutes=10)


def observe(
    registry: Registry, ledger: Ledger, *, model: str, alias: str, missing_ok: bool = False
) -> tuple[State, Version | None, list[str]]:
    """Compare an alias with the ledger: complete what another process has begun, and record what a person has changed
    in MLflow.

    Args:
        missing_ok: whether a deleted champion is returned as None instead of being an error.

    Returns:
        (state, version that the alias points to or None if nothing was promoted yet, one sentence per completed,
        abandoned or hand-made change).

    Raises:
        RegistryError: the champion or its alias was deleted.
    """
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
    """Record a change and set the alias.

    Args:
        vetoes: content digests that are not promoted automatically from now on.

    Returns:
        The state afterwards. Its last change is another one if that was recorded meanwhile.

    Raises:
        OvertakenError: another change was recorded since `state`; nothing was changed.
    """
    model, alias = state.model, state.alias
    change = _change(ledger, state, action, after, reasons=reasons, vetoes=vetoes)
    present = registry.alias(model, alias)
    if present is not None and present.number not in (change["before"], change["after"]):
        ledger.mark(change, ABANDONED)
        what = f"{model}@{alias}: the alias was moved to version {present.number} by hand meanwhile"
        raise OvertakenError(what, do="run this again")
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
    Reading(registry.settings, registry=registry).renew()
    return recorded


def rollback(settings: RegistrySettings, task: str, *, to: str = "", reason: str = "") -> list[str]:
    """Restore an earlier champion of a task; lines for the user. The contents of the champions after it are vetoed:
    they are not promoted automatically any more, even if they are registered again. `to`: version number; by default
    the previous champion that exists and is not vetoed. Raises RegistryError: there is no champion, no previous one, or
    `to` was not a champion, was deleted or is tainted."""
    from components.registry.tracking import connect

    registry = connect(with_models(settings))
    ledger, model, alias = Ledger(registry), settings.model_name(task), settings.alias
    state, _, _ = observe(registry, ledger, model=model, alias=alias, missing_ok=True)
    if state.last is None:
        raise RegistryError(f"{model}: has no champion to roll back")
    *earlier, (number, digest) = state.champions
    lines: list[str] = []
    tainted: dict[str, str] = {}
    for index, (candidate, content) in reversed(list(enumerate(earlier))):
        if candidate == number or (content and (content == digest or (content in state.vetoes and not to))):
            continue
        if to and candidate != to:
            continue
        version = registry.find_number(model, candidate)
        if version is None or not is_version(version, candidate, content):
            lines.append(f"version {candidate} was deleted and is passed over")
        elif (taint := state.tainted.get(version.digest)) is not None:
            tainted[candidate] = f"version {candidate} {taint_in_words(taint)}"
        else:
            vetoes = {content for _, content in state.champions[index + 1 :] if content and content != version.digest}
            reasons = [reason.strip()] if reason.strip() else []
            move(registry, ledger, state, action="rollback", after=version, reasons=reasons, vetoes=sorted(vetoes))
            return [*lines, f"{model}@{alias}: version {candidate} restored, version {number} rolled back"]
    what = "; ".join(tainted.values())
    what = what or (f"version {to} is no champion before version {number} that exists" if to else "")
    what = what or f"no champion is recorded before version {number} that still exists"
    others = ", ".join(dict.fromkeys(candidate for candidate, _ in reversed(earlier) if candidate != number))
    hint = f" (champions: {others})" if others else ""
    raise RegistryError(f"{model}: {what}{hint}; choose one with `headstart promote --version V --reason TEXT`")


def assign(settings: RegistrySettings, task: str, *, version: str, reason: str, force: bool = False) -> str:
    """Make a version the champion of a task without a comparison; a line for the user. It stays until a new candidate
    is better. `force`: whether a version that has learned from removed documents is accepted."""
    if not reason.strip():
        raise ConfigError("--reason: is empty; say why this version becomes the champion")
    from components.registry.tracking import connect

    registry = connect(with_models(settings))
    model, alias = settings.model_name(task), settings.alias
    chosen = numbered(registry, model, version)
    if not chosen.digest or chosen.tags.get("kind") != "classifier":
        raise RegistryError(f"{chosen.label}: was not registered by Headstart as a classifier; choose another version")
    ledger = Ledger(registry)
    state, present, _ = observe(registry, ledger, model=model, alias=alias, missing_ok=True)
    if present is not None and present.number == chosen.number:
        raise RegistryError(f"{model}@{alias}: version {version} is the champion already")
    if (taint := state.tainted.get(chosen.digest)) is not None and not force:
        raise RegistryError(f"{chosen.label} {taint_in_words(taint)}; choose another version, or add --force")
    before = f"version {state.last['after']} was" if state.last is not None else "there was none"
    move(registry, ledger, state, action="assign", after=chosen, reasons=[reason.strip()])
    return f"{model}@{alias}: version {chosen.number} is the champion, {before}"


def describe_champion(settings: RegistrySettings, task: str, *, at: str = "") -> list[str]:
    """Which version is or was the champion, since when, by whom and why; lines for the user. `at`: date or time in ISO
    8601, UTC unless it has an offset; a date stands for its end. By default now."""
    registry = Reading(with_models(settings))
    model, alias = settings.model_name(task), settings.alias
    state, present = Ledger(registry).state(model, alias), registry.alias(model, alias)
    moment = parse_time(at) if at else datetime.now(UTC)
    change = state.at(moment)
    if not at and present is None and state.last is None:
        raise RegistryError(none_promoted(registry, model, task))
    if change is None and (at or present is None):
        first = f"; the first one is of {_time(state.changes[0])}" if state.changes else ""
        raise RegistryError(f"{model}@{alias}: had no champion at {moment:%Y-%m-%d %H:%M:%S} UTC{first}")
    lines = _described(registry, state, change) if change is not None else []
    if at:
        return lines
    number = present.number if present is not None else None
    if number != (state.last["after"] if state.last is not None else None):  # the next decision or command records it
        what = f"now points to version {number}, set by hand" if number else "the alias or its version was deleted"
        lines.append(f"{model}@{alias}: {what} in MLflow")
    if present is not None and (taint := state.tainted.get(present.digest)) is not None:
        what = f"the champion, version {number}, {taint_in_words(taint)}"
        lines.append(f"warning: {what}; retrain, so that a clean model replaces it")
    return lines


def _described(registry: Reading, state: State, change: Entry) -> list[str]:
    index = state.changes.index(change)
    until = f" until {_time(state.changes[index + 1])}" if index + 1 < len(state.changes) else ""
    deleted = "" if registry.find_number(state.model, change["after"]) else " (deleted since)"
    subject = f"{state.model}@{state.alias}: version {change['after']}{deleted}"
    lines = [f"{subject} since {_time(change)}{until}", f"  {in_words(change)}"]
    if change["action"] == "hand":
        earliest = f"after {_time(state.changes[index - 1])} and " if index else ""
        lines.append(f"  the move itself took place {earliest}before {_time(change)}, when it was found")
    return lines


def history(settings: RegistrySettings, task: str = "") -> list[str]:
    """The ledger in words, oldest first: of a task, or of all models in the registry; empty without entries."""
    entries = Ledger(Reading(with_models(settings))).entries(settings.model_name(task) if task else None)
    return [f"{_time(entry)}  {in_words(entry)}" for entry in entries]


def parse_time(text: str) -> datetime:
    """A date (its last microsecond) or time in ISO 8601; UTC unless it has an offset.

    Raises:
        ConfigError: it is neither.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"--at: {text!r} is no date or time; write 2026-11-24 or 2026-11-24T03:00") from error
    if len(text) <= len("2026-11-24"):
        moment = datetime.combine(moment, time.max)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _time(entry: Entry) -> str:
    return f"{entry.time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
