"""The ledger: every decision and every change of an alias, in the tracking database.

The ledger is a registered model of MLflow, `headstart.ledger`, whose versions are the entries (`Registry.append`). The
tracking address may be a database or an MLflow server in front of it, so a table of its own would split the history.
All hosts, clones and addresses of one tracking database share these entries, and MLflow's page shows them.

Entries are totally ordered. A change is conditional: it names the entry that its writer has seen as the last one of the
alias (`expect`), and is accepted if and only if that is still the last one at its position. Every reader replays the
same entries and reaches the same result, so of several simultaneous writers exactly one wins (compare-and-swap).

A change is recorded, applied to the alias, and marked as done. MLflow sets an alias without a condition, so a writer
that is suspended before its request could overwrite a newer change. Each writer therefore reads the ledger again after
it has set the alias, and applies the newest change. What a process that died has left is completed by the next one
(`observe`).

| event     | keys of `facts`                                                                                          |
|-----------|----------------------------------------------------------------------------------------------------------|
| decision  | key (digest of the decision's inputs), decision (as in decision.json)                                    |
| change    | action, before, after (version numbers), before_digest, after_digest, reasons, vetoes (content digests)  |
| abandoned | change (id of a change that was not applied), reason                                                     |
| alarm     | reason: the champion was deleted                                                                         |
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from components.artifacts import write_atomic
from components.errors import ArtifactError, RegistryError
from components.settings.registry import CHAMPION, find_repository
from components.tracking import VALUE_LENGTH, Registry, Version

LEDGER = "headstart.ledger"
#: Version of the entries' format.
SCHEMA = 1
ABOUT = "Ledger of Headstart: decisions and changes of aliases. The versions are entries without files."
#: The file that held the ledger of a clone in earlier versions; it is imported once.
LEGACY = Path(".headstart/ledger.jsonl")
#: Tag of a version that was rolled back; its value is the time. For people: the ledger holds the vetoes.
ROLLED_BACK = "rolled_back"
#: Tag of a change that was applied: by its own writer, or by another process.
DONE, OWN, RECOVERED = "done", "own", "recovered"
#: Upper limit of the time between the record of a change and its writer's last request to set the alias.
LATE = timedelta(minutes=10)

Action = Literal["promote", "rollback", "assign", "hand"]
#: `rollback` and `assign` are the commands of a person, `hand` is a move in MLflow.
BY_PERSON = ("rollback", "assign", "hand")


class OvertakenError(RegistryError):
    """Another change of the alias was recorded first."""


@dataclass(frozen=True)
class Entry:
    """One entry.

    Attributes:
        position: in the total order, from 1.
        id: unique; a repeated request writes the same entry twice.
        time: UTC.
        event: see the table above.
        model: registered model.
        alias: of the model.
        by: user@host.
        expect: position of the alias's last entry as its writer has seen it; None: unconditional.
        done: OWN, RECOVERED or empty.
        legacy: whether it was imported from a file; it precedes all others.
        facts: keys by event.
    """

    position: int
    id: str
    time: datetime
    event: str
    model: str
    alias: str
    by: str
    expect: int | None = None
    done: str = ""
    legacy: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def order(self) -> tuple[bool, float, int]:
        """Sort key: imported entries by their time, then all others by their position."""
        return not self.legacy, self.time.timestamp() if self.legacy else 0.0, self.position


@dataclass(frozen=True)
class Change:
    """An accepted change of an alias; `before` and `after` are version numbers."""

    entry: Entry
    action: Action
    before: str | None
    after: str
    before_digest: str = ""
    after_digest: str = ""
    reasons: tuple[str, ...] = ()
    vetoes: tuple[str, ...] = ()

    @property
    def by_person(self) -> bool:
        """Whether a person decided it."""
        return self.action in BY_PERSON


@dataclass(frozen=True)
class State:
    """The state of one alias after a replay of the ledger.

    Attributes:
        position: that the next change must name as `expect`.
        changes: accepted, oldest first.
        champions: (version, digest) of the champions, the current one last; a rollback removes those after it.
        vetoes: content digest -> the rollback that vetoed it.
        decisions: of the alias, oldest first.
        alarmed: whether the current champion's deletion is recorded.
    """

    model: str
    alias: str
    position: int = 0
    changes: tuple[Change, ...] = ()
    champions: tuple[tuple[str, str], ...] = ()
    vetoes: Mapping[str, Change] = field(default_factory=dict)
    decisions: tuple[Entry, ...] = ()
    alarmed: bool = False

    @property
    def last(self) -> Change | None:
        """The last change, which determines the champion."""
        return self.changes[-1] if self.changes else None

    def at(self, time: datetime) -> Change | None:
        """The change that determined the champion at a time."""
        found = [change for change in self.changes if change.entry.time <= time]
        return found[-1] if found else None

    def held_by(self, digest: str) -> Change | None:
        """The person's change that keeps a content from being promoted automatically, or None.

        A champion that a person has chosen stays until a new candidate is better. Content is not new if it was the
        champion before, or was already compared with the chosen one.
        """
        last = self.last
        if last is None or not last.by_person or not digest or digest == last.after_digest:
            return None
        known = {known for change in self.changes[:-1] for known in (change.before_digest, change.after_digest)}
        known.add(last.before_digest)
        for entry in self.decisions:
            candidate, champion = (entry.facts["decision"].get(key) or {} for key in ("candidate", "champion"))
            if entry.position < last.entry.position and champion.get("digest") == last.after_digest:
                known.add(candidate.get("digest", ""))
        return last if digest in known else None


def replay(entries: Iterable[Entry], *, model: str, alias: str) -> State:
    """The state of an alias after these entries, each with an id of its own."""
    own = [entry for entry in entries if (entry.model, entry.alias) == (model, alias)]
    own.sort(key=lambda entry: entry.order)
    position, changes, decisions, alarm = 0, list[Change](), list[Entry](), 0
    for entry in own:
        match entry.event:
            case "decision":
                decisions.append(entry)
            case "alarm":
                alarm = entry.position
            case "change" | "abandoned":
                # The first change after an import expects 0, because clones may import at different times.
                if entry.expect is not None and entry.expect != position:
                    continue
                position = position if entry.legacy else entry.position
                if entry.event == "change":
                    changes.append(_change(entry))
                else:
                    changes = [change for change in changes if change.entry.id != entry.facts["change"]]
    return State(
        model=model,
        alias=alias,
        position=position,
        changes=tuple(changes),
        champions=tuple(_champions(changes)),
        vetoes=_vetoes(changes),
        decisions=tuple(decisions),
        alarmed=alarm > position,
    )


def _change(entry: Entry) -> Change:
    facts = entry.facts
    return Change(
        entry=entry,
        action=facts["action"],
        before=facts["before"],
        after=facts["after"],
        before_digest=facts.get("before_digest", ""),
        after_digest=facts.get("after_digest", ""),
        reasons=tuple(facts["reasons"]),
        vetoes=tuple(facts.get("vetoes", ())),
    )


def _champions(changes: Sequence[Change]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for change in changes:
        if not found and change.before is not None:
            # Champions before the first entry are known from an imported one only.
            *earlier, _ = change.entry.facts.get("history") or [change.before, change.after]
            found = [(number, "") for number in earlier if number != change.before]
            found.append((change.before, change.before_digest))
        numbers = [number for number, _ in found]
        if change.action == "rollback" and change.after in numbers:
            found = found[: len(numbers) - numbers[::-1].index(change.after)]
        else:
            found.append((change.after, change.after_digest))
    return found


def _vetoes(changes: Sequence[Change]) -> dict[str, Change]:
    found: dict[str, Change] = {}
    for change in changes:
        found |= dict.fromkeys(change.vetoes, change)
        if change.by_person:
            found.pop(change.after_digest, None)  # a person may choose a vetoed content again
    return found


class Ledger:
    """The ledger at one tracking address. Entries that an earlier version of Headstart has written to the file LEGACY
    of this repository are imported first."""

    def __init__(self, registry: Registry, *, legacy: Path | None = None) -> None:
        self.registry = registry
        _import(self, (find_repository(Path()) or Path()) / LEGACY if legacy is None else legacy)

    def append(
        self, event: str, *, model: str, alias: str, expect: int | None = None, facts: Mapping[str, Any]
    ) -> Entry:
        """Write an entry.

        Raises:
            RegistryError: the registry cannot be reached.
        """
        entry = Entry(0, uuid.uuid4().hex, datetime.now(UTC), event, model, alias, _who(), expect, facts=facts)
        return self.write(entry)

    def write(self, entry: Entry) -> Entry:
        """Write an entry whose position is not known yet."""
        content = json.dumps(
            {
                "time": entry.time.isoformat(timespec="milliseconds"),
                "by": entry.by,
                "expect": entry.expect,
                "legacy": entry.legacy,
                "facts": dict(entry.facts),
            }
        )
        parts = [content[start : start + VALUE_LENGTH] for start in range(0, len(content), VALUE_LENGTH)]
        tags = {"schema": str(SCHEMA), "event": entry.event, "model": entry.model, "alias": entry.alias, "id": entry.id}
        tags |= {f"entry.{number:03d}": part for number, part in enumerate(parts)}
        if entry.done:
            tags[DONE] = entry.done
        position = self.registry.append(LEDGER, tags=tags, text=in_words(entry), about=ABOUT)
        return Entry(**{**vars(entry), "position": position})

    def entries(self, model: str | None = None) -> list[Entry]:
        """The entries of a model, or all, oldest first. Entries that were written twice occur once.

        Raises:
            RegistryError: the registry cannot be reached, or an entry was written by a later version.
        """
        versions = self.registry.versions(LEDGER, **({"model": model} if model is not None else {}))
        found: dict[str, Entry] = {}
        for entry in map(_entry, versions):
            found.setdefault(entry.id, entry)
        return list(found.values())

    def state(self, model: str, alias: str) -> State:
        """The present state of an alias."""
        return replay(self.entries(model), model=model, alias=alias)

    def mark_done(self, change: Change, value: str) -> None:
        """Mark a change as applied."""
        if change.entry.done != OWN:
            self.registry.set_tag(Version(LEDGER, str(change.entry.position), "", ""), DONE, value)


def _entry(version: Version) -> Entry:
    tags = version.tags
    if int(tags.get("schema", SCHEMA)) > SCHEMA:
        raise RegistryError(f"{version.label}: written by a later version of Headstart; update this one")
    try:
        content = json.loads("".join(tags[key] for key in sorted(tags) if key.startswith("entry.")))
        return Entry(
            position=int(version.number),
            id=tags["id"],
            time=datetime.fromisoformat(content["time"]),
            event=tags["event"],
            model=tags["model"],
            alias=tags["alias"],
            by=content["by"],
            expect=content["expect"],
            done=tags.get(DONE, ""),
            legacy=content["legacy"],
            facts=content["facts"],
        )
    except (KeyError, ValueError, TypeError) as error:
        raise RegistryError(f"{version.label}: damaged entry of the ledger ({error!r}); delete this version") from error


def _who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


# -- changes ---------------------------------------------------------------------------------------------------------


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
        RegistryError: there is no champion, no previous one, or `to` was not a champion or was deleted.
    """
    state, _, _ = observe(registry, ledger, model=model, alias=alias, missing_ok=True)
    if state.last is None:
        raise RegistryError(f"{model}: has no champion to roll back")
    *earlier, (number, digest) = state.champions
    found, passed = None, []
    for index in reversed(range(len(earlier))):
        candidate, content = earlier[index]
        if candidate == number or (content and (content == digest or (content in state.vetoes and not to))):
            continue
        if to and candidate != to:
            continue
        version = registry.find_number(model, candidate)
        if version is not None and _is_version(version, candidate, content):
            found = (index, version)
            break
        passed.append(candidate)
    if found is None:
        known = ", ".join(dict.fromkeys(candidate for candidate, _ in reversed(earlier) if candidate != number))
        what = f"version {to} is no champion before version {number} that exists" if to else ""
        what = what or f"no champion is recorded before version {number} that still exists"
        hint = f" (champions: {known})" if known else ""
        raise RegistryError(f"{model}: {what}{hint}; choose one with `headstart promote --version V --reason TEXT`")
    index, restored = found
    contents = [content for _, content in state.champions[index + 1 :] if content and content != restored.digest]
    vetoes, reasons = list(dict.fromkeys(contents)), [reason] if reason else []
    after = move(registry, ledger, state, action="rollback", after=restored, reasons=reasons, vetoes=vetoes)
    return after, number, restored, passed


