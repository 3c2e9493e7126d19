"""The statistics of the tasks and corpora of a run, read from the raw files, as JSON.

Statistics of files add up to the statistics of their corpus. The statistics of an unchanged file are kept in
`.headstart/statistics`, so that only new and changed files are read. Keys:

    rows, empty         rows with and without text
    duplicates          labelled rows whose text occurs in an earlier row
    conflicts           rows whose text also occurs with other labels
    classes             label in the data files -> rows; labels given by `headstart label` are intended: not counted
    lengths             interval of half an octave of the characters -> rows
    scripts             writing system of most letters of a row -> rows; `none`: no letters
    columns             names of the columns of the files, if they have any
    content             digest of the texts and labels
    positions           `empty`, `duplicates`, `conflicts` or `script:NAME` -> positions of the first rows
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from components.cluster.shards import Facts, Work, digest_of, sharded
from components.core.artifacts import digest_text, json_of, write_atomic
from components.core.digests import kept_digests
from components.core.errors import ArtifactError, DataError
from components.data.facts import script_of
from components.data.formats.kinds import form_of
from components.data.formats.lines import Reading
from components.data.formats.plain import files_at
from components.data.formats.rows import open_rows
from components.data.formats.tables import PLAIN
from components.data.formats.textkey import digest_of as text_digest
from components.data.formats.textkey import text_key
from components.data.ingestion.readers import raw_files, read_documents
from components.data.tasks.data import row_texts
from components.data.tasks.kinds import find_kind, scoring_for
from components.data.tasks.reading.labels import files_of, labels_before, labels_file
from components.data.tasks.reading.records import layout_of, split_files
from components.settings.cluster import ClusterSettings
from components.settings.data import CorpusSource, ParallelSource
from components.settings.formats import is_table
from components.settings.tasks import SPLITS, TaskSource, has

#: Incremented when the same file gives other statistics.
VERSION = 5
CACHE = Path(".headstart/statistics")
#: Maximum number of files in the cache; those that were not used for the longest time are deleted first.
CACHED = 5_000
#: Keys of a task that change its runs, but not its rows.
OF_RUNS = {"budgets", "seeds", "baselines", "language"}
#: Characters of a text by which its writing system is counted.
EXCERPT = 2_000
#: Number of positions that are kept per problem, for messages.
NAMED = 3

Statistics = dict[str, Any]
Source = CorpusSource | ParallelSource
#: Text, position (`train.jsonl:17`, or an id), labels, and labels in the data files where a person has given others.
Item = tuple[str, str, tuple[str, ...], tuple[str, ...] | None]


def measure(items: Iterable[Item], *, columns: Sequence[str] = ()) -> Statistics:
    """The statistics of rows, read once. Memory grows with the number of distinct labelled texts only."""
    total = combine([]) | {"columns": list(columns)}
    rows_of: dict[str, Counter[tuple[str, ...]]] = {}
    content = blake2b(digest_size=16)
    for text, position, labels, written in items:
        problems = [] if text.strip() else ["empty"]
        if not problems:
            key = blake2b(text_key(text).encode("utf-8", "replace"), digest_size=8).digest()
            content.update(key + "\0".join(labels).encode("utf-8", "replace"))
            if labels:
                before = rows_of.setdefault(key.hex(), Counter())
                problems += ["duplicates"] * bool(before)
                before[labels] += 1
                problems += ["conflicts"] * (next(iter(before)) != labels)
            script = script_of(text[:EXCERPT])
            problems += [f"script:{script}"] * (script not in total["scripts"])
            total["scripts"][script] += 1
            total["lengths"][str(int(2 * np.log2(1 + len(text))))] += 1
            total["classes"].update(labels if written is None else written)
            total["rows"] += 1
        for problem in problems:
            if problem in ("empty", "duplicates"):
                total[problem] += 1
            total["positions"][problem] = [*total["positions"].get(problem, ()), position][:NAMED]
    conflicts = sum(each.total() for each in rows_of.values() if len(each) > 1)
    return total | {"conflicts": conflicts, "content": content.hexdigest()}


def combine(parts: Sequence[Statistics]) -> Statistics:
    """The statistics of several files together; duplicates and conflicts within files are counted."""
    total: Statistics = {
        name: sum(part[name] for part in parts) for name in ("rows", "empty", "duplicates", "conflicts")
    }
    for name in ("classes", "lengths", "scripts"):
        total[name] = sum((Counter(part[name]) for part in parts), Counter[str]())
    columns = list(dict.fromkeys(name for part in parts for name in part["columns"]))
    listed = dict.fromkeys(name for part in parts for name in part["positions"])
    positions = {name: [at for part in parts for at in part["positions"].get(name, ())][:NAMED] for name in listed}
    return total | {"columns": columns, "content": "", "positions": positions}


@dataclass
class Unit:
    """What is compared with its own last version: a corpus, or one split of a task.

    Attributes:
        name: `domain`, or task and split, such as `aws-type train`.
        digest: SHA-256 of the settings and, of a corpus, of its files; of a split, of its statistics, which include a
            digest of its texts. So a change of train does not make test a new version.
        named: whether the labels are names, not intervals of numbers.
        task: whose split it is; empty for a corpus.
        parts: (name, digest, statistics) of the files of a corpus; empty for a task.
        before: the accepted version that it was compared with; None: there is none.
        accepted: the entry by which this content has been accepted; None: it has not.
        findings: violations of the rules in words -> their rule.
    """

    name: str
    where: str
    digest: str
    statistics: Statistics
    named: bool = True
    task: str = ""
    parts: Sequence[tuple[str, str, Statistics]] = ()
    before: dict[str, Any] | None = None
    accepted: dict[str, Any] | None = None
    findings: dict[str, str] = field(default_factory=dict)


def measure_file(item: tuple[str, str, Source], key: str, work: Work) -> Facts:
    """The statistics of a raw file, given by its name and the name by which a worker reads it; of pairs, of both texts
    together."""
    name, place, source = item
    path = work.read(place)
    items: Iterator[Item] = (
        ("\n".join(texts) if texts[0].strip() else "", f"{name}:{number}", (), None)
        for number, texts, _ in read_documents(path, source, Reading())
    )
    return measure(items, columns=_columns(path))


def corpus_unit(name: str, source: Source, *, cluster: ClusterSettings) -> Unit:
    settings, paths = source.model_dump_json(), raw_files(Path(source.path))[0]
    digests = kept_digests(paths)
    # The name is part of the positions. Files of different folders may have the same name and content.
    keys = [
        digest_of("statistics", VERSION, path.name, each, settings) for path, each in zip(paths, digests, strict=True)
    ]
    files = dict(zip(keys, paths, strict=True))

    def measured(missing: Sequence[str]) -> list[Facts]:
        given = {key: files[key] for key in missing}
        size = sum(path.stat().st_size for path in given.values())
        with sharded(CACHE / name, settings=cluster, size=size) as steps:
            items = {
                key: (path.name, steps.work.publish(path, f"{key}-{path.name}"), source) for key, path in given.items()
            }
            return steps.map(measure_file, items)

    statistics = _kept(files, measured)
    # Twelve digits suffice to tell files apart.
    parts = [(path.name, each[:12], statistics[key]) for key, path, each in zip(keys, paths, digests, strict=True)]
    digest = digest_text("".join(digests) + settings)
    return Unit(name, source.path, digest, combine([each for _, _, each in parts]), parts=parts)


def task_units(name: str, source: TaskSource) -> list[Unit]:
    """The statistics of the splits of a task, after rows that are also in a later split have been dropped.

    Raises:
        DataError: the data are invalid (file, line, what to do).
    """
    files = [*(file.path for file in split_files(source, task=name)), labels_file(name, source)]
    paths = [path for file in dict.fromkeys(files) if file != files[-1] or file.is_file() for path in files_at(file)]
    # A column of languages decides which rows are learned.
    settings = source.model_dump_json(exclude=OF_RUNS - {"language"} if source.languages else OF_RUNS)
    key = digest_of("statistics", VERSION, [str(path) for path in paths], kept_digests(paths), name, settings)
    return [
        Unit(
            f"{name} {split}",
            f"{source.path}/{' + '.join(source.files(split) or source.files('train'))}",
            digest_text(json.dumps([settings, statistics | {"positions": {}}], sort_keys=True)),
            statistics,
            named=not has(source.kind, "score"),
            task=name,
        )
        for split, statistics in _kept([key], lambda _: [_of_task(name, source)])[key].items()
    ]


def _of_task(name: str, source: TaskSource) -> dict[str, Statistics]:
    examples = find_kind(source.kind, key=f"data.tasks.{name}.kind").read(name, source)
    written, labels, scoring = labels_before(name, source), examples.labels, scoring_for(source.kind, examples.labels)
    result = {}
    for part in SPLITS:
        split, items = getattr(examples, part), list[Item]()
        for row, (fields, target) in enumerate(zip(split.fields, split.targets, strict=True)):
            names = scoring.named(target)
            if labels:
                names = tuple(labels[int(index)] if index >= 0 else source.outside or "unseen" for index in target)
            position = split.ids[row] if split.ids else str(row + 1)
            before = written.get(text_digest(fields)) if written else None
            items.append(("\n".join(row_texts(source.kind, fields)), position, names, before))
        columns = [column for path, _ in files_of(name, source, part) for column in _columns(path, source)]
        result[part] = measure(items, columns=columns)
        result[part]["empty"] += examples.counts.get(f"{part}_rows_empty", 0)
    return result


def _columns(path: Path, source: TaskSource | None = None) -> list[str]:
    """The names of the columns of a table: of its header, or of its first row; empty for other formats."""
    layout = PLAIN if source is None else layout_of(source, "", nested=True)
    with suppress(DataError):
        if is_table(form := form_of(path)) and form != "json" and (table := open_rows(path, layout=layout)).header:
            return table.names if table.fixed else sorted(table.names)
    return []


def _kept(keys: Iterable[str], measured: Callable[[Sequence[str]], Iterable[Any]]) -> dict[str, Any]:
    """Key -> statistics: those that an earlier run has kept, and those that are measured now."""
    results = {}
    # The cache only saves time.
    for key in keys:
        with suppress(OSError, ValueError):
            results[key] = json_of(path := CACHE / f"{key}.json")
            path.touch()
    if missing := [key for key in keys if key not in results]:
        new = dict(zip(missing, measured(missing), strict=True))
        results |= new
        with suppress(OSError, ArtifactError):
            for key, statistics in new.items():
                write_atomic(CACHE / f"{key}.json", json.dumps(statistics))
            for old in sorted(CACHE.glob("*.json"), key=lambda file: file.stat().st_mtime)[:-CACHED]:
                old.unlink(missing_ok=True)
    return results
