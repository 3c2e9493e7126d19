"""The file of labels of a task: the answers of people, read together with the train files, to which nothing is written.

`labels-TASK.ledger.jsonl` is in the folder of the data and is versioned with it. Lines are only appended; each is one
JSON object:

    batch               identity of a merge
    time, by            when and by whom the label was given
    merged, merged_by   when and by whom the line was written
    action              add (a text that train lacks), change, or undo
    texts               of the row
    before, after       labels; `before` is null if there was no row, or one without a label
    undone              batch that an undo takes back

The last answer to a text that is not taken back is the label of every row of train with this text, and a further row if
there is none. Earlier versions of Headstart wrote the label into the train file, too; their lines name it in `file`.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import regex

from components.core.errors import DataError
from components.data.formats.textkey import digest_of
from components.settings.detection import exists
from components.settings.tasks import TaskSource

Entry = dict[str, Any]


def labels_file(task: str, source: TaskSource) -> Path:
    return Path(source.path) / f"labels-{task}.ledger.jsonl"


def read_entries(path: Path) -> list[Entry]:
    """The lines of a file of labels, each with its number as `line`; none if there is no file.

    Raises:
        DataError: a line is damaged.
    """
    entries: list[Entry] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n") if path.is_file() else (), 1):
        if line.strip():
            try:
                entry = json.loads(line)
                needed = ("undone",) if entry["action"] == "undo" else ("texts", "after")
                entries.append({name: entry[name] for name in ("batch", "time", "by", *needed)} | entry)
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{path}, line {number}: damaged ({error}); restore the file from git or DVC"
                ) from error
            entries[-1]["line"] = number
    return entries


def in_force(entries: Sequence[Entry]) -> list[Entry]:
    """The answers that are not taken back, in order."""
    undone = {entry["undone"] for entry in entries if entry["action"] == "undo"}
    return [entry for entry in entries if entry["action"] != "undo" and entry["batch"] not in undone]


def answers_beside(task: str, source: TaskSource) -> dict[bytes, Entry]:
    """Digest of a text -> its last answer, of those that are not in the train files."""
    entries = in_force(read_entries(labels_file(task, source)))
    return {digest_of(entry["texts"]): entry for entry in entries if "file" not in entry}


def labels_before(task: str, source: TaskSource) -> dict[bytes, tuple[str, ...]]:
    """Digest of a text with an answer -> the labels that it had before the first one; empty if it had none."""
    entries = reversed(in_force(read_entries(labels_file(task, source))))
    return {digest_of(entry["texts"]): tuple(entry.get("before") or ()) for entry in entries if "file" not in entry}


def files_of(task: str, source: TaskSource, split: str) -> list[tuple[Path, str]]:
    """(path, member) of the files of a split, in order; `member` as in `FILE#MEMBER`. A train file that is missing or
    empty is left out if there is a file of labels."""
    named = [(path, file.partition("#")[2]) for file in source.files(split) for path in source.located(file)]
    if split == "train" and labels_file(task, source).is_file():
        there = [path for path, _ in named if exists(path) and not (path.is_file() and not path.stat().st_size)]
        named = [(path, member) for path, member in named if path in there]
    return named


def label_values(labels: Sequence[str], source: TaskSource) -> tuple[Any, ...]:
    """The values of the label columns of a row with these labels."""
    if not source.several:
        return (labels[0],)
    if source.labels is not None:
        return tuple(int(name in labels) for name in source.labels)
    return (list(labels),)


#: Fewer letters are no word.
LEAST_LETTERS = 2
_HAN, _LETTERS = regex.compile(r"\p{Han}"), regex.compile(r"[\p{L}\p{M}]")
_SEPARATORS = re.compile(r"[_-]+|(?<=[a-z0-9])(?=[A-Z])")


def text_of(label: str) -> str:
    """A label as a text: spaces for underscores and hyphens, and before capital letters."""
    return _SEPARATORS.sub(" ", label).strip() or label


def are_words(texts: Iterable[str]) -> bool:
    """Whether each text has letters, so that it can mean something to a language model; `0` has none."""
    return all(_HAN.search(text) or len(_LETTERS.findall(text)) >= LEAST_LETTERS for text in texts)
