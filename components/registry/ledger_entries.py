"""The entries of the ledger, and the state of an alias that follows from them.

Entries are totally ordered. A change is conditional: it names the entry that its writer has seen as the last one of the
alias (`expect`), and is accepted if and only if that is still the last one at its position. Every reader replays the
same entries and reaches the same result, so of several simultaneous writers exactly one wins (compare-and-swap).

| event     | keys of `facts`                                                                                          |
|-----------|----------------------------------------------------------------------------------------------------------|
| decision  | key (digest of the decision's inputs), decision (as in decision.json)                                    |
| change    | action, before, after (version numbers), before_digest, after_digest, reasons, vetoes (content digests)  |
| abandoned | change (id of a change that was not applied), reason                                                     |
| alarm     | reason: the champion was deleted                                                                         |
| taint     | certificate, documents (number), tainted (version number -> content digest), contents (the digests of    |
|           | all models), reason                                                                                      |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

#: Values of `Entry.done` of a change that was applied: by its own writer, or by another process.
OWN, RECOVERED = "own", "recovered"

Action = Literal["promote", "rollback", "assign", "hand"]
#: `rollback` and `assign` are the commands of a person, `hand` is a move in MLflow.
BY_PERSON = ("rollback", "assign", "hand")


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
        run: id of the retraining that wrote it, which is that of its Prefect flow run; empty outside of one.
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
    run: str = ""
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
        tainted: content digest -> the entry by which it learned from documents that were removed since
            (`headstart forget`).
    """

    model: str
    alias: str
    position: int = 0
    changes: tuple[Change, ...] = ()
    champions: tuple[tuple[str, str], ...] = ()
    vetoes: Mapping[str, Change] = field(default_factory=dict)
    decisions: tuple[Entry, ...] = ()
    alarmed: bool = False
    tainted: Mapping[str, Entry] = field(default_factory=dict)

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
    # A taint belongs to the contents of a model, whatever its alias.
    own = [entry for entry in entries if entry.model == model and (entry.alias == alias or entry.event == "taint")]
    own.sort(key=lambda entry: entry.order)
    position, changes, decisions, alarm = 0, list[Change](), list[Entry](), 0
    tainted: dict[str, Entry] = {}
    for entry in own:
        match entry.event:
            case "decision":
                decisions.append(entry)
            case "alarm":
                alarm = entry.position
            case "taint":
                for digest in entry.facts["contents"]:
                    tainted.setdefault(digest, entry)
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
        tainted=tainted,
    )


def taint_in_words(entry: Entry) -> str:
    """Why a content is tainted, as the end of a sentence."""
    number = entry.facts["documents"]
    documents = "a document that was" if number == 1 else f"{number:,} documents that were"
    return (
        f"has learned from {documents} removed on {entry.time:%Y-%m-%d} by {entry.by} "
        f"(certificate {entry.facts['certificate']})"
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


def in_words(entry: Entry, *, reasons: bool = True) -> str:
    """An entry as a sentence, without its time; `reasons`: whether the reasons of a change are given."""
    facts, who = entry.facts, f"by {entry.by}" + (f" in run {entry.run}" if entry.run else "")
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
            because = "; ".join(facts["reasons"]) if reasons else ""
            return ": ".join(filter(None, [subject, f"{what} {who}", because]))
        case "taint":
            which = (
                f"version(s) {', '.join(facts['tainted'])} are tainted" if facts["tainted"] else "no tainted version"
            )
            return f"{subject}: {facts['reason']} {who} (certificate {facts['certificate']}); {which}"
        case "abandoned":
            return f"{subject}: a change was not applied, found {who}: {facts['reason']}"
        case _:
            return f"{subject}: {entry.event}, found {who}: {facts.get('reason', '')}"
