"""Answers of people merged into the file of labels of a task (`components.data.tasks.reading.labels`)."""

import json
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from components.core.artifacts import changing_data, write_atomic
from components.core.environment import who
from components.core.errors import DataError, nearest
from components.data.formats.rows import open_rows
from components.data.formats.tables import as_text
from components.data.formats.textkey import digest_of
from components.data.removed import Removed
from components.data.tasks.data import Fields
from components.data.tasks.reading.labels import Entry, in_force, labels_file, read_entries
from components.data.tasks.reading.records import is_blank, merged_spellings
from components.labelling.rows import (
    FileRow,
    Names,
    answer_columns,
    known_labels,
    labels_of,
    read_rows,
    shown,
    source_of,
)
from components.settings.imports import is_local_copy
from components.settings.params import Params
from components.settings.tasks import TaskSource

#: Which of two labels of one text is kept: the answer, or the label of the data.
Resolve = Literal["", "mine", "theirs"]
#: Optional columns of a file of answers.
BY, TIME = "by", "time"
#: Conflicts that a message lists.
LISTED = 20


@dataclass(frozen=True)
class Answer:
    """The label that a person has given to a text. `by`: who has given it; empty: the account that merges it."""

    fields: Fields
    labels: Names
    by: str = ""
    time: str = ""
    where: str = ""

    def __str__(self) -> str:
        text = repr(" | ".join(self.fields)[:60])
        return f"{self.where}: {text}" if self.where else text


@dataclass(frozen=True)
class Conflict:
    """Why an answer cannot be merged, and whether the reason is a new label; `settled`: a rule has decided."""

    message: str
    is_new: bool
    settled: bool


@dataclass
class Merged:
    """Result of a merge. `left_out`: number of answers that were not merged, by the rule of `resolve` or because the
    text is held out."""

    file: Path
    batch: str = ""
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    left_out: int = 0
    conflicts: list[Conflict] = field(default_factory=list)


class ConflictError(DataError):
    """Answers that cannot be merged; nothing was written."""

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        new = sum(conflict.is_new for conflict in conflicts)
        ways = ["--resolve mine or theirs"] * (new < len(conflicts))
        ways += ["correct the label, or allow it with --new-labels"] * (new > 0)
        lines = [f"{len(conflicts)} conflict(s), nothing was written ({'; '.join(ways)})"]
        lines += [f"  {conflict.message}" for conflict in conflicts[:LISTED]]
        lines += [f"  and {len(conflicts) - LISTED} more"] if len(conflicts) > LISTED else []
        super().__init__("\n".join(lines))
        self.conflicts = list(conflicts)


def merge(
    params: Params, answers: Sequence[Answer], *, task: str = "", resolve: Resolve = "", new_labels: bool = False
) -> Merged:
    """Append answers to the file of labels of a task. All or none of them are written.

    A text that is in train without a label, or with the same one, is no conflict. A text that is not in train becomes a
    further row. Texts are equal if they differ in case, punctuation and white space only.

    Args:
        resolve: which label is kept where a text has several. `mine`: the answer, of several the last; `theirs`: the
            label of the data, and a text with several answers is left out. Texts of dev and test are left out. Empty:
            conflicts are refused.
        new_labels: whether labels may occur that train does not have.
    """
    name, source = source_of(params, task)
    if is_local_copy(source.path):
        raise DataError(
            f"data.tasks.{name}.path: {source.path} is a copy of data at an address, which every run renews; add the "
            "labels there, or name a folder of this repository"
        )
    Path(source.path).mkdir(parents=True, exist_ok=True)
    with changing_data(Path(), [Path(source.path)]):
        removed = Removed(Path())
        for answer in answers:
            if certificate := removed.certificate(answer.fields):
                raise DataError(f"{answer} was removed by `headstart forget` ({certificate}); leave the answer out")
        result = Merged(labels_file(name, source))
        entries = list(_entries(answers, name, source, result, resolve=resolve, new_labels=new_labels))
        if refused := [conflict for conflict in result.conflicts if not conflict.settled]:
            raise ConflictError(refused)
        result.batch = _append(result.file, entries) if entries else ""
        return result


