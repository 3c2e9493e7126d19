"""The stage `leakage`: texts of dev and test in the corpora and labelled rows that the models of a task have seen.

leakage.json holds {schema, task, settings, rows: {dev, test}, sources: name -> {documents, dev, test: {exact, near,
examples: [{row, document, similarity}]}}, unknown: encoders whose training text is not known, systems: name ->
{sources, unknown, exact, near, refused}}, where `exact` and `near` are numbers of test rows (near: those that are not
exact), and `refused` is the reason for which the rule excludes a system from promotion, or empty.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from components.cluster.shards import Facts, Steps, Work, digest_of, sharded
from components.core.artifacts import read_manifest, write_json, writing
from components.core.progress import Progress
from components.data.formats import corpus as corpora
from components.data.formats.corpus import read_batches
from components.data.ingestion.cleaning import clean
from components.data.ingestion.dedup import (
    NGRAM,
    PERMUTATIONS,
    Shingles,
    Sketches,
    band_rows,
    hashed_words,
    stores_signatures,
    unpacked_rows,
)
from components.data.ingestion.matching import LEAST_WORDS, NEAR, SEARCH_PERMUTATIONS, TextSearch
from components.data.tasks.data import Fields
from components.data.tasks.examples import read_facts, read_split
from components.settings.cluster import ClusterSettings
from components.settings.data import NearDuplicates
from components.settings.evaluate import LeakageSettings
from components.settings.section import Section

KIND: Final = "leakage"
SCHEMA: Final = 1
#: Splits whose texts are searched for.
SEARCHED: Final = ("dev", "test")
#: Sources that hold raw documents; all others are train splits of tasks.
CORPUS: Final = "corpus/"
#: Examples that are listed per source and split.
_LISTED = 20
#: Rows of labelled data that are searched at once.
_ROWS = 4096


class LeakageJob(Section):
    """Inputs of the stage.

    Attributes:
        others: tasks that are learned together with it -> directories with their labelled data.
        systems: `<family>-<start>`, or `baselines` -> what it or its ancestors were trained on: `corpus/<name>`, and
            `train/<task>` for the train rows of a task.
        unknown: `<family>-<start>` -> imported models among its ancestors.
        near: `params.ingest.near_duplicates`, whose signatures in the corpora are used.
    """

    task: str
    examples: Path
    others: dict[str, Path] = Field(default_factory=dict)
    corpus: Path | None
    systems: dict[str, list[str]]
    unknown: dict[str, list[str]] = Field(default_factory=dict)
    settings: LeakageSettings
    near: NearDuplicates | None
    output: Path
    cluster: ClusterSettings = ClusterSettings()
    code: str = ""


class _Rows:
    """The texts of dev and test, numbered over both. `are_stored`: signatures are like those of the corpora."""

    def __init__(self, examples: Path, *, are_stored: bool) -> None:
        splits = {split: read_split(examples, split) for split in SEARCHED}
        self.counts = {split: len(rows) for split, rows in splits.items()}
        dev = self.counts["dev"]
        self.parts = {"dev": slice(0, dev), "test": slice(dev, None)}
        self.ids = [row_id or "" for rows in splits.values() for row_id in rows.ids]
        fields = [parts for rows in splits.values() for parts in rows.fields]
        permutations = PERMUTATIONS if are_stored else SEARCH_PERMUTATIONS
        self.shingles = Shingles(ngram=NGRAM, permutations=permutations)
        band = band_rows(NEAR, permutations=permutations)
        tagging = read_facts(examples).kind == "tagging"
        #: Each row as one text, to compare with rows of train.
        wholes = [_joined(parts, tagging) for parts in fields]
        #: Texts that can be documents by themselves, to compare with corpora -> their rows.
        texts: dict[str, list[int]] = {}
        for row, parts in enumerate(fields):
            for text in [wholes[row]] if tagging else _documents_of(parts):
                texts.setdefault(clean(text), []).append(row)
        self.of_corpora, self.of_rows = (
            TextSearch(each, shingles=self.shingles, rows=band, threshold=NEAR) for each in (list(texts), wholes)
        )
        self.owners = list(texts.values())


@lru_cache(maxsize=1)
def _rows_of(examples: Path, digest: str, are_stored: bool) -> _Rows:
    # `digest` is of the manifest, because other rows may be in the same directory.
    return _Rows(examples, are_stored=are_stored)


def _joined(fields: Fields, tagging: bool) -> str:
    return clean((" " if tagging else "\n").join(fields))


def _documents_of(fields: Fields) -> list[str]:
    """The only text of a row, or those of several that are long enough not to occur by chance."""
    if len(fields) == 1:
        return list(fields)
    return [text for text in dict.fromkeys(fields) if len(hashed_words([clean(text)])[0]) >= LEAST_WORDS]


class _Copies:
    """The copies of rows in one source."""

    def __init__(self, rows: _Rows) -> None:
        self.rows = rows
        self.documents = 0
        self.exact, self.near = (np.zeros(len(rows.ids), dtype=bool) for _ in range(2))
        self.examples: dict[str, list[dict[str, Any]]] = {split: [] for split in SEARCHED}

    def add(self, rows: Sequence[int], document: str, similarity: float = 1.0, *, exact: bool) -> None:
        """Record that rows occur in a document; a near copy that is exact too is listed once."""
        for row in rows:
            if not exact and self.exact[row]:
                continue
            (self.exact if exact else self.near)[row] = True
            listed = self.examples["dev" if row < self.rows.counts["dev"] else "test"]
            if len(listed) < _LISTED:
                listed.append({"row": self.rows.ids[row], "document": document, "similarity": round(similarity, 3)})

    def add_near(self, ids: pa.Array, sketches: Sketches) -> None:
        """Record the near copies among documents of a corpus."""
        for document, text, similarity in self.rows.of_corpora.near(sketches):
            self.add(self.rows.owners[text], ids[document].as_py(), similarity, exact=False)

    def as_facts(self) -> Facts:
        """The copies in one shard, as JSON."""
        flags = {"exact": self.exact, "near": self.near}
        rows = {name: np.flatnonzero(each).tolist() for name, each in flags.items()}
        return {"documents": self.documents, "rows": rows, "examples": self.examples}

    def join(self, facts: Facts) -> None:
        """Add the copies in the next shard."""
        self.documents += facts["documents"]
        for name, flags in (("exact", self.exact), ("near", self.near)):
            flags[facts["rows"][name]] = True
        for split, listed in self.examples.items():
            listed += facts["examples"][split][: _LISTED - len(listed)]

    def as_json(self) -> dict[str, Any]:
        """The content of leakage.json; a row that is found both ways counts as exact."""
        result: dict[str, Any] = {"documents": self.documents}
        for split, part in self.rows.parts.items():
            exact, near = self.exact[part], self.near[part]
            listed = sorted(self.examples[split], key=lambda copy: (-copy["similarity"], copy["row"], copy["document"]))
            result[split] = {"exact": int(exact.sum()), "near": int((near & ~exact).sum()), "examples": listed}
        return result


def leakage(job: LeakageJob) -> Path:
    """Search the texts of dev and test in everything that the systems have seen; returns the directory.

    Raises:
        ArtifactError: a corpus or the labelled data are incomplete or damaged.
    """
    # Signatures like the stored ones of the corpora, if near copies are removed from these at this threshold.
    are_stored = job.near is not None and job.near.threshold <= NEAR
    rows = _rows_of(job.examples.absolute(), read_manifest(job.examples).digest, are_stored)
    sources = list(dict.fromkeys(source for seen in job.systems.values() for source in seen))
    size = sum(_size(job, source) for source in sources if source.startswith(CORPUS))
    with sharded(job.output, settings=job.cluster, size=size) as steps:
        copies = {
            source: _in_corpus(job, source, rows, steps, are_stored=are_stored)
            if source.startswith(CORPUS)
            else _in_train(job, source, rows)
            for source in sources
        }
    content = {
        "schema": SCHEMA,
        "task": job.task,
        "settings": job.settings.model_dump(),
        "rows": rows.counts,
        "sources": {source: each.as_json() for source, each in copies.items()},
        "unknown": sorted({name for names in job.unknown.values() for name in names}),
        "systems": {system: _system(job, system, copies, rows) for system in job.systems},
    }
    with writing(job.output, kind=KIND) as draft:
        (draft.path / "leakage.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
        write_json(draft.path / "metrics.json", _metrics(content))
    for line in in_words(content):
        print(f"{job.task}: {line}", flush=True)
    return job.output


def _directory(job: LeakageJob, source: str) -> Path:
    assert job.corpus is not None  # a system that has seen a corpus
    return job.corpus / source.removeprefix(CORPUS)


def _size(job: LeakageJob, source: str) -> int:
    return sum(path.stat().st_size for path in corpora.shards(_directory(job, source), "train"))


@dataclass(frozen=True)
class SearchedShard:
    """Inputs of `search_shard`.

    Attributes:
        name: of the shard in the work folder.
        examples, digest: labelled data, and the digest of their manifest.
        are_stored: whether signatures are like the stored ones.
        exact: rows of exact copies in the corpus, when near copies are searched; None: exact ones are searched.
        keys: whether it is a key shard, which has signatures.
    """

    name: str
    examples: Path
    digest: str
    are_stored: bool
    exact: tuple[int, ...] | None
    keys: bool


def search_shard(item: SearchedShard, key: str, work: Work) -> Facts:
    """The exact or the near copies of rows in a shard of a corpus: word by word in texts, or by signatures."""
    rows = _rows_of(item.examples, item.digest, item.are_stored)
    copies, path = _Copies(rows), work.read(item.name)
    if item.exact is not None:
        copies.exact[list(item.exact)] = True
    if item.keys:
        for batch in read_batches(path, ["id", "sketch", "heldout"]):
            batch = batch.filter(pc.invert(batch.column(2)))
            copies.add_near(batch.column(0), unpacked_rows(batch.column(1), np.uint16))
        return copies.as_facts()
    columns = ["id", "text", *(["target"] if corpora.holds_pairs(path) else [])]
    for batch in read_batches(path, columns):
        ids = batch.column(0)
        for texts in (column.to_pylist() for column in batch.columns[1:]):
            if item.exact is not None:
                copies.add_near(ids, rows.shingles.sketches(texts))
                continue
            for document, text in rows.of_corpora.exact(texts):
                copies.add(rows.owners[text], ids[document].as_py(), exact=True)
        copies.documents += batch.num_rows if item.exact is None else 0
    return copies.as_facts()


def _in_corpus(job: LeakageJob, source: str, rows: _Rows, steps: Steps, *, are_stored: bool) -> _Copies:
    """Search a corpus: first for exact copies, then for near ones, which are listed only of other rows."""
    directory = _directory(job, source)
    facts = read_manifest(directory, kind=corpora.KIND).facts
    shards = [path.name for path in corpora.shards(directory, "train")]
    has_sketches = are_stored and stores_signatures(facts["recipe"]["settings"])
    near = facts["keys"] if has_sketches else shards
    copies, digest = _Copies(rows), read_manifest(job.examples).digest
    with Progress(f"leakage {source}", total=len(shards) + len(near), unit="shard") as bar:
        for names, exact in ((shards, True), (near, False)):
            listed = None if exact else tuple(np.flatnonzero(copies.exact).tolist())
            items = {}
            for name in names:
                place = steps.work.publish(directory / name, name)
                key = digest_of("leakage", job.code, digest, are_stored, listed, name)
                keys = not exact and has_sketches
                items[key] = SearchedShard(place, job.examples.absolute(), digest, are_stored, listed, keys)
            for of_shard in steps.map(search_shard, items, advance=lambda item: bar.advance(1)):
                copies.join(of_shard)
    return copies


def _in_train(job: LeakageJob, source: str, rows: _Rows) -> _Copies:
    """Search the train rows of a task."""
    directory = {**job.others, job.task: job.examples}[source.partition("/")[2]]
    tagging = read_facts(directory).kind == "tagging"
    train = read_split(directory, "train")
    copies = _Copies(rows)
    for start in range(0, len(train), _ROWS):
        part = slice(start, start + _ROWS)
        texts = [_joined(fields, tagging) for fields in train.fields[part]]
        ids = [row_id or "" for row_id in train.ids[part]]
        for document, row in rows.of_rows.exact(texts):
            copies.add([row], ids[document], exact=True)
        for document, row, similarity in rows.of_rows.near(rows.shingles.sketches(texts)):
            copies.add([row], ids[document], similarity, exact=False)
        copies.documents += len(texts)
    return copies


def _system(job: LeakageJob, system: str, copies: Mapping[str, _Copies], rows: _Rows) -> dict[str, Any]:
    """Test rows that a system or its ancestors have seen; `overlap` governs those of its own train rows."""
    sources = job.systems[system]
    test, none = rows.parts["test"], np.zeros(rows.counts["test"], dtype=bool)
    exact = np.logical_or.reduce([none, *(copies[source].exact[test] for source in sources)])
    near = np.logical_or.reduce([none, *(copies[source].near[test] for source in sources)]) & ~exact
    others = [source for source in sources if source != f"train/{job.task}"]
    ruled = np.logical_or.reduce([none, *(copies[source].exact[test] for source in others)])
    reasons = [
        f"{int(seen.sum())} test rows {what} in what it was trained on (leakage.{rule}: refuse)"
        for rule, seen, what in (("exact", ruled, "occur"), ("near", near, "have near copies"))
        if getattr(job.settings, rule) == "refuse" and seen.any()
    ]
    return {
        "sources": list(sources),
        "unknown": job.unknown.get(system, []),
        "exact": int(exact.sum()),
        "near": int(near.sum()),
        "refused": "; ".join(reasons),
    }


def _metrics(content: Mapping[str, Any]) -> dict[str, int]:
    return {
        f"{source.replace('/', '.')}.{split}.{kind}": copies[split][kind]
        for source, copies in content["sources"].items()
        for split in SEARCHED
        for kind in ("exact", "near")
    }


def in_words(content: Mapping[str, Any]) -> Iterator[str]:
    """One line per source in which rows of dev or test occur, and one per system that is refused."""
    rows = content["rows"]
    for source, copies in content["sources"].items():
        parts = [
            f"{copies[split]['exact']} exact and {copies[split]['near']} near of {rows[split]:,} {split} rows"
            for split in SEARCHED
            if copies[split]["exact"] or copies[split]["near"]
        ]
        if parts:
            yield f"{source} has copies of {', '.join(parts)}"
    for name in content["unknown"]:
        yield f"{name} was imported: whether its training text has the test rows is unknown"
    for system, seen in content["systems"].items():
        if seen["refused"]:
            yield f"{system} is not promoted: {seen['refused']}"
