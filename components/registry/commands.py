"""What a person does with the champion of a task, and asks about it: rollback, choice of a version, history.

The commands take no lock of the repository. They are changes of the ledger like any other, which take effect within
seconds while a retraining runs; its decision sees them.
"""

from __future__ import annotations

from datetime import UTC, datetime, time

from components.errors import ConfigError, RegistryError
from components.registry.alias_changes import move, observe, roll_back
from components.registry.ledger import Ledger
from components.registry.ledger_entries import Change, Entry, State, in_words, taint_in_words
from components.settings.registry import RegistrySettings
from components.tracking import Registry, Version, connect


def rollback(settings: RegistrySettings, task: str, *, to: str = "", reason: str = "") -> list[str]:
    """Restore an earlier champion of a task. The contents of the champions after it are not promoted automatically any
    more, even if they are registered again.

    Args:
        settings: `params.registry`.
        task: name of the task.
        to: version number; by default the previous champion. Deleted versions are passed over.
        reason: why, for the ledger.

    Returns:
        Lines for the user.

    Raises:
        RegistryError: there is no champion, no previous one, or `to` was not a champion or was deleted.
    """
    registry = connect(settings)
    model, alias = settings.model_name(task), settings.alias
    _, number, restored, passed = roll_back(
        registry, Ledger(registry), model=model, alias=alias, to=to, reason=reason.strip()
    )
    lines = [f"version {deleted} was deleted and is passed over" for deleted in passed]
    return [*lines, f"{model}@{alias}: version {restored.number} restored, version {number} rolled back"]


def assign(settings: RegistrySettings, task: str, *, version: str, reason: str, force: bool = False) -> str:
    """Make a version the champion of a task without a comparison. It stays until a new candidate is better.

    Args:
        settings: `params.registry`.
        task: name of the task.
        version: number of the version.
        reason: why, for the ledger.
        force: whether a version that has learned from removed documents is accepted.

    Returns:
        A line for the user.

    Raises:
        ConfigError: the reason is empty.
        RegistryError: there is no such version, it is no classifier of Headstart, it is the champion already, or it is
            tainted.
    """
    if not reason.strip():
        raise ConfigError("--reason: is empty; say why this version becomes the champion")
    registry = connect(settings)
    model, alias = settings.model_name(task), settings.alias
    chosen = registry.find_number(model, version)
    if chosen is None:
        known = ", ".join(found.number for found in registry.versions(model))
        raise RegistryError(f"{model}: has no version {version}; existing versions: {known or 'none'}")
    if not chosen.digest or chosen.tags.get("kind") != "classifier":
        raise RegistryError(f"{chosen.label}: was not registered by Headstart as a classifier; choose another version")
    ledger = Ledger(registry)
    state, present, _ = observe(registry, ledger, model=model, alias=alias, missing_ok=True)
    if present is not None and present.number == chosen.number:
        raise RegistryError(f"{model}@{alias}: version {version} is the champion already")
    if (taint := state.tainted.get(chosen.digest)) is not None and not force:
        raise RegistryError(f"{chosen.label} {taint_in_words(taint)}; choose another version, or add --force")
    before = state.last.after if state.last is not None else "none"
    move(registry, ledger, state, action="assign", after=chosen, reasons=[reason.strip()])
    return f"{model}@{alias}: version {chosen.number} is the champion, version {before} was"


def describe_champion(settings: RegistrySettings, task: str, *, at: str = "") -> list[str]:
    """Which version is or was the champion, since when, by whom and why.

    Args:
        settings: `params.registry`.
        task: name of the task.
        at: date or time in ISO 8601, UTC unless it has an offset; a date stands for its end. By default now.

    Returns:
        Lines for the user.

    Raises:
        ConfigError: `at` is no date.
        RegistryError: there was no champion.
    """
    registry = connect(settings)
    model, alias = settings.model_name(task), settings.alias
    state = Ledger(registry).state(model, alias)
    moment = parse_time(at) if at else datetime.now(UTC)
    change = state.at(moment)
    if change is None and (at or registry.alias(model, alias) is None):
        first = f"; the first one is of {_time(state.changes[0].entry)}" if state.changes else ""
        raise RegistryError(f"{model}@{alias}: had no champion at {moment:%Y-%m-%d %H:%M:%S} UTC{first}")
    lines = _described(registry, state, change) if change is not None else []
    return lines + ([] if at else [*_difference(registry, state), *_taint(state, registry.alias(model, alias))])


def _taint(state: State, champion: Version | None) -> list[str]:
    entry = state.tainted.get(champion.digest) if champion is not None else None
    if champion is None or entry is None:
        return []
    return [
        f"warning: the champion, version {champion.number}, {taint_in_words(entry)}; retrain, so that a clean model "
        "replaces it"
    ]


def _described(registry: Registry, state: State, change: Change) -> list[str]:
    index = state.changes.index(change)
    until = f" until {_time(state.changes[index + 1].entry)}" if index + 1 < len(state.changes) else ""
    deleted = "" if registry.find_number(state.model, change.after) else " (deleted since)"
    lines = [
        f"{state.model}@{state.alias}: version {change.after}{deleted} since {_time(change.entry)}{until}",
        f"  {in_words(change.entry)}",
    ]
    if change.action == "hand":
        earliest = f"after {_time(state.changes[index - 1].entry)} and " if index else ""
        lines.append(f"  the move itself took place {earliest}before {_time(change.entry)}, when it was found")
    return lines


def _difference(registry: Registry, state: State) -> list[str]:
    """What a person has changed in MLflow since the last entry; the next decision or command records it."""
    present = registry.alias(state.model, state.alias)
    expected = state.last.after if state.last is not None else None
    if (present.number if present is not None else None) == expected:
        return []
    if present is None:
        return [f"{state.model}@{state.alias}: the alias or its version was deleted in MLflow"]
    return [f"{state.model}@{state.alias}: now points to version {present.number}, set by hand in MLflow"]


def history(settings: RegistrySettings, task: str = "") -> list[str]:
    """The ledger in words, oldest first: of a task, or of all models in the registry; empty without entries.

    Raises:
        RegistryError: the registry cannot be reached.
    """
    entries = Ledger(connect(settings)).entries(settings.model_name(task) if task else None)
    return [f"{_time(entry)}  {in_words(entry)}" for entry in sorted(entries, key=lambda entry: entry.order)]


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