def _entries(
    answers: Sequence[Answer], task: str, source: TaskSource, result: Merged, *, resolve: Resolve, new_labels: bool
) -> Iterator[Entry]:
    """The entries of the answers that are not in the data, or replace their label; `result` counts what becomes of
    the others."""
    rows = read_rows(task, source)
    labels = known_labels(rows, source)
    in_data, grouped = defaultdict[bytes, list[FileRow]](list), defaultdict[bytes, list[Answer]](list)
    for row in rows:
        in_data[row.digest].append(row)
    for each in answers:
        names = tuple(_as_in_data(name, labels) for name in each.labels)
        grouped[digest_of(each.fields)].append(replace(each, labels=names))

    def conflict(message: str, *, refused: int = 1, is_new: bool = False) -> None:
        result.conflicts.append(Conflict(message, is_new, bool(resolve) and not is_new))
        result.left_out += refused

    for digest, group in grouped.items():
        answer, there = group[-1], in_data[digest]
        if len({each.labels for each in group}) > 1:
            listed = ", ".join(
                f"{shown(each.labels, source)!r} ({each.by or each.where or 'answer'})" for each in group
            )
            conflict(f"{answer} has several answers: {listed}", refused=len(group) * (resolve != "mine"))
            if resolve != "mine":
                continue
        if held := next((row for row in there if row.split != "train"), None):
            conflict(f"{answer} is also in {held.split} ({held}), which nothing is learned from")
            continue
        # Without any label there is nothing to compare with. Columns of labels have no place for another one.
        unknown = [name for name in answer.labels if name not in labels and name != source.outside]
        if unknown and labels and not (new_labels and source.labels is None):
            hint = nearest(unknown[0], labels)
            conflict(f"{answer}: label {unknown[0]!r} does not occur in train{hint}", refused=0, is_new=True)
            continue
        given = [row for row in there if row.labels is not None]
        if other := next((row for row in given if row.labels != answer.labels), None):
            mine, theirs = shown(answer.labels, source), shown(other.labels or (), source)
            conflict(f"{answer}: {mine!r}, and {theirs!r} in {other}", refused=resolve != "mine")
            if resolve != "mine":
                continue
        elif there and len(given) == len(there):
            result.unchanged += 1
            continue
        result.added, result.changed = result.added + (not there), result.changed + bool(there)
        yield {
            "time": answer.time or _now(),
            "by": answer.by or who(),
            "action": "change" if there else "add",
            "texts": list(answer.fields),
            "before": list(given[0].labels or ()) if given else None,
            "after": list(answer.labels),
        }


def _as_in_data(label: str, labels: Sequence[str]) -> str:
    """The label of the data that is the same number or truth value, as 1 for 1.0; else the label itself."""
    same = (name for name in labels if merged_spellings((name, label)))
    return label if label in labels else next(same, label)


def read_answers(path: Path, source: TaskSource, *, by: str = "") -> tuple[list[Answer], int]:
    """The answers in a csv, tsv, jsonl or parquet file, with the columns that `headstart suggest` writes: the texts and
    the label; further columns are optional: `by` and `time` (ISO 8601).

    Raises:
        DataError: the file is damaged, of an unknown format, or lacks a column; a time cannot be read.
    """
    texts, label = answer_columns(source)
    answers, empty, in_text = [], 0, source.model_copy(update={"labels": None})
    for where, row in open_rows(path).rows:
        if missing := [name for name in (*texts, label) if name not in row]:
            raise DataError(f"{where}: no column {missing[0]!r}{nearest(missing[0], row)}")
        fields = tuple(as_text(row[name], where) or "" for name in texts)
        unanswered = row[label] != [] and is_blank(row[label])
        labels = None if unanswered else labels_of([row[label]], in_text, where)
        if labels is None or not all(field.strip() for field in fields):
            empty += 1
            continue
        time = (as_text(row.get(TIME), where) or "").strip()
        try:
            datetime.fromisoformat(time or _now())
        except ValueError as error:
            raise DataError(f"{where}: time {time!r} is not ISO 8601, such as 2026-01-31T12:00:00+00:00") from error
        answers.append(Answer(fields, labels, (as_text(row.get(BY), where) or "").strip() or by, time, where))
    return answers, empty


def undo(params: Params, *, task: str = "", batch: str = "") -> Merged:
    """Take back the last merge that is not taken back yet; the file of labels keeps both."""
    name, source = source_of(params, task)
    file = labels_file(name, source)
    with changing_data(Path(), [file.parent]):
        answers = in_force(read_entries(file))
        if not answers:
            raise DataError(f"{file}: no merge to take back")
        last = answers[-1]["batch"]
        if batch not in ("", last):
            raise DataError("other labels were merged since; `headstart label --undo` takes back the last ones")
        changes = [entry for entry in answers if entry["batch"] == last]
        if "file" in changes[0]:
            raise DataError(
                f"{file}: an earlier version of Headstart wrote the merge {last} into {changes[0]['file']}; restore "
                "the version of the data with git and `dvc checkout`, or label the texts again"
            )
        _append(file, [{"time": _now(), "by": who(), "action": "undo", "undone": last}])
        added = sum(entry["action"] == "add" for entry in changes)
        return Merged(file, last, added, len(changes) - added)


def _append(file: Path, entries: Sequence[Mapping[str, Any]]) -> str:
    batch = uuid.uuid4().hex[:12]
    lines = [{"batch": batch, "merged": _now(), "merged_by": who()} | dict(entry) for entry in entries]
    before = file.read_text(encoding="utf-8") if file.is_file() else ""
    before += "\n" if before and not before.endswith("\n") else ""  # an editor may have dropped it
    write_atomic(file, before + "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return batch


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
