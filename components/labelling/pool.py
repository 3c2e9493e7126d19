"""Texts without labels: rows of a task's files, of any file or folder, or documents of the domain.

At most `MOST` are read, those with the smallest digests, so that the choice depends on the texts only. Copies and near
copies of texts that have a label, or that are in dev or test, are left out.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from components.core.artifacts import is_complete
from components.core.errors import ConfigError, DataError
from components.data.formats import corpus
from components.data.formats.lines import Reading
from components.data.formats.rows import read_columns
from components.data.formats.textkey import digest_of
from components.data.ingestion.cleaning import clean
from components.data.ingestion.dedup import Shingles, Sketches
from components.data.ingestion.matching import TextSearch
from components.data.ingestion.readers import TEXT, form_for, raw_files, read_documents, text_documents
from components.data.tasks.data import Fields
from components.labelling.rows import FileRow
from components.settings.params import Params
from components.settings.tasks import TaskSource

#: Maximum number of texts that are compared.
MOST: Final = 10_000
#: Signatures of texts: words of a shingle, permutations, values of a band, and similarity of near copies. The shingles
#: are short, because texts of tasks are.
NGRAM, PERMUTATIONS, BAND, SIMILAR = 2, 128, 4, 0.7


@dataclass(frozen=True)
class Pool:
    """The candidates for labelling. `sketches`: (N, p) their MinHash signatures."""

    fields: list[Fields]
    sketches: Sketches
    source: str
    left_out: int

    def copies(self, index: int) -> NDArray[np.int64]:
        """Indices of the near copies of a text, itself included, ascending."""
        return np.flatnonzero((self.sketches == self.sketches[index]).mean(axis=1) >= SIMILAR)


def read_pool(
    params: Params,
    source: TaskSource,
    rows: Sequence[FileRow],
    *,
    file: Path | None = None,
    without: Collection[bytes] = (),
) -> Pool:
    """The texts that can be suggested.

    Args:
        file: file or folder of texts; None: the rows of train without a label or, if there are none, the domain.
        without: digests of further texts that are left out.
    """
    unlabelled = [row.fields for row in rows if row.split == "train" and row.labels is None]
    texts: Iterable[Fields]
    if file is not None:
        texts, name = _of_path(file, source), str(file)
    elif unlabelled:
        texts, name = unlabelled, "rows of train without a label"
    elif len(source.texts) > 1:
        raise ConfigError(
            "a row of this task is two texts, which documents of the domain do not have; name a file: "
            "headstart suggest FILE"
        )
    else:
        texts, name = _of_domain(params), "the domain"
    excluded = {row.digest for row in rows if row.labels is not None or row.split != "train"} | set(without)
    counts = {"read": 0, "known": 0}
    candidates = [fields for _, fields in heapq.nsmallest(MOST, _distinct(texts, excluded, counts))]
    sketches = search(candidates).sketches
    near = {index for index, *_ in search(row.fields for row in rows if row.digest in excluded).near(sketches)}
    keep = [index for index in range(len(candidates)) if index not in near]
    if not counts["read"]:
        raise DataError(
            f"{name}: there is no text without labels; name a file: headstart suggest FILE, or data.unlabelled: [FILE] "
            "in params.yaml"
        )
    if not keep:
        raise DataError(
            f"{name}: holds no text that could be labelled ({counts['read']} read; the others have labels, are in dev "
            "or test, or are near copies of such texts); name a file of further texts: headstart suggest FILE"
        )
    return Pool([candidates[index] for index in keep], sketches[keep], name, counts["known"] + len(near))


def search(rows: Iterable[Fields]) -> TextSearch:
    """The texts of rows, to find their near copies."""
    shingles = Shingles(ngram=NGRAM, permutations=PERMUTATIONS)
    return TextSearch([clean("\n".join(fields)) for fields in rows], shingles=shingles, rows=BAND, threshold=SIMILAR)


def _distinct(texts: Iterable[Fields], excluded: set[bytes], counts: dict[str, int]) -> Iterator[tuple[bytes, Fields]]:
    seen: set[bytes] = set()
    for fields in texts:
        counts["read"] += 1
        if not all(map(str.strip, fields)):
            continue
        digest = digest_of(fields)
        if digest in excluded:
            counts["known"] += 1
        elif digest not in seen:
            seen.add(digest)
            yield digest, fields


def _of_path(path: Path, source: TaskSource) -> Iterator[Fields]:
    """Rows of tables with the columns of the task; of text files, every line."""
    columns = source.texts
    for file in raw_files(path)[0]:
        form = form_for(file)
        if form == TEXT and len(columns) > 1:
            raise DataError(f"{file}: a text file has no columns {' and '.join(map(repr, columns))}; use csv or jsonl")
        if form == TEXT:
            yield from ((line,) for _, text in text_documents(file, Reading()) for line in text.split("\n"))
        else:
            for _, values in read_columns(file, form, columns):
                yield tuple(value or "" for value in values)


def _of_domain(params: Params) -> Iterator[Fields]:
    directory = Path(params.run.out) / "corpus" / "domain"
    if is_complete(directory, kind=corpus.KIND):
        yield from ((text,) for text in corpus.read_documents(directory))
        return
    for source in filter(None, [params.data.domain, *params.data.unlabelled]):
        for file in raw_files(Path(source.path))[0]:
            for _, texts, _ in read_documents(file, source, Reading()):
                yield (clean(*texts, strip_markup=params.ingest.strip_markup),)
