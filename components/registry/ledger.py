"""The ledger: every decision and every change of an alias, in the tracking database
(`components.registry.tracking.Log`).

All hosts, clones and addresses of one tracking database share its entries. They are totally ordered, and a position is
written once: a change names the changes that its writer has seen, and of several simultaneous writers exactly one wins.
A change is recorded, applied to the alias that names the champion, and marked as done; the next process completes what
a crash has left (`observe`). MLflow sets an alias without a condition, so a writer reads the ledger again after it has
set the alias. The commands `rollback` and `assign` take no lock; a retraining that is running sees the change.

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
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from components.core.environment import who
from components.core.errors import ConfigError, RegistryError
from components.core.masking import masked_json
from components.core.measurements import run_id
from components.core.steps import step
from components.registry.reading import Reading
from components.registry.version import LEDGER, PREFIX, Version, numbered
from components.settings.registry import RegistrySettings, with_models

if TYPE_CHECKING:
    from components.registry.tracking import Registry

#: Version of the entries' format.
SCHEMA = 2
#: Marks of a change: applied by its own writer, by another process, or not at all.
OWN, RECOVERED, ABANDONED = "own", "recovered", "abandoned"
#: Tag of a version, for people: the certificate of documents that were removed since.
TAINTED = "tainted"

#: Keys of an entry whose values are free text, in which passwords are masked.
FREE_TEXT = frozenset({"reasons", "reason", "warnings", "recipe", "story"})

Action = Literal["promote", "rollback", "assign", "hand"]
#: `rollback` and `assign` are the commands of a person, `hand` is a move in MLflow.
BY_PERSON = ("rollback", "assign", "hand")

#: Upper limit of the time between the record of a change and its writer's last request to set the alias.
LATE = timedelta(minutes=10)


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
    """The ledger at one tracking address, and the alias of its settings; of a `Reading`, it is read only."""

    def __init__(self, registry: Registry | Reading) -> None:
        self.registry: Any = registry
        self.alias = registry.settings.alias

    def entries(self, model: str | None = None) -> list[Entry]:
        """The entries that concern a model, oldest first; without a model, every entry."""
        texts, marks = self.registry.read_log()
        # Early versions had a registered model of this name, whose versions were the entries.
        if not texts and self.registry.versions(LEDGER):
            raise RegistryError(
                f"the registered model {LEDGER} has the ledger of an early version, which is not read any more; delete "
                "or rename it in MLflow"
            )
        entries = [_entry(position, text, marks) for position, text in texts.items()]
        return [entry for entry in entries if model is None or entry.model in (model, "")]

    def state(self, model: str) -> State:
        return replay(self.entries(), model=model, alias=self.alias)

    def append(self, event: str, *, model: str, facts: Mapping[str, Any], seen: State | None = None) -> Entry:
        """Write an entry, and read it back.

        Raises:
            OvertakenError: the alias has changes that `seen` has not.
            RegistryError: the entry was stored with another content.
        """
        alias = self.alias if model else ""
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
            if self.registry.log.append(position, text, identifier=identifier):
                stored = self.registry.read_log()[0].get(position)
                if stored != text:
                    raise RegistryError(
                        f"{LEDGER}, {position}: was stored as another text, so nothing was changed; check the database "
                        "of MLflow, then run this again"
                    )
                return _entry(position, stored, {})

    def mark(self, change: Entry, value: str) -> None:
        """Mark a change as OWN, RECOVERED or ABANDONED."""
        self.registry.log.mark(_mark(change.position), value)


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
    Ledger(registry).append("taint", model="", facts=facts)
    for version in tainted:
        registry.set_tag(version, TAINTED, certificate)


def taint_in_words(entry: Entry) -> str:
    """Why a content is tainted, as the end of a sentence."""
    number = entry["documents"]
    documents = "a document that was" if number == 1 else f"{number:,} documents that were"
    when = f"removed on {entry.time:%Y-%m-%d} by {entry.by} (certificate {entry['certificate']})"
    return f"has learned from {documents} {when}"


def observe(ledger: Ledger, model: str, *, missing_ok: bool = False) -> tuple[State, Version | None, list[str]]:
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
    registry, alias, sentences = ledger.registry, ledger.alias, list[str]()
    while True:
        state = ledger.state(model)
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
    return ledger.append("change", model=state.model, facts=facts, seen=state)


def move(
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
    registry, model, alias = ledger.registry, state.model, state.alias
    change = _change(ledger, state, action, after, reasons=reasons, vetoes=vetoes)
    present = registry.alias(model, alias)
    if present is not None and present.number not in (change["before"], change["after"]):
        ledger.mark(change, ABANDONED)
        what = f"{model}@{alias}: the alias was moved to version {present.number} by hand meanwhile"
        raise OvertakenError(what, do="run this again")
    newest = change
    while True:
        registry.set_alias(model, alias, registry.get(model, newest["after"]))
        recorded = ledger.state(model)
        # Another process may have recorded and applied a newer change before the request above.
        if recorded.last is None or recorded.last.position == newest.position:
            break
        newest = recorded.last
    ledger.mark(change, OWN)
    Reading(registry.settings, registry).renew()
    return recorded


def _opened(settings: RegistrySettings, task: str) -> tuple[Ledger, State, Version | None]:
    """The ledger, the state of a task's alias, and the version that it points to, if any."""
    from components.registry.tracking import connect  # imports MLflow

    ledger = Ledger(connect(with_models(settings)))
    state, present, _ = observe(ledger, settings.model_name(task), missing_ok=True)
    return ledger, state, present


def rollback(settings: RegistrySettings, task: str, *, to: str = "", reason: str = "") -> list[str]:
    """Restore an earlier champion of a task; lines for the user. The contents of the champions after it are vetoed:
    they are not promoted automatically any more, even if they are registered again. `to`: version number; by default
    the previous champion that exists and is not vetoed. Raises RegistryError: there is no champion, no previous one, or
    `to` was not a champion, was deleted or is tainted."""
    ledger, state, _ = _opened(settings, task)
    registry, model = ledger.registry, state.model
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
            move(ledger, state, action="rollback", after=version, reasons=reasons, vetoes=sorted(vetoes))
            return [*lines, f"{model}@{state.alias}: version {candidate} restored, version {number} rolled back"]
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
    ledger, state, present = _opened(settings, task)
    where = f"{state.model}@{state.alias}"
    chosen = numbered(ledger.registry, state.model, version)
    if not chosen.digest or chosen.tags.get("kind") != "classifier":
        raise RegistryError(f"{chosen.label}: was not registered by Headstart as a classifier; choose another version")
    if present is not None and present.number == chosen.number:
        raise RegistryError(f"{where}: version {version} is the champion already")
    if (taint := state.tainted.get(chosen.digest)) is not None and not force:
        raise RegistryError(f"{chosen.label} {taint_in_words(taint)}; choose another version, or add --force")
    before = f"version {state.last['after']} was" if state.last is not None else "there was none"
    move(ledger, state, action="assign", after=chosen, reasons=[reason.strip()])
    return f"{where}: version {chosen.number} is the champion, {before}"
