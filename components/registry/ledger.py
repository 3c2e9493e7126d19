"""The ledger: every decision and every change of an alias, in the tracking database
(`components.registry.tracking.Log`).

All hosts, clones and addresses of one tracking database share its entries. They are totally ordered, and a position is
written once: a change names the changes that its writer has seen, and of several simultaneous writers exactly one wins.
A change is recorded, applied to the alias, and marked as done; the next process completes what a crash has left
(`aliases.observe`). MLflow sets an alias without a condition, so a writer reads the ledger again after it has set the
alias.

| event     | keys of an entry                                                                                         |
|-----------|----------------------------------------------------------------------------------------------------------|
| decision  | key (digest of the decision's inputs), decision (as in decision.json)                                    |
| change    | action, before, after (version numbers), before_digest, after_digest, reasons, vetoes (content digests)  |
| taint     | certificate, documents (number), tainted (labels of versions), contents (their digests), reason          |
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from components.core.environment import who
from components.core.errors import RegistryError
from components.core.masking import masked_json
from components.core.measurements import run_id
from components.core.steps import step
from components.registry.reading import LEDGER, Reading
from components.registry.version import PREFIX, Version

if TYPE_CHECKING:
    from components.registry.tracking import Registry

#: Version of the entries' format.
SCHEMA = 2
#: Marks of a change: applied by its own writer, by another process, or not at all.
OWN, RECOVERED, ABANDONED = "own", "recovered", "abandoned"
#: Tags of versions, for people: the time of a rollback, and the certificate of documents that were removed since.
ROLLED_BACK, TAINTED = "rolled_back", "tainted"

#: Keys of an entry whose values are free text, in which passwords are masked.
FREE_TEXT = frozenset({"reasons", "reason", "warnings", "recipe", "story"})

Action = Literal["promote", "rollback", "assign", "hand"]
#: `rollback` and `assign` are the commands of a person, `hand` is a move in MLflow.
BY_PERSON = ("rollback", "assign", "hand")


class OvertakenError(RegistryError):
    """Another change of the alias was recorded first."""


@dataclass(frozen=True)
class Entry:
    """An entry of the ledger.

    Attributes:
        model: registered model; empty: all.
        run: id of the retraining that wrote it, which is its Prefect flow run; empty outside of one.
        mark: OWN, RECOVERED, ABANDONED or empty.
    """

    position: int
    time: datetime
    event: str
    model: str
    alias: str
    by: str
    run: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    mark: str = ""

    def __getitem__(self, key: str) -> Any:
        return self.facts[key]

    @property
    def by_person(self) -> bool:
        """Whether a person decided a change."""
        return self["action"] in BY_PERSON


@dataclass(frozen=True)
class State:
    """The state of one alias.

    Attributes:
        champions: (version, digest) of the champions, the current one last; a rollback removes those after it.
        vetoes: content digest -> the rollback that vetoed it.
        tainted: content digest -> the entry by which it learned from documents that were removed since
            (`headstart forget`).
    """

    model: str
    alias: str
    changes: tuple[Entry, ...] = ()
    champions: tuple[tuple[str, str], ...] = ()
    vetoes: Mapping[str, Entry] = field(default_factory=dict)
    decisions: tuple[Entry, ...] = ()
    tainted: Mapping[str, Entry] = field(default_factory=dict)

    @property
    def last(self) -> Entry | None:
        """The last change, which determines the champion."""
        return self.changes[-1] if self.changes else None

    def at(self, time: datetime) -> Entry | None:
        """The change that determined the champion at a time."""
        return next((change for change in reversed(self.changes) if change.time <= time), None)

    def held_by(self, digest: str) -> Entry | None:
        """The person's change that keeps a content from being promoted automatically, or None: content that was the
        champion before, or was compared with one that a person has chosen."""
        last = self.last
        if last is None or not last.by_person or not digest or digest == last["after_digest"]:
            return None
        old = {change[key] for change in self.changes[:-1] for key in ("before_digest", "after_digest")}
        old.add(last["before_digest"])
        for entry in self.decisions:
            candidate, champion = (entry["decision"].get(key) or {} for key in ("candidate", "champion"))
            if entry.position < last.position and champion.get("digest") == last["after_digest"]:
                old.add(candidate.get("digest", ""))
        return last if digest in old else None

    def refusal(self, registry: Registry, candidate: Version) -> str:
        """The reason to refuse a candidate regardless of its score; empty if there is none."""
        how = f"train a new one, or run `headstart promote --version {candidate.number} --reason TEXT`"
        if (veto := self.vetoes.get(candidate.digest)) is not None:
            return f"{candidate.label} was rolled back on {veto.time:%Y-%m-%d} by {veto.by}; {how}"
        version: Version | None = candidate
        while version is not None:  # the version, and the models that it was initialised from
            if (taint := self.tainted.get(version.digest)) is not None:
                return f"{version.label} {taint_in_words(taint)}; retrain without them"
            name, _, number = version.tags.get("parent", "").rpartition("/")
            version = registry.find_number(name, number) if name else None
        if (held := self.held_by(candidate.digest)) is not None:
            chosen = f"a person chose version {held['after']} on {held.time:%Y-%m-%d} ({held['action']})"
            return f"{candidate.label} was known when {chosen}; {how}"
        return ""


def replay(entries: Sequence[Entry], *, model: str, alias: str) -> State:
    of_alias = [entry for entry in entries if entry.model == model and entry.alias == alias]
    changes = [entry for entry in of_alias if entry.event == "change" and entry.mark != ABANDONED]
    champions: list[tuple[str, str]] = []
    vetoes: dict[str, Entry] = {}
    for change in changes:
        if not champions and change["before"] is not None:
            champions.append((change["before"], change["before_digest"]))
        numbers = [number for number, _ in champions]
        if change["action"] == "rollback" and change["after"] in numbers:
            del champions[len(numbers) - numbers[::-1].index(change["after"]) :]
        else:
            champions.append((change["after"], change["after_digest"]))
        vetoes |= dict.fromkeys(change["vetoes"], change)
        if change.by_person:
            vetoes.pop(change["after_digest"], None)  # a person may choose a vetoed content again
    tainted: dict[str, Entry] = {}
    for entry in entries:
        if entry.event == "taint":  # belongs to the contents, whatever their model
            tainted = dict.fromkeys(entry["contents"], entry) | tainted
    decisions = tuple(entry for entry in of_alias if entry.event == "decision")
    return State(model, alias, tuple(changes), tuple(champions), vetoes, decisions, tainted)


class Ledger:
    """The ledger at one tracking address; of a `Reading`, it is read only."""

    def __init__(self, registry: Registry | Reading) -> None:
        self.registry: Any = registry
        self._log: Any = registry.log(LEDGER)

    def entries(self, model: str | None = None) -> list[Entry]:
        """The entries that concern a model, oldest first; without a model, every entry."""
        texts, marks = self._log.read()
        # Early versions had a registered model of this name, whose versions were the entries.
        if not texts and self.registry.versions(LEDGER):
            raise RegistryError(
                f"the registered model {LEDGER} has the ledger of an early version, which is not read any more; delete "
                "or rename it in MLflow"
            )
        entries = [_entry(position, text, marks) for position, text in texts.items()]
        return [entry for entry in entries if model is None or entry.model in (model, "")]

    def state(self, model: str, alias: str) -> State:
        return replay(self.entries(), model=model, alias=alias)

    def append(
        self, event: str, *, model: str, alias: str, facts: Mapping[str, Any], seen: State | None = None
    ) -> Entry:
        """Write an entry, and read it back.

        Raises:
            OvertakenError: the alias has changes that `seen` has not.
            RegistryError: the entry was stored with another content.
        """
        content = {"schema": SCHEMA, "event": event, "model": model, "alias": alias, "by": who(), "run": run_id()}
        content |= {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "facts": dict(facts)}
        text, identifier = json.dumps(masked_json(content, FREE_TEXT)), uuid.uuid4().hex
        while True:
            entries = self.entries()
            state = replay(entries, model=model, alias=alias)
            if seen is not None and [change.position for change in state.changes] != [
                change.position for change in seen.changes
            ]:
                before, now = (part.last["after"] if part.last else "none" for part in (seen, state))
                what = f"{model}@{alias}: was moved from version {before} to {now} meanwhile"
                raise OvertakenError(what, do="run this again")
            position = entries[-1].position + 1 if entries else 1
            if self._log.append(position, text, identifier=identifier):
                stored = self._log.read()[0].get(position)
                if stored != text:
                    raise RegistryError(
                        f"{LEDGER}, {position}: was stored as another text, so nothing was changed; check the database "
                        "of MLflow, then run this again"
                    )
                return _entry(position, stored, {})

    def mark(self, change: Entry, value: str) -> None:
        """Mark a change as OWN, RECOVERED or ABANDONED."""
        self._log.mark(_mark(change.position), value)


def _mark(position: int) -> str:
    return f"{PREFIX}done.{position}"


def _entry(position: int, text: str, marks: Mapping[str, str]) -> Entry:
    content = json.loads(text)
    if content.pop("schema") > SCHEMA:
        raise RegistryError(f"{LEDGER}, {position}: written by a later version of Headstart; update this one")
    time = datetime.fromisoformat(content.pop("time"))
    return Entry(position, time, mark=marks.get(_mark(position), ""), **content)


def is_version(version: Version, number: str, digest: str) -> bool:
    """Whether it is the version that the ledger means: numbers start again if a registered model is deleted."""
    return version.number == number and (not digest or version.digest == digest)


def missing_champion(registry: Registry | Reading, state: State) -> str:
    """Why an alias does not exist: the champion was deleted (a message), or nothing was promoted yet (empty)."""
    if state.last is None:
        return ""
    number = state.last["after"]
    version = registry.find_number(state.model, number)
    exists = version is not None and is_version(version, number, state.last["after_digest"])
    return (
        f"{state.model}@{state.alias}: version {number} was the champion, and the "
        f"{'alias' if exists else 'version'} was deleted in MLflow; choose a champion with `headstart promote "
        "--version V --reason TEXT` or `headstart rollback`, or restore the alias in MLflow"
    )


def none_promoted(registry: Registry | Reading, model: str, task: str) -> str:
    """What to do with a model of which no version has been promoted."""
    where = f"{model}@{registry.settings.alias} at {registry.address}"
    if not (versions := registry.versions(model)):
        return f"{where}: no version; run the stages register and promote first"
    last = {"task": task, "version": versions[-1].number}
    return (
        f"{where}: {len(versions)} version(s), none promoted; registry/decision.json in the run's folder has the "
        f"reasons. Try the last one: {step('try', **last)}; choose it: {step('promote', **last)}"
    )


def record_taints(
    registry: Registry, tainted: Sequence[Version], *, certificate: str, documents: int, reason: str
) -> None:
    """Tag the versions and append an entry, so that models which are trained from them later are recognised too."""
    if not tainted:
        return
    facts = {
        "certificate": certificate,
        "documents": documents,
        "tainted": [version.label for version in tainted],
        "contents": list(dict.fromkeys(version.digest for version in tainted)),
        "reason": reason or "documents removed",
    }
    Ledger(registry).append("taint", model="", alias="", facts=facts)
    for version in tainted:
        registry.set_tag(version, TAINTED, certificate)


def taint_in_words(entry: Entry) -> str:
    """Why a content is tainted, as the end of a sentence."""
    number = entry["documents"]
    documents = "a document that was" if number == 1 else f"{number:,} documents that were"
    when = f"removed on {entry.time:%Y-%m-%d} by {entry.by} (certificate {entry['certificate']})"
    return f"has learned from {documents} {when}"


def in_words(entry: Entry, *, reasons: bool = True) -> str:
    """An entry as a sentence, without its time; `reasons`: whether the reasons of a change are given."""
    by = f"by {entry.by}" + (f" in run {entry.run}" if entry.run else "")
    subject = f"{entry.model}@{entry.alias}"
    if entry.event == "decision":
        decision = entry["decision"]
        candidate, champion = (decision.get(key) or {} for key in ("candidate", "champion"))
        against = f"version {champion['version']}" if champion else decision.get("against", "no champion")
        what = f"version {candidate.get('version', '?')} against {against}: {decision['verdict']}"
        return f"{subject}: {what}, decided {by}: {'; '.join(decision.get('reasons', []))}"
    if entry.event == "taint":
        what = f"{entry['reason']} {by} (certificate {entry['certificate']})"
        return f"{what}; tainted: {', '.join(entry['tainted']) or 'no version'}"
    before, after = entry["before"], entry["after"]
    over = f"over version {before}" if before is not None else "as the first one"
    what = {
        "promote": f"version {after} promoted {over}",
        "rollback": f"version {after} restored, version {before} rolled back",
        "assign": f"version {after} chosen {over}",
        "hand": f"version {after} set by hand in MLflow {over}, found",
    }.get(entry["action"], f"version {after} set {over}")
    lost = "a change was not applied: " if entry.mark == ABANDONED else ""
    because = "; ".join(entry["reasons"]) if reasons else ""
    return ": ".join(filter(None, [subject, f"{lost}{what} {by}", because]))
