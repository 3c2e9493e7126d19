"""The statistics of the tasks and corpora of a run, read from the raw files.

Statistics of files add up to the statistics of their corpus. The statistics of an unchanged file are kept in
`.headstart/statistics`, so that only new and changed files are read.
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import numpy as np

from components.cluster.shards import Facts, Work, digest_of, sharded
from components.core.artifacts import digest_text, write_atomic
from components.core.digests import kept_digests
from components.core.errors import ArtifactError, DataError
from components.data.formats.kinds import form_of
from components.data.formats.lines import Reading
from components.data.formats.plain import files_at
from components.data.formats.rows import open_rows
from components.data.formats.tables import PLAIN
from components.data.formats.textkey import digest_of as text_digest
from components.data.formats.textkey import text_key
from components.data.ingestion.readers import raw_files, read_documents
from components.data.tasks.data import Split
from components.data.tasks.kinds import find_kind
from components.data.tasks.reading.labels import files_of, labels_before, labels_file
from components.data.tasks.reading.records import layout_of, split_files
from components.settings.cluster import ClusterSettings
from components.settings.data import CorpusSource, ParallelSource
from components.settings.tasks import SPLITS, TABLES, TaskSource

#: Incremented when the same file gives other statistics.
VERSION = 3
CACHE = Path(".headstart/statistics")
#: Maximum number of files in the cache; those that were not used for the longest time are deleted first.
CACHED = 5_000
#: Keys of a task that change its runs, but not its rows.
OF_RUNS = {"budgets", "seeds", "baselines", "language"}
#: Characters of a text by which its writing system is counted.
EXCERPT = 2_000
#: Number of positions that are kept per problem, for messages.
NAMED = 3
#: Kinds whose targets are numbers.
_NUMBERS = frozenset(("similarity", "regression"))
#: Attributes of `Statistics` that are sums over rows.
_SUMS = ("rows", "empty", "duplicates", "conflicts", "classes", "lengths", "scripts")


@dataclass(frozen=True)
class Item:
    """One row of data: its text, its position (`train.jsonl:17`, or its id) and its labels.

    `written` are the labels of the data files, where a person has given others by `headstart label`.
    """

    text: str
    position: str
    labels: tuple[str, ...] = ()
    written: tuple[str, ...] | None = None


@dataclass
class Statistics:
    """Statistics of rows.

    Attributes:
        duplicates: labelled rows whose text occurs in an earlier row. The stage `ingest` drops and counts the
            duplicates in a corpus.
        conflicts: rows whose text also occurs with other labels.
        classes: labels in the data files -> rows. Labels given by `headstart label` are not counted: they are intended.
        lengths: interval of half an octave of the characters -> rows.
        scripts: writing system of most letters of a row -> rows; `none`: no letters.
        columns: names of the columns of the files, if they have any.
        content: digest of the texts and labels.
        positions: problem (`empty`, `duplicate`, `conflict`) or `script:NAME` -> positions of the first rows.
    """

    rows: int = 0
    empty: int = 0
    duplicates: int = 0
    conflicts: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    lengths: Counter[str] = field(default_factory=Counter)
    scripts: Counter[str] = field(default_factory=Counter)
    columns: list[str] = field(default_factory=list)
    content: str = ""
    positions: dict[str, list[str]] = field(default_factory=dict)

    def share(self, count: float) -> float:
        """A count as a share of all rows, empty ones included."""
        return count / max(self.rows + self.empty, 1)

    def compact(self) -> dict[str, Any]:
        """The statistics as JSON, without what is needed to name rows."""
        return vars(self) | {"positions": {}}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """Read the statistics from JSON; numbers that only earlier versions of Headstart compare are left out.

        Raises:
            KeyError: a number is missing.
        """
        sums: dict[str, Any] = {
            name: Counter(raw[name]) if isinstance(raw[name], dict) else raw[name] for name in _SUMS
        }
        return cls(**sums, columns=raw["columns"], content=raw.get("content", ""), positions=raw["positions"])


def measure(items: Iterable[Item], *, columns: Sequence[str] = ()) -> Statistics:
    """The statistics of rows, read once. Memory grows with the number of distinct labelled texts only."""
    result = Statistics(columns=list(columns))
    labels_of: dict[bytes, tuple[str, ...]] = {}
    rows_of: Counter[bytes] = Counter()
    conflicting: set[bytes] = set()
    content = blake2b(digest_size=16)

    def name(problem: str) -> None:
        positions = result.positions.setdefault(problem, [])
        if len(positions) < NAMED:
            positions.append(item.position)

    for item in items:
        if not item.text.strip():
            result.empty += 1
            name("empty")
            continue
        result.rows += 1
        key = blake2b(text_key(item.text).encode("utf-8", "replace"), digest_size=8).digest()
        content.update(key + "\0".join(item.labels).encode("utf-8", "replace"))
        if item.labels:
            if key in rows_of:
                result.duplicates += 1
                name("duplicate")
            rows_of[key] += 1
            if labels_of.setdefault(key, item.labels) != item.labels:
                conflicting.add(key)
                name("conflict")
        script = script_of(item.text[:EXCERPT])
        if not result.scripts[script]:
            name(f"script:{script}")
        result.scripts[script] += 1
        result.lengths[str(int(2 * np.log2(1 + len(item.text))))] += 1
        result.classes.update(item.labels if item.written is None else item.written)
    result.conflicts = sum(rows_of[key] for key in conflicting)
    result.content = content.hexdigest()
    return result


def combine(parts: Sequence[Statistics]) -> Statistics:
    """The statistics of several files together; duplicates and conflicts within files are counted."""
    total = Statistics()
    for part in parts:
        for name in _SUMS:
            setattr(total, name, getattr(total, name) + getattr(part, name))
        total.columns += [name for name in part.columns if name not in total.columns]
        for problem, positions in part.positions.items():
            listed = total.positions.setdefault(problem, [])
            listed += positions[: NAMED - len(listed)]
    return total


class _Scripts(dict[str, str]):
    """Letter -> writing system: the first word of its Unicode name, such as LATIN, CYRILLIC, CJK, THAI."""

    def __missing__(self, letter: str) -> str:
        name = unicodedata.name(letter, "").partition(" ")[0] if letter.isalpha() else ""
        self[letter] = name.partition("-")[0].lower()
        return self[letter]


_SCRIPTS = _Scripts()


def script_of(text: str) -> str:
    """The writing system of most letters of a text; `none` if it has no letters."""
    if text.isascii():
        return "latin" if any(map(str.isalpha, text)) else "none"
    counts: Counter[str] = Counter()
    for letter, count in Counter(text).items():
        if name := _SCRIPTS[letter]:
            counts[name] += count
    return counts.most_common(1)[0][0] if counts else "none"


@dataclass(frozen=True)
class Unit:
    """What is compared with its own last version: a corpus, or one split of a task.

    Attributes:
        name: `domain`, or task and split, such as `aws-type train`.
        digest: SHA-256 of the settings and, of a corpus, of its files; of a split, of its statistics, which include a
            digest of its texts. So a change of train does not make test a new version.
        named: whether the labels are names, not intervals of numbers.
        task: whose split it is; empty for a corpus.
        parts: (name, digest, statistics) of the files of a corpus; empty for a task.
    """

    name: str
    where: str
    digest: str
    statistics: Statistics
    named: bool = True
    task: str = ""
    parts: Sequence[tuple[str, str, Statistics]] = ()


@dataclass(frozen=True)
class MeasuredFile:
    """A raw file of a corpus: its name, and the name by which a worker reads it."""

    name: str
    place: str
    source: CorpusSource | ParallelSource


def measure_file(item: MeasuredFile, key: str, work: Work) -> Facts:
    """The statistics of a raw file; of pairs, of both texts together."""
    path = work.read(item.place)
    items = (
        Item("\n".join(texts) if texts[0].strip() else "", f"{item.name}:{number}")
        for number, texts, _ in read_documents(path, item.source, Reading())
    )
    return vars(measure(items, columns=_columns(path)))


def corpus_unit(name: str, source: CorpusSource | ParallelSource, *, cluster: ClusterSettings) -> Unit:
    settings = source.model_dump_json()
    paths = raw_files(Path(source.path))[0]
    digests = _digests(paths)
    # The name is part of the positions.
    keys = [
        digest_of("statistics", VERSION, path.name, each, settings) for path, each in zip(paths, digests, strict=True)
    ]
    statistics = {key: kept[0] for key in keys if (kept := _kept(key)) is not None}
    missing = {key: path for key, path in zip(keys, paths, strict=True) if key not in statistics}
    if missing:
        size = sum(path.stat().st_size for path in missing.values())
        with sharded(CACHE / name, settings=cluster, size=size) as steps:
            items = {
                key: MeasuredFile(path.name, steps.work.publish(path, f"{key}-{path.name}"), source)
                for key, path in missing.items()
            }
            for key, facts in zip(items, steps.map(measure_file, items), strict=True):
                statistics[key] = Statistics.from_dict(facts)
                _keep(key, [statistics[key]])
    # Twelve digits suffice to tell files apart.
    parts = [(path.name, digest[:12], statistics[key]) for path, digest, key in zip(paths, digests, keys, strict=True)]
    digest = digest_text("".join(digests) + settings)
    return Unit(name, source.path, digest, combine([statistics for _, _, statistics in parts]), parts=parts)


def task_units(name: str, source: TaskSource) -> list[Unit]:
    """The statistics of the splits of a task, after rows that are also in a later split have been dropped.

    Raises:
        DataError: the data are invalid (file, line, what to do).
    """
    files = [file.path for file in split_files(source, task=name)]
    labels = labels_file(name, source)
    files += [labels] if labels.is_file() else []
    paths = [path for file in dict.fromkeys(files) for path in files_at(file)]
    # A column of languages decides which rows are learned.
    settings = source.model_dump_json(exclude=OF_RUNS - {"language"} if source.languages else OF_RUNS)
    key = digest_of("statistics", VERSION, [str(path) for path in paths], _digests(paths), name, settings)
    measured = _kept(key)
    if measured is None:
        measured = _of_task(name, source)
        _keep(key, measured)
    return [
        Unit(
            f"{name} {split}",
            f"{source.path}/{' + '.join(source.files(split) or source.files('train'))}",
            digest_text(json.dumps([settings, statistics.compact()], sort_keys=True)),
            statistics,
            named=source.kind not in _NUMBERS,
            task=name,
        )
        for split, statistics in zip(SPLITS, measured, strict=True)
    ]


def _of_task(name: str, source: TaskSource) -> list[Statistics]:
    examples = find_kind(source.kind, key=f"data.tasks.{name}.kind").read(name, source)
    written = labels_before(name, source)
    result = []
    for split in SPLITS:
        columns = [column for path, _ in files_of(name, source, split) for column in _columns(path, source)]
        items = _items(getattr(examples, split), examples.labels, source, written)
        statistics = measure(items, columns=columns)
        statistics.empty += examples.counts.get(f"{split}_rows_empty", 0)
        result.append(statistics)
    return result


def _items(
    split: Split, labels: Sequence[str], source: TaskSource, written: Mapping[bytes, tuple[str, ...]]
) -> Iterator[Item]:
    """The rows of a split, with their labels by name."""
    for row, (fields, target) in enumerate(zip(split.fields, split.targets, strict=True)):
        if labels:
            names = tuple(labels[int(index)] if index >= 0 else source.outside or "unseen" for index in target)
        elif source.kind == "questions":
            names = ("answerable" if len(target) else "unanswerable",)
        elif source.kind in _NUMBERS:
            names = (f"{target[0]:.1g}",)
        else:
            names = tuple(f"{value:g}" for value in target)
        text = (" " if source.kind == "tagging" else "\n").join(fields)
        before = written.get(text_digest(fields)) if written else None
        yield Item(text, split.ids[row] if split.ids else str(row + 1), names, before)


def _columns(path: Path, source: TaskSource | None = None) -> list[str]:
    """The names of the columns of a table: of its header, or of its first row; empty for other formats."""
    layout = PLAIN if source is None else layout_of(source, "", nested=True)
    try:
        form = form_of(path)
        table = open_rows(path, layout=layout) if form in TABLES and form != "json" else None
    except DataError:
        return []
    if table is None or not table.header:
        return []
    return table.names if table.fixed else sorted(table.names)


def _digests(paths: Sequence[Path]) -> list[str]:
    try:
        return kept_digests(paths)
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from error


def _kept(key: str) -> list[Statistics] | None:
    path = CACHE / f"{key}.json"
    try:
        statistics = [Statistics.from_dict(entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
        path.touch()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return statistics


def _keep(key: str, statistics: Sequence[Statistics]) -> None:
    # The cache only saves time.
    with suppress(OSError, ArtifactError):
        CACHE.mkdir(parents=True, exist_ok=True)
        write_atomic(CACHE / f"{key}.json", json.dumps([vars(entry) for entry in statistics]))
        for old in sorted(CACHE.glob("*.json"), key=lambda file: file.stat().st_mtime)[:-CACHED]:
            old.unlink(missing_ok=True)