# -- text ------------------------------------------------------------------------------------------------------------


def in_words(entry: Entry) -> str:
    """An entry as a sentence, without its time."""
    facts, who = entry.facts, f"by {entry.by}"
    subject = f"{entry.model}@{entry.alias}"
    match entry.event:
        case "decision":
            decision = facts["decision"]
            candidate, champion = (decision.get(key) or {} for key in ("candidate", "champion"))
            against = f"version {champion['version']}" if champion else decision.get("against", "no champion")
            what = f"version {candidate.get('version', '?')} against {against}: {decision['verdict']}"
            return f"{subject}: {what}, decided {who}: {'; '.join(decision.get('reasons', []))}"
        case "change":
            before, after = facts["before"], facts["after"]
            over = f"over version {before}" if before is not None else "as the first one"
            what = {
                "promote": f"version {after} promoted {over}",
                "rollback": f"version {after} restored, version {before} rolled back",
                "assign": f"version {after} chosen {over}",
                "hand": f"version {after} set by hand in MLflow {over}, found",
            }[facts["action"]]
            return ": ".join([subject, f"{what} {who}", *(["; ".join(facts["reasons"])] if facts["reasons"] else [])])
        case "abandoned":
            return f"{subject}: a change was not applied, found {who}: {facts['reason']}"
        case _:
            return f"{subject}: {entry.event}, found {who}: {facts.get('reason', '')}"


