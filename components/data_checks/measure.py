"""The statistics of the tasks and corpora of a run, read from the raw files.

The statistics of an unchanged file are kept in `.headstart/statistics`, so that only new and changed files are read.
"""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import pyarrow.parquet as pq

from components.artifacts import digest_file, digest_text, write_atomic
from components.data_checks.statistics import Item, Statistics, combine, measure
from components.errors import ArtifactError, DataError
from components.formats.lines import Reading, lines
from components.formats.tables import DIALECTS, parse_object
from components.ingestion.readers import corpus_files, read_pairs, read_texts
from components.settings.data import CorpusSource, ParallelSource
from components.settings.tasks import SPLITS, TaskSource
from components.tasks.data import Split
from components.tasks.kinds import find_kind
from components.tasks.reading.labels import files_of, labels_file

#: Incremented when the same file gives other statistics.
VERSION = 1
CACHE = Path(".headstart/statistics")
#: Maximum number of files in the cache; those that were not used for the longest time are deleted first.
CACHED = 5_000
#: Keys of a task that change its runs, but not its rows.
OF_RUNS = {"budgets", "seeds", "baselines", "language"}
#: Hexadecimal digits of a file's digest.
SHORT = 12
#: Kinds whose targets are numbers.
_NUMBERS = frozenset(("similarity", "regression"))


@dataclass(frozen=True)
class Part:
    """A file of a corpus: name, digest of its content, statistics."""

    name: str
    digest: str
    statistics: Statistics


@dataclass(frozen=True)
class Unit:
    """What is compared with its own last version: a corpus, or one split of a task.

    Attributes:
        name: `domain`, or task and split, such as `aws-type train`.
        where: its files, for messages.
        digest: SHA-256 of the settings and, of a corpus, of its files; of a split, of its statistics, which include
            hashes of its texts. So a change of train does not make test a new version.
        statistics: of its rows.
        named: whether its labels are names.
        parts: files of a corpus; empty for a task.
    """

    name: str
    where: str
    digest: str
    statistics: Statistics
    named: bool = True
    parts: Sequence[Part] = ()


def corpus_units(name: str, source: CorpusSource | ParallelSource) -> list[Unit]:
    """The unit of a corpus, or one for each of its languages, whose lengths and characters differ.

    Raises:
        DataError: a file is missing or damaged.
    """
    languages = source.by_language() if isinstance(source, CorpusSource) else {}
    if not languages:
        return [corpus_unit(name, source)]
    return [corpus_unit(f"{name} {language}", part) for language, part in languages.items()]


def corpus_unit(name: str, source: CorpusSource | ParallelSource) -> Unit:
    """The statistics of a corpus; of pairs, of both texts together.

    Raises:
        DataError: a file is missing or damaged.
    """
    files, _ = corpus_files(source)
    settings = source.model_dump_json()
    found = [_cached([path], settings, functools.partial(_of_file, path, source)) for path in files]
    parts = [Part(path.name, digest[:SHORT], one) for path, (digest, (one,)) in zip(files, found, strict=True)]
    digest = digest_text("".join(digest for digest, _ in found) + settings)
    return Unit(name, source.path, digest, combine([part.statistics for part in parts]), parts=parts)


def _of_file(path: Path, source: CorpusSource | ParallelSource) -> list[Statistics]:
    def items() -> Iterator[Item]:
        if isinstance(source, CorpusSource):
            for number, text, _ in read_texts(path, source, Reading()):
                yield Item(text, f"{path.name}:{number}")
        else:
            for number, text, target, _ in read_pairs(path, source, Reading()):
                yield Item(f"{text}\n{target}" if text.strip() else "", f"{path.name}:{number}")

    return [measure(items(), columns=_columns(path))]


