"""The stage `leakage`: texts of dev and test in the corpora and labelled rows that the models of a task have seen.

leakage.json holds {schema, task, settings, rows: {dev, test}, sources: name -> {documents, dev, test: {exact, near,
examples: [{row, document, similarity}]}}, unknown: encoders whose training text is not known, systems: name ->
{sources, unknown, exact, near, refused}}, where `exact` and `near` are numbers of test rows (near: those that are not
exact), and `refused` is the reason for which the rule excludes a system from promotion, or empty.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from components.cluster.shards import Facts, Steps, Work, digest_of, sharded
from components.core.artifacts import read_manifest, write_json, writing
from components.core.progress import Progress
from components.data.formats import corpus as corpora
from components.data.formats.corpus import read_batches
from components.data.ingestion.cleaning import clean
from components.data.ingestion.dedup import Shingles, hashed_words
from components.data.ingestion.matching import BATCH, LEAST_WORDS, SEARCH_PERMUTATIONS, TextSearch
from components.data.tasks.data import Fields, row_texts
from components.data.tasks.examples import read_facts, read_split
from components.data.tasks.judged import HELD_OUT
from components.settings.cluster import ClusterSettings
from components.settings.evaluate import LeakageSettings
from components.settings.section import Section

KIND: Final = "leakage"
SCHEMA: Final = 1
#: Sources that hold raw documents; all others are train splits of tasks.
CORPUS: Final = "corpus/"
#: Examples that are listed per source and split.
_LISTED = 20


class LeakageJob(Section):
    """Inputs of the stage.

    Attributes:
        others: tasks that are learned together with it -> directories with their labelled data.
        systems: `<family>-<start>`, or `baselines` -> what it or its ancestors were trained on: `corpus/<name>`, and
            `train/<task>` for the train rows of a task.
        unknown: `<family>-<start>` -> imported models among its ancestors.
    """

    task: str
    examples: Path
    others: dict[str, Path] = Field(default_factory=dict)
    corpus: Path | None
    systems: dict[str, list[str]]
    unknown: dict[str, list[str]] = Field(default_factory=dict)
    settings: LeakageSettings
    output: Path
    cluster: ClusterSettings = ClusterSettings()
    code: str = ""


#: Number of a row of dev or test, id of the document, similarity, and whether it is an exact copy.
Hit = tuple[int, str, float, bool]


class _Rows:
    """The texts of dev and test, numbered over both."""

    def __init__(self, examples: Path) -> None:
        splits = {split: read_split(examples, split) for split in HELD_OUT}
        self.counts = {split: len(rows) for split, rows in splits.items()}
        self.ids = [row_id or "" for rows in splits.values() for row_id in rows.ids]
        fields = [parts for rows in splits.values() for parts in rows.fields]
        kind = read_facts(examples).kind
        self.shingles = Shingles(permutations=SEARCH_PERMUTATIONS)
        #: Each row as one text, to compare with rows of train; texts that can be documents by themselves, to compare
        #: with corpora. Each text -> its rows.
        wholes, alone = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
        for row, parts in enumerate(fields):
            wholes[_joined(kind, parts)].append(row)
            for text in _documents_of(row_texts(kind, parts)):
                alone[clean(text)].append(row)
        self.of_rows, self.of_corpora = (
            (TextSearch(list(texts), shingles=self.shingles), list(texts.values())) for texts in (wholes, alone)
        )

    def split_of(self, row: int) -> str:
        return "dev" if row < self.counts["dev"] else "test"


@lru_cache(maxsize=1)
def _rows_of(examples: Path, digest: str) -> _Rows:
    # `digest` is of the manifest, because other rows may be in the same directory.
    return _Rows(examples)


def _joined(kind: str, fields: Fields) -> str:
    return clean("\n".join(row_texts(kind, fields)))


def _documents_of(texts: list[str]) -> list[str]:
    """The only text of a row, or those of several that are long enough not to occur by chance."""
    if len(texts) == 1:
        return texts
    return [text for text in dict.fromkeys(texts) if len(hashed_words([clean(text)])[0]) >= LEAST_WORDS]


def _copies(
    rows: _Rows, searched: tuple[TextSearch, list[list[int]]], ids: Sequence[str | None], texts: Sequence[str]
) -> Iterator[Hit]:
    """The copies of rows in documents."""
    search, numbers = searched
    exact = ((document, text, 1.0, True) for document, text in search.exact(texts))
    near = ((*hit, False) for hit in search.near(rows.shingles.sketches(texts)))
    for document, text, similarity, same in chain(exact, near):
        yield from ((row, ids[document] or "", similarity, same) for row in numbers[text])


def _first_of_rows(hits: Iterable[Hit]) -> list[Hit]:
    """As many copies of each row as are listed of a split."""
    counts = Counter[tuple[int, bool]]()
    kept = []
    for hit in hits:
        counts[hit[0], hit[3]] += 1
        if counts[hit[0], hit[3]] <= _LISTED:
            kept.append(hit)
    return kept


class _Copies:
    """The copies of rows in one source: numbers of the rows with exact ones, and with near ones only."""

    def __init__(self, documents: int, hits: Iterable[Hit]) -> None:
        self.documents, self._hits = documents, sorted(hits, key=lambda hit: not hit[3])
        self.exact = {row for row, *_, exact in self._hits if exact}
        self.near = {row for row, *_ in self._hits} - self.exact

    def as_json(self, rows: _Rows) -> dict[str, Any]:
        """The content of leakage.json; near copies are listed of rows without an exact one."""
        result: dict[str, Any] = {"documents": self.documents}
        for split in HELD_OUT:
            listed: list[dict[str, Any]] = [
                {"row": rows.ids[row], "document": document, "similarity": round(similarity, 3)}
                for row, document, similarity, exact in self._hits
                if rows.split_of(row) == split and (exact or row in self.near)
            ][:_LISTED]
            listed.sort(key=lambda copy: (-copy["similarity"], copy["row"], copy["document"]))
            of_split = {
                name: sum(rows.split_of(row) == split for row in numbers)
                for name, numbers in (("exact", self.exact), ("near", self.near))
            }
            result[split] = of_split | {"examples": listed}
        return result


def leakage(job: LeakageJob) -> Path:
    """Search the texts of dev and test in everything that the systems have seen; returns the directory.

    Raises:
        ArtifactError: a corpus or the labelled data are incomplete or damaged.
    """
    rows = _rows_of(job.examples.absolute(), read_manifest(job.examples).digest)
    sources = list(dict.fromkeys(source for seen in job.systems.values() for source in seen))
    searched = [shard for source in sources if source.startswith(CORPUS) for shard in _shards(job, source)]
    size = sum(path.stat().st_size for path in searched)
    with sharded(job.output, settings=job.cluster, size=size) as steps:
        copies = {
            source: _in_corpus(job, source, steps) if source.startswith(CORPUS) else _in_train(job, source, rows)
            for source in sources
        }
    content = {
        "schema": SCHEMA,
        "task": job.task,
        "settings": job.settings.model_dump(),
        "rows": rows.counts,
        "sources": {source: each.as_json(rows) for source, each in copies.items()},
        "unknown": sorted({name for names in job.unknown.values() for name in names}),
        "systems": {system: _system(job, system, copies, rows) for system in job.systems},
    }
    with writing(job.output, kind=KIND) as draft:
        (draft.path / "leakage.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
        write_json(draft.path / "metrics.json", _metrics(content))
    for line in in_words(content):
        print(f"{job.task}: {line}", flush=True)
    return job.output


def _shards(job: LeakageJob, source: str) -> list[Path]:
    assert job.corpus is not None  # a system that has seen a corpus
    return corpora.shards(job.corpus / source.removeprefix(CORPUS))


def search_shard(item: tuple[str, Path, str], key: str, work: Work) -> Facts:
    """The copies of rows in a shard of a corpus; of pairs, on either side.

    Args:
        item: name of the shard in the work folder, labelled data, and the digest of their manifest.
    """
    name, examples, digest = item
    rows, path, documents = _rows_of(examples, digest), work.read(name), 0

    def hits() -> Iterator[Hit]:
        nonlocal documents
        for batch in read_batches(path, ["id", "text", *["target"] * corpora.holds_pairs(path)]):
            ids, *sides = (column.to_pylist() for column in batch.columns)
            documents += len(ids)
            for texts in sides:
                yield from _copies(rows, rows.of_corpora, ids, texts)

    return {"copies": _first_of_rows(hits()), "documents": documents}


def _in_corpus(job: LeakageJob, source: str, steps: Steps) -> _Copies:
    digest, items = read_manifest(job.examples).digest, {}
    for shard in _shards(job, source):
        place = steps.work.publish(shard, shard.name)
        key = digest_of("leakage", job.code, digest, shard.name)
        items[key] = (place, job.examples.absolute(), digest)
    with Progress(f"leakage {source}", total=len(items), unit="shard") as bar:
        shards = steps.map(search_shard, items, advance=lambda item: bar.advance(1))
    hits = (tuple(hit) for shard in shards for hit in shard["copies"])
    return _Copies(sum(shard["documents"] for shard in shards), hits)


def _in_train(job: LeakageJob, source: str, rows: _Rows) -> _Copies:
    """Search the train rows of a task."""
    directory = {**job.others, job.task: job.examples}[source.partition("/")[2]]
    kind = read_facts(directory).kind
    train = read_split(directory, "train")

    def hits() -> Iterator[Hit]:
        for start in range(0, len(train), BATCH):
            texts = [_joined(kind, fields) for fields in train.fields[start : start + BATCH]]
            yield from _copies(rows, rows.of_rows, train.ids[start : start + BATCH], texts)

    return _Copies(len(train), _first_of_rows(hits()))


def _system(job: LeakageJob, system: str, copies: Mapping[str, _Copies], rows: _Rows) -> dict[str, Any]:
    """Test rows that a system or its ancestors have seen; `overlap` governs those of its own train rows."""
    sources = job.systems[system]
    others = [source for source in sources if source != f"train/{job.task}"]
    exact, near, ruled = (
        {row for source in among for row in getattr(copies[source], name) if rows.split_of(row) == "test"}
        for name, among in (("exact", sources), ("near", sources), ("exact", others))
    )
    near -= exact
    reasons = [
        f"{len(seen)} test rows {what} in what it was trained on (leakage.{rule}: refuse)"
        for rule, seen, what in (("exact", ruled, "occur"), ("near", near, "have near copies"))
        if getattr(job.settings, rule) == "refuse" and seen
    ]
    return {
        "sources": list(sources),
        "unknown": job.unknown.get(system, []),
        "exact": len(exact),
        "near": len(near),
        "refused": "; ".join(reasons),
    }


def _metrics(content: Mapping[str, Any]) -> dict[str, int]:
    return {
        f"{source.replace('/', '.')}.{split}.{kind}": copies[split][kind]
        for source, copies in content["sources"].items()
        for split in HELD_OUT
        for kind in ("exact", "near")
    }


def in_words(content: Mapping[str, Any]) -> Iterator[str]:
    """One line per source in which rows of dev or test occur, and one per system that is refused."""
    rows = content["rows"]
    for source, copies in content["sources"].items():
        parts = [
            f"{copies[split]['exact']} exact and {copies[split]['near']} near of {rows[split]:,} {split} rows"
            for split in HELD_OUT
            if copies[split]["exact"] or copies[split]["near"]
        ]
        if parts:
            yield f"{source} has copies of {', '.join(parts)}"
    for name in content["unknown"]:
        yield f"{name} was imported: whether its training text has the test rows is unknown"
    for system, seen in content["systems"].items():
        if seen["refused"]:
            yield f"{system} is not promoted: {seen['refused']}"
