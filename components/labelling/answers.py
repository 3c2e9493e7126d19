"""Answers of people merged into the train file of a task, with a ledger of who gave them and when.

The ledger `labels-<task>.ledger.jsonl` is beside the train file and is versioned with it. Each line is one change:

    batch     identity of the merge; `undo` takes back a whole batch
    time, by  when and by whom the label was given
    merged, merged_by  when and by whom it was written to the file
    action    add, change, or undo
    file      train file as in params.yaml
    texts     of the row
    before, after  labels; null: there was no row, or there is none any more
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from components.account import who
from components.artifacts import changing_data, write_atomic
from components.errors import DataError, nearest
from components.formats.rows import READERS, open_rows
from components.labelling.editing import Fate, NewRow, edit_file, files_for
from components.labelling.rows import (
    FileRow,
    Names,
    answer_columns,
    by_digest,
    known_labels,
    named,
    read_rows,
    scalar,
    shown,
    source_of,
)
from components.lineage.removed import Removed
from components.settings.imports import is_local_copy
from components.settings.params import Params
from components.settings.tasks import TaskSource
from components.tasks.data import Fields
from components.unlabelled.texts import digest_of

#: Which of two labels of one text is kept: that of the answers, that of the data, or the one that was given last.
Resolve = Literal["", "mine", "theirs", "newest"]
#: Optional columns of a file of answers.
BY, TIME = "by", "time"


@dataclass(frozen=True)
class Answer:
    """The label that a person has given to a text.

    Attributes:
        fields: the texts of the row.
        labels: one label; in `multilabel` any number.
        by: who has given it; empty: the account that merges it.
        time: when, ISO 8601; empty: now.
        where: position in a file, for messages.
    """

    fields: Fields
    labels: Names
    by: str = ""
    time: str = ""
    where: str = ""

    @property
    def digest(self) -> bytes:
        """Identity of the texts."""
        return digest_of(self.fields)


@dataclass(frozen=True)
class Conflict:
    """Why an answer cannot be merged.

    Attributes:
        kind: `label`: the data have another label; `answers`: two answers differ; `unknown`: the label is new;
            `held out`: the text is in dev or test.
        answer: the answer.
        message: where and what, in words.
    """

    kind: Literal["label", "answers", "unknown", "held out"]
    answer: Answer
    message: str


@dataclass(frozen=True)
class Merged:
    """Result of a merge.

    Attributes:
        batch: its identity; empty if nothing was written.
        added, changed, unchanged: numbers of rows.
        left_out: number of answers that were not merged, by the rule of `resolve` or because the text is held out.
        conflicts: all conflicts; with `resolve` those that it settled.
        file: the train file; with `batch` it was written.
    """

    batch: str
    added: int
    changed: int
    unchanged: int
    left_out: int
    conflicts: list[Conflict]
    file: Path


class ConflictError(DataError):
    """Answers that cannot be merged; nothing was written.

    Attributes:
        conflicts: all of them.
    """

    def __init__(self, message: str, conflicts: Sequence[Conflict]) -> None:
        super().__init__(message)
        self.conflicts = list(conflicts)


@dataclass
class _Plan:
    """What a merge would write: digest -> answer."""

    added: dict[bytes, Answer] = field(default_factory=dict)
    changed: dict[bytes, Answer] = field(default_factory=dict)
    before: dict[bytes, Names | None] = field(default_factory=dict)
    unchanged: int = 0
    left_out: int = 0
    conflicts: list[Conflict] = field(default_factory=list)
    refused: list[Conflict] = field(default_factory=list)

    def settle(self, conflict: Conflict, settled: bool) -> None:
        """Record a conflict, and whether it is settled."""
        self.conflicts.append(conflict)
        if not settled:
            self.refused.append(conflict)


def ledger_of(task: str, source: TaskSource) -> Path:
    """The file of the changes."""
    return Path(source.path) / f"labels-{task}.ledger.jsonl"


def merge(
    params: Params,
    answers: Sequence[Answer],
    *,
    task: str = "",
    resolve: Resolve = "",
    new_labels: bool = False,
) -> Merged:
    """Write answers to the train file of a task, and to its ledger. All or none of them are written.

    A text that is in train without a label, or with the same one, is no conflict. A text that is not in train becomes a
    row at the end of the last train file. Texts are equal if they differ in case, punctuation and white space only.

    Args:
        params: settings; paths are relative to the working directory.
        answers: of people. Several answers to one text with one label are one.
        task: the first of run.tasks if empty.
        resolve: which label is kept where a text has several. `mine`: that of the answers, of several the last;
            `theirs`: that of the data, and a text with several answers is left out; `newest`: the one with the latest
            time. Texts of dev and test are left out. Empty: conflicts are refused.
        new_labels: whether labels may occur that train does not have.

    Raises:
        ConflictError: there are conflicts that `resolve` and `new_labels` do not settle.
        ConfigError: the task is unknown, or its kind cannot be labelled here.
        DataError: a file is damaged or cannot be written.
    """
    name, source = source_of(params, task)
    ledger = ledger_of(name, source)
    if is_local_copy(source.path):
        raise DataError(
            f"data.tasks.{name}.path: {source.path} is a copy of data at an address, which every run renews; add the "
            "labels there, or name a folder of this repository"
        )
    ledger.parent.mkdir(parents=True, exist_ok=True)
    with changing_data(Path(), [ledger.parent]):
        removed = Removed(Path())
        for answer in answers:
            if certificate := removed.certificate(answer.fields):
                raise DataError(
                    f"{_at(answer)} was removed by `headstart forget` ({certificate}); leave the answer out"
                )
        rows = read_rows(source)
        plan = _planned(answers, rows, source, ledger, resolve=resolve, new_labels=new_labels)
        if plan.refused:
            raise ConflictError(_refusal(plan.refused), plan.refused)
        file = next(files_for(source))
        batch = uuid.uuid4().hex[:12] if plan.added or plan.changed else ""
        if batch:
            _write(source, rows, plan, ledger, batch, file)
        return Merged(
            batch,
            len(plan.added),
            len(plan.changed),
            plan.unchanged,
            plan.left_out,
            plan.conflicts,
            Path(source.path) / file.partition("#")[0],
        )


def _planned(
    answers: Sequence[Answer],
    rows: Sequence[FileRow],
    source: TaskSource,
    ledger: Path,
    *,
    resolve: Resolve,
    new_labels: bool,
) -> _Plan:
    plan, found, labels = _Plan(), by_digest(rows), known_labels(rows, source)
    times = {digest: time for digest, (_, time) in givers(ledger).items()}
    grouped: dict[bytes, list[Answer]] = {}
    for answer in answers:
        grouped.setdefault(answer.digest, []).append(answer)
    for digest, group in grouped.items():
        answer, settled = _one_of(group, source, plan, resolve)
        if not settled:
            continue
        there = found.get(digest, [])
        if held := next((row for row in there if row.split != "train"), None):
            message = f"{_at(answer)} is also in {held.split} ({held}), which nothing is learned from"
            plan.settle(Conflict("held out", answer, message), bool(resolve))
            plan.left_out += 1
            continue
        # Without any label there is nothing to compare with.
        unknown = [name for name in answer.labels if name not in labels and name != source.outside]
        if unknown and labels and not new_labels:
            message = f"{_at(answer)}: label {unknown[0]!r} does not occur in train{nearest(unknown[0], labels)}"
            plan.settle(Conflict("unknown", answer, message), settled=False)
            continue
        others = [row for row in there if row.labels is not None and row.labels != answer.labels]
        if not there:
            plan.added[digest] = answer
        elif not others and all(row.labels is not None for row in there):
            plan.unchanged += 1
        elif not others or _wins(answer, times.get(digest, ""), others[0], source, plan, resolve):
            plan.changed[digest] = answer
            plan.before[digest] = others[0].labels if others else None
    return plan


def _one_of(group: Sequence[Answer], source: TaskSource, plan: _Plan, resolve: Resolve) -> tuple[Answer, bool]:
    """The answer that counts of those to one text, and whether there is one."""
    last = group[-1]
    if len({answer.labels for answer in group}) == 1:
        return last, True
    listed = ", ".join(f"{shown(a.labels, source)!r} ({a.by or a.where or 'answer'})" for a in group)
    plan.settle(Conflict("answers", last, f"{_at(last)} has several answers: {listed}"), bool(resolve))
    if resolve in ("", "theirs"):
        plan.left_out += len(group)
        return last, False
    if resolve == "newest":
        last = max(enumerate(group), key=lambda entry: (_moment(entry[1].time), entry[0]))[1]
    return last, True


def _wins(answer: Answer, known: str, other: FileRow, source: TaskSource, plan: _Plan, resolve: Resolve) -> bool:
    """Whether an answer replaces another label of the data."""
    own, theirs = shown(answer.labels, source), shown(other.labels or (), source)
    plan.settle(Conflict("label", answer, f"{_at(answer)}: {own!r}, and {theirs!r} in {other}"), bool(resolve))
    # The time of a label that was not merged here is unknown, and the answer is younger.
    wins = resolve == "mine" or (resolve == "newest" and _moment(answer.time) >= _moment(known, early=True))
    plan.left_out += not wins
    return wins


def _moment(time: str, *, early: bool = False) -> datetime:
    """A time; now (or with `early` the earliest one) if it is empty."""
    if not time:
        return datetime.min.replace(tzinfo=UTC) if early else datetime.now(UTC)
    moment = datetime.fromisoformat(time)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _at(answer: Answer) -> str:
    text = " | ".join(answer.fields)
    return f"{answer.where}: {text[:60]!r}" if answer.where else repr(text[:60])


def _refusal(conflicts: Sequence[Conflict]) -> str:
    kinds = {conflict.kind for conflict in conflicts}
    ways = []
    if kinds - {"unknown"}:
        ways.append("--resolve mine, theirs or newest")
    if "unknown" in kinds:
        ways.append("correct the label, or allow it with --new-labels")
    lines = [f"  {conflict.message}" for conflict in conflicts[:20]]
    more = [f"  and {len(conflicts) - 20} more"] if len(conflicts) > 20 else []
    return "\n".join([f"{len(conflicts)} conflict(s), nothing was written ({'; '.join(ways)})", *lines, *more])


def _write(source: TaskSource, rows: Sequence[FileRow], plan: _Plan, ledger: Path, batch: str, last: str) -> None:
    """Write the files, then the ledger."""
    by_path = {path: file for file in source.files("train") for path in source.located(file)}
    files = {row.digest: by_path[row.path] for row in rows if row.split == "train" and row.digest in plan.changed}

    def decide(fields: Fields, labels: Names | None) -> Fate:
        answer = plan.changed.get(digest_of(fields))
        return "keep" if answer is None or answer.labels == labels else answer.labels

    new = [NewRow(answer.fields, answer.labels, f"label-{digest.hex()[:16]}") for digest, answer in plan.added.items()]
    for file in sorted({*files.values(), *([last] if new else [])}):
        edit_file(file, source, decide=decide, added=new if file == last else [])
    merged = _now()
    entries = [
        _entry(batch, answer, action, file, plan.before.get(digest), answer.labels, merged)
        for action, group in (("add", plan.added), ("change", plan.changed))
        for digest, answer in group.items()
        for file in [files.get(digest, last)]
    ]
    _append(ledger, entries)


def _entry(
    batch: str, answer: Answer, action: str, file: str, before: Names | None, after: Names | None, merged: str
) -> dict[str, Any]:
    return {
        "batch": batch,
        "time": answer.time or merged,
        "by": answer.by or who(),
        "merged": merged,
        "merged_by": who(),
        "action": action,
        "file": file,
        "texts": list(answer.fields),
        "before": None if before is None else list(before),
        "after": None if after is None else list(after),
    }


def read_answers(path: Path, source: TaskSource, *, by: str = "") -> tuple[list[Answer], int]:
    """The answers in a csv, tsv, jsonl or parquet file, with the columns that `headstart suggest` writes: the texts and
    the label; further columns are optional: `by` and `time` (ISO 8601).

    Args:
        path: of the file.
        source: of the task.
        by: who has given the answers of rows without `by`.

    Returns:
        The answers, and the number of rows without a label.

    Raises:
        DataError: the file is damaged, of an unknown format, or lacks a column; a time cannot be read.
    """
    if path.suffix not in READERS:
        raise DataError(f"{path}: unknown format {path.suffix or '(no suffix)'!r}; known: {', '.join(READERS)}")
    if not path.is_file() or not path.stat().st_size:
        raise DataError(f"{path}: {'is empty' if path.exists() else 'does not exist'}")
    texts, label = answer_columns(source)
    answers, empty = [], 0
    with ExitStack() as stack:
        for where, row in open_rows(path, stack).rows:
            if missing := [name for name in (*texts, label) if name not in row]:
                raise DataError(f"{where}: no column {missing[0]!r}{nearest(missing[0], row)}")
            fields = tuple(scalar(row[name], where) for name in texts)
            labels = _given(row[label], source, where)
            if labels is None or not all(field.strip() for field in fields):
                empty += 1
                continue
            time = scalar(row.get(TIME), where).strip()
            try:
                _moment(time)
            except ValueError as error:
                raise DataError(f"{where}: time {time!r} is not ISO 8601, such as 2026-01-31T12:00:00+00:00") from error
            answers.append(Answer(fields, labels, scalar(row.get(BY), where).strip() or by, time, where))
    return answers, empty


def _given(value: Any, source: TaskSource, where: str) -> Names | None:
    """The labels of an answer; None if nobody has given one."""
    if isinstance(value, list) and source.kind == "multilabel":
        return tuple(sorted({scalar(name, where).strip() for name in value}))
    text = scalar(value, where).strip()
    if not text:
        return None
    return named(text, source) if source.kind == "multilabel" else (text,)


def undo(params: Params, *, task: str = "") -> Merged:
    """Take back the last merge that is not taken back yet; the ledger keeps both.

    Raises:
        DataError: there is no merge, or a row has changed since.
    """
    name, source = source_of(params, task)
    ledger = ledger_of(name, source)
    with changing_data(Path(), [ledger.parent]):
        entries = list(read_ledger(ledger))
        undone = {entry["undone"] for entry in entries if entry["action"] == "undo"}
        left = [entry for entry in entries if entry["action"] != "undo" and entry["batch"] not in undone]
        if not left:
            raise DataError(f"{ledger}: no merge to take back")
        last = left[-1]["batch"]
        changes = {digest_of(tuple(entry["texts"])): entry for entry in left if entry["batch"] == last}
        found = by_digest(read_rows(source, splits=("train",)))
        for digest, entry in changes.items():
            there = found.get(digest, [])
            if not there or any(list(row.labels or ()) != entry["after"] for row in there):
                text = " | ".join(entry["texts"])[:60]
                raise DataError(
                    f"{ledger}: the row {text!r} has changed since the merge {last}; nothing was written. Label it "
                    "again, or restore the version of the data with git and `dvc checkout`"
                )

        def decide(fields: Fields, labels: Names | None) -> Fate:
            entry = changes.get(digest_of(fields))
            if entry is None:
                return "keep"
            if entry["action"] == "add":
                return "remove"
            return None if entry["before"] is None else tuple(entry["before"])

        for file in sorted({entry["file"] for entry in changes.values()}):
            edit_file(file, source, decide=decide)
        now = _now()
        taken = [
            _entry(uuid.uuid4().hex[:12], Answer(tuple(entry["texts"]), ()), "undo", entry["file"], None, None, now)
            | {"before": entry["after"], "after": entry["before"], "undone": last}
            for entry in changes.values()
        ]
        _append(ledger, taken)
        added = sum(entry["action"] == "add" for entry in changes.values())
        file = Path(source.path) / next(files_for(source)).partition("#")[0]
        return Merged(last, added, len(changes) - added, 0, 0, [], file)


def givers(ledger: Path) -> dict[bytes, tuple[str, str]]:
    """Digest of a text -> who has given its present label, and when, as far as it was merged here."""
    found: dict[bytes, tuple[str, str]] = {}
    for entry in read_ledger(ledger):
        digest = digest_of(tuple(entry["texts"]))
        if entry["action"] == "undo":
            found.pop(digest, None)
        else:
            found[digest] = (entry["by"], entry["time"])
    return found


def read_ledger(ledger: Path) -> Iterator[dict[str, Any]]:
    """The entries of a ledger, in order; none if there is no file.

    Raises:
        DataError: a line is damaged.
    """
    if not ledger.is_file():
        return
    for number, line in enumerate(ledger.read_text(encoding="utf-8").split("\n"), 1):
        if line.strip():
            try:
                entry = json.loads(line)
                yield {name: entry[name] for name in ("batch", "time", "by", "action", "file", "texts")} | entry
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{ledger}, line {number}: damaged ({error}); restore the file from git or DVC"
                ) from error


def _append(ledger: Path, entries: Sequence[Mapping[str, Any]]) -> None:
    known = ledger.read_text(encoding="utf-8") if ledger.is_file() else ""
    write_atomic(ledger, known + "".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in entries))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
