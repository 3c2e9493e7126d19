"""The stage `leakage`: texts of dev and test in the corpora and labelled rows that the models of a task have seen.

leakage.json holds {schema, task, settings, rows: {dev, test}, sources: name -> {documents, dev, test: {exact, near,
examples: [{row, document, similarity}]}}, unknown: encoders whose training text is not known, systems: name ->
{sources, unknown, exact, near, refused}}, where `exact` and `near` are numbers of test rows (near: those that are not
exact), and `refused` is the reason for which the rule excludes a system from promotion, or empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pydantic import Field

from components.artifacts import read_manifest, write_json, writing
from components.formats import corpus as corpora
from components.formats.corpus import read_batches
from components.ingestion.cleaning import clean
from components.ingestion.dedup import Shingles, Sketches, hashed_words
from components.ingestion.matching import LEAST_WORDS, Wanted
from components.progress import Progress
from components.settings.ingest import NearDuplicates
from components.settings.leakage import LeakageSettings
from components.settings.section import Section
from components.tasks.data import Fields
from components.tasks.examples import read_facts, read_split

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
        task: name of the task.
        examples: directory with its labelled data.
        others: tasks that are learned together with it -> directories with their labelled data.
        corpus: directory with all corpora.
        systems: `<family>-<start>`, or `baselines` -> what it or its ancestors were trained on: `corpus/<name>`, and
            `train/<task>` for the train rows of a task.
        unknown: `<family>-<start>` -> imported models among its ancestors.
        settings: `params.leakage`.
        near: `params.ingest.near_duplicates`, whose signatures in the corpora are used if they have the same form.
        output: directory to write.
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


class _Rows:
    """The texts of the rows of dev and test, numbered over both splits."""

    def __init__(self, job: LeakageJob) -> None:
        words = read_facts(job.examples).kind == "tagging"
        splits = {split: read_split(job.examples, split) for split in SEARCHED}
        self.counts = {split: len(found) for split, found in splits.items()}
        self.ids = [row_id or "" for found in splits.values() for row_id in found.ids]
        fields = [parts for found in splits.values() for parts in found.fields]
        shingles = _shingles(job)
        rows = _signature(job).rows
        #: Each row as one text, to compare with rows of train.
        self.wholes = [clean(_joined(parts, words)) for parts in fields]
        #: Texts that can be documents by themselves, to compare with corpora, and their rows.
        texts: dict[str, list[int]] = {}
        for row, parts in enumerate(fields):
            for text in [self.wholes[row]] if words else _own_texts(parts):
                texts.setdefault(clean(text), []).append(row)
        self.owners = list(texts.values())
        threshold = job.settings.threshold
        self.of_corpora = Wanted(list(texts), shingles=shingles, rows=rows, threshold=threshold)
        self.of_rows = Wanted(self.wholes, shingles=shingles, rows=rows, threshold=threshold)

    def split_of(self, row: int) -> str:
        """The split of a row."""
        return "dev" if row < self.counts["dev"] else "test"


def _signature(job: LeakageJob) -> NearDuplicates:
    """Form of the signatures: that of the corpora if it suits the threshold, because they are stored there."""
    near = job.near
    if near is not None and near.threshold <= job.settings.threshold:
        return near.model_copy(update={"threshold": job.settings.threshold})
    return NearDuplicates(threshold=job.settings.threshold, permutations=128)


def _shingles(job: LeakageJob) -> Shingles:
    form = _signature(job)
    return Shingles(ngram=form.ngram, permutations=form.permutations)


def _joined(fields: Fields, words: bool) -> str:
    return (" " if words else "\n").join(fields)


def _own_texts(fields: Fields) -> list[str]:
    """The texts of a row that can be documents: its only one; of several those that are long enough not to occur by
    chance."""
    if len(fields) == 1:
        return list(fields)
    return [text for text in dict.fromkeys(fields) if len(hashed_words([clean(text)])[0]) >= LEAST_WORDS]


class _Found:
    """What was found in one source."""

    def __init__(self, rows: _Rows) -> None:
        self.rows = rows
        self.documents = 0
        self.exact, self.near = (np.zeros(len(rows.ids), dtype=bool) for _ in range(2))
        self.examples: dict[str, list[dict[str, Any]]] = {split: [] for split in SEARCHED}

    def add(self, row: int, document: str, similarity: float, *, exact: bool) -> None:
        """Record that a row occurs in a document; a near copy that is exact too is listed once."""
        if not exact and self.exact[row]:
            return
        (self.exact if exact else self.near)[row] = True
        listed = self.examples[self.rows.split_of(row)]
        if len(listed) < _LISTED:
            listed.append({"row": self.rows.ids[row], "document": document, "similarity": round(similarity, 3)})

    def as_json(self) -> dict[str, Any]:
        """For leakage.json; a row that is both is exact."""
        found: dict[str, Any] = {"documents": self.documents}
        bounds = {"dev": slice(0, self.rows.counts["dev"]), "test": slice(self.rows.counts["dev"], None)}
        for split, part in bounds.items():
            exact, near = self.exact[part], self.near[part]
            listed = sorted(self.examples[split], key=lambda one: (-one["similarity"], one["row"], one["document"]))
            found[split] = {"exact": int(exact.sum()), "near": int((near & ~exact).sum()), "examples": listed}
        return found


def leakage(job: LeakageJob) -> Path:
    """Search the texts of dev and test in everything that the systems have seen; returns the directory.

    Raises:
        ArtifactError: a corpus or the labelled data are incomplete or damaged.
    """
    rows = _Rows(job)
    sources = list(dict.fromkeys(source for seen in job.systems.values() for source in seen))
    found = {
        source: _in_corpus(job, source, rows) if source.startswith(CORPUS) else _in_train(job, source, rows)
        for source in sources
    }
    systems = {system: _system(job, system, seen, found, rows) for system, seen in job.systems.items()}
    content = {
        "schema": SCHEMA,
        "task": job.task,
        "settings": job.settings.model_dump(),
        "rows": rows.counts,
        "sources": {source: one.as_json() for source, one in found.items()},
        "unknown": sorted({name for names in job.unknown.values() for name in names}),
        "systems": systems,
    }
    with writing(job.output, kind=KIND) as draft:
        (draft.path / "leakage.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
        write_json(draft.path / "metrics.json", _metrics(content))
    for line in in_words(content):
        print(f"{job.task}: {line}", flush=True)
    return job.output


def _in_corpus(job: LeakageJob, source: str, rows: _Rows) -> _Found:
    """Search a corpus: texts word by word, and signatures, which its key shards have in document order."""
    assert job.corpus is not None  # a system that has seen a corpus
    directory = job.corpus / source.removeprefix(CORPUS)
    manifest = read_manifest(directory, kind=corpora.KIND)
    found = _Found(rows)
    stored = manifest.facts["recipe"]["settings"].get("near_duplicates") or {}
    form = _signature(job)
    has_sketches = (stored.get("ngram"), stored.get("permutations")) == (form.ngram, form.permutations)
    shingles = _shingles(job)
    shards = corpora.shards(directory, "train")
    with Progress(f"leakage {source}", total=len(shards), unit="shard") as bar:
        for shard in shards:
            columns = ["id", "text", *(["target"] if corpora.holds_pairs(shard) else [])]
            for batch in read_batches(shard, columns):
                ids = batch.column(0)
                for column in batch.columns[1:]:
                    texts = column.to_pylist()
                    for document, text in rows.of_corpora.exact(texts):
                        for row in rows.owners[text]:
                            found.add(row, ids[document].as_py(), 1.0, exact=True)
                    if not has_sketches:
                        _record_near(found, rows, ids, shingles.sketches(texts))
                found.documents += batch.num_rows
            bar.advance(1)
    if has_sketches:
        for name in manifest.facts["keys"]:
            for batch in read_batches(directory / name, ["id", "sketch", "heldout"]):
                kept = ~np.asarray(batch.column(2).to_numpy(zero_copy_only=False), dtype=bool)
                column = batch.column(1)
                width = column.type.byte_width
                raw = np.frombuffer(column.buffers()[1], np.uint8, width * len(column), width * column.offset)
                sketches = raw.view(np.uint16).reshape(len(column), -1)[kept]
                _record_near(found, rows, batch.column(0).filter(pa.array(kept)), sketches)
    return found


def _in_train(job: LeakageJob, source: str, rows: _Rows) -> _Found:
    """Search the train rows of a task."""
    directory = {**job.others, job.task: job.examples}[source.partition("/")[2]]
    words = read_facts(directory).kind == "tagging"
    train = read_split(directory, "train")
    found, shingles = _Found(rows), _shingles(job)
    for start in range(0, len(train), _ROWS):
        part = slice(start, start + _ROWS)
        texts = [clean(_joined(fields, words)) for fields in train.fields[part]]
        ids = [row_id or "" for row_id in train.ids[part]]
        for document, row in rows.of_rows.exact(texts):
            found.add(row, ids[document], 1.0, exact=True)
        for document, row, similarity in rows.of_rows.near(shingles.sketches(texts)):
            found.add(row, ids[document], similarity, exact=False)
        found.documents += len(texts)
    return found


def _record_near(found: _Found, rows: _Rows, ids: pa.Array, sketches: Sketches) -> None:
    for document, text, similarity in rows.of_corpora.near(sketches):
        for row in rows.owners[text]:
            found.add(row, ids[document].as_py(), similarity, exact=False)


def _system(
    job: LeakageJob, system: str, sources: Sequence[str], found: Mapping[str, _Found], rows: _Rows
) -> dict[str, Any]:
    """Test rows that a system or its ancestors have seen, over all of its sources, and the verdict of the rule.

    Exact copies of test rows in the task's own train rows are governed by `overlap`.
    """
    test = slice(rows.counts["dev"], None)
    own = f"train/{job.task}"
    exact, near, ruled = (np.zeros(rows.counts["test"], dtype=bool) for _ in range(3))
    for source in sources:
        exact |= found[source].exact[test]
        near |= found[source].near[test]
        if source != own:
            ruled |= found[source].exact[test]
    near &= ~exact
    allowed = job.settings.allowed
    reasons = []
    if job.settings.exact == "refuse" and ruled.sum() > allowed:
        reasons.append(f"{int(ruled.sum())} test rows occur in what it was trained on (leakage.exact: refuse)")
    if job.settings.near == "refuse" and near.sum() > allowed:
        reasons.append(f"{int(near.sum())} test rows have near copies in what it was trained on (leakage.near: refuse)")
    return {
        "sources": list(sources),
        "unknown": job.unknown.get(system, []),
        "exact": int(exact.sum()),
        "near": int(near.sum()),
        "refused": "; ".join(reasons),
    }


def _metrics(content: Mapping[str, Any]) -> dict[str, int]:
    """Flat counts for DVC."""
    return {
        f"{source.replace('/', '.')}.{split}.{kind}": found[split][kind]
        for source, found in content["sources"].items()
        for split in SEARCHED
        for kind in ("exact", "near")
    }


def in_words(content: Mapping[str, Any]) -> Iterator[str]:
    """One line per source in which rows of dev or test occur, and one per system that is refused."""
    rows = content["rows"]
    for source, found in content["sources"].items():
        parts = [
            f"{found[split]['exact']} exact and {found[split]['near']} near of {rows[split]:,} {split} rows"
            for split in SEARCHED
            if found[split]["exact"] or found[split]["near"]
        ]
        if parts:
            yield f"{source} has copies of {', '.join(parts)}"
    for name in content["unknown"]:
        yield f"{name} was imported: whether its training text has the test rows is unknown"
    for system, found in content["systems"].items():
        if found["refused"]:
            yield f"{system} is not promoted: {found['refused']}"