# -- import ----------------------------------------------------------------------------------------------------------


def _import(ledger: Ledger, path: Path) -> None:
    """Move the lines of this address from the ledger file of an earlier version to the ledger.

    Entries have the ids of the lines, so that two processes that import at once, or a second attempt, write no entry
    twice. Lines about models that are not in this registry are left out; lines of other addresses stay in the file.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    registry = ledger.registry
    raw = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)  # a crash may have left half a line
    lines = [_legacy_line(line, f"{path}:{number}") for number, line in enumerate(raw, start=1)]
    own = [line["uri"] == registry.address for line in lines]
    if not any(own):
        return
    closed = {line["id"]: line["event"] for line in lines if line["event"] in ("done", "abandoned")}
    written = {entry.id for entry in ledger.entries()}
    digests: dict[str, dict[str, str]] = {}
    for line in (line for line, is_own in zip(lines, own, strict=True) if is_own and line["id"] not in written):
        if line["event"] not in ("decision", "intent") or closed.get(line["id"]) == "abandoned":
            continue
        model = line["model"]
        if model not in digests:
            digests[model] = {version.number: version.digest for version in registry.versions(model)}
        if digests[model]:
            ledger.write(_legacy_entry(line, digests[model], done=closed.get(line["id"], "")))
    imported = path.with_name(f"{path.name}.imported")
    write_atomic(imported, (imported.read_bytes() if imported.is_file() else b"") + content)
    if all(own):
        path.unlink(missing_ok=True)
    else:
        write_atomic(path, b"".join(line for line, is_own in zip(raw, own, strict=True) if not is_own))


def _legacy_line(raw: bytes, where: str) -> dict[str, Any]:
    keys = {"decision": ("model", "key", "decision"), "intent": ("model", "alias", "action", "before", "after")}
    try:
        line: dict[str, Any] = json.loads(raw)
        missing = [
            key for key in ("time", "event", "id", "uri", *keys.get(line.get("event", ""), ())) if key not in line
        ]
    except (ValueError, AttributeError) as error:
        raise ArtifactError(f"{where}: damaged ({error}); restore or remove the file") from error
    if missing:
        raise ArtifactError(f"{where}: damaged (no {', '.join(missing)}); restore or remove the file")
    return line


def _legacy_entry(line: Mapping[str, Any], digests: Mapping[str, str], *, done: str) -> Entry:
    event, time = line["event"], datetime.fromisoformat(line["time"])
    if event == "decision":
        facts = {"key": line["key"], "decision": line["decision"]}
        return Entry(0, line["id"], time, event, line["model"], CHAMPION, "unknown", legacy=True, facts=facts)
    before, after = line["before"], line["after"]
    content = digests.get(before or "", "")
    facts = {
        "action": line["action"],
        "before": before,
        "after": after,
        "before_digest": content,
        "after_digest": digests.get(after, ""),
        "reasons": line.get("reasons", []),
        "vetoes": [content] if line["action"] == "rollback" and content else [],
        "history": line.get("history", []),
    }
    return Entry(
        0, line["id"], time, "change", line["model"], line["alias"], "unknown", None, OWN if done else "", True, facts
    )