def task_units(name: str, source: TaskSource) -> list[Unit]:
    """The statistics of the splits of a task, after rows that are also in a later split have been dropped.

    Raises:
        DataError: the data are invalid (file, line, what to do).
    """
    files = [path for split in SPLITS for path, _ in files_of(name, source, split)]
    labels = labels_file(name, source)
    paths = _files(dict.fromkeys([*files, *([labels] if labels.is_file() else [])]))
    # A column of languages decides which rows are learned.
    settings = source.model_dump_json(exclude=OF_RUNS - {"language"} if source.languages else OF_RUNS)
    _, found = _cached(paths, f"{name}{settings}", lambda: _of_task(name, source))
    return [
        Unit(
            f"{name} {split}",
            f"{source.path}/{' + '.join(source.files(split) or source.files('train'))}",
            digest_text(json.dumps([settings, statistics.as_dict() | {"positions": {}}], sort_keys=True)),
            statistics,
            named=source.kind not in _NUMBERS,
        )
        for split, statistics in zip(SPLITS, found, strict=True)
    ]


def _files(paths: Iterable[Path]) -> list[Path]:
    """The files below paths, some of which are folders of parallel files."""
    found = []
    for path in paths:
        if not path.exists():
            raise DataError(f"{path}: does not exist; the splits are named under data.tasks in params.yaml")
        found += sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return found


def _of_task(name: str, source: TaskSource) -> list[Statistics]:
    examples = find_kind(source.kind, key=f"data.tasks.{name}.kind").read(name, source)
    found = []
    for split in SPLITS:
        columns = [column for path, _ in files_of(name, source, split) for column in _columns(path, source)]
        statistics = measure(items_of(getattr(examples, split), examples.labels, source), columns=columns)
        statistics.empty += examples.counts.get(f"{split}_rows_empty", 0)
        found.append(statistics)
    return found


def items_of(split: Split, labels: Sequence[str], source: TaskSource) -> Iterator[Item]:
    """The rows of a split, with their labels by name."""
    words = source.kind == "tagging"
    for row, (fields, target) in enumerate(zip(split.fields, split.targets, strict=True)):
        if labels:
            own = tuple(labels[int(index)] if index >= 0 else str(source.outside) for index in target)
        elif source.kind == "questions":
            own = ("answerable" if len(target) else "unanswerable",)
        elif source.kind in _NUMBERS:
            own = (f"{target[0]:.1g}",)
        else:
            own = tuple(f"{value:g}" for value in target)
        yield Item(
            (" " if words else "\n").join(fields),
            split.ids[row] if split.ids else str(row + 1),
            own,
            split.groups[row] if split.groups else None,
        )


def _columns(path: Path, source: TaskSource | None = None) -> list[str]:
    """The names of the columns of a table: of its header, or of its first row; empty for other formats."""
    name = path.name.lower().removesuffix(".gz").removesuffix(".zst")
    if not path.is_file() or name.endswith(".arrow"):
        return []
    if name.endswith(".parquet"):
        return [str(column) for column in pq.read_schema(path).names]
    encoding = {} if source is None else {"encoding": source.encoding}
    first = next(((number, line) for number, line in lines(path, Reading(), **encoding) if line.strip()), None)
    if first is None:
        return []
    if name.endswith((".jsonl", ".ndjson")):
        return sorted(parse_object(first[1], f"{path}, line {first[0]}")[0])
    suffix = name[-4:]
    if suffix in DIALECTS and (source is None or source.header):
        delimiter = (source.delimiter if source else None) or DIALECTS[suffix]["delimiter"]
        return next(csv.reader([first[1]], delimiter=delimiter))
    return []


def _cached(files: Sequence[Path], settings: str, make: Callable[[], list[Statistics]]) -> tuple[str, list[Statistics]]:
    """(SHA-256 of the files, statistics), from the cache if path, size and time of change of the files are those of an
    earlier call."""
    try:
        state = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from error
    key = blake2b(json.dumps([VERSION, state, settings]).encode(), digest_size=16).hexdigest()
    path = CACHE / f"{key}.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        found = raw["digest"], [Statistics.from_dict(one) for one in raw["statistics"]]
        path.touch()
        return found
    except (OSError, ValueError, KeyError, TypeError):
        pass
    digest = digest_text("".join(digest_file(path) for path in files))
    statistics = make()
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps({"digest": digest, "statistics": [one.as_dict() for one in statistics]}))
        for old in sorted(CACHE.glob("*.json"), key=lambda file: file.stat().st_mtime)[:-CACHED]:
            old.unlink(missing_ok=True)
    except (OSError, ArtifactError):
        pass  # the cache only saves time
    return digest, statistics
