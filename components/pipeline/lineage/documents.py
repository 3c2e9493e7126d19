"""Look-up of documents: by id, position or text; in the corpora and labelled data of a run."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.core.artifacts import is_complete, read_manifest
from components.core.errors import ConfigError, DataError, HeadstartError, nearest
from components.data.formats import corpus as corpora
from components.data.formats.corpus import read_batches
from components.data.formats.lines import Reading
from components.data.ingestion.cleaning import clean
from components.data.ingestion.dedup import Shingles, stores_signatures, unpacked_rows
from components.data.ingestion.documents import DROPPED, Origin, Outcome, what_became_of
from components.data.ingestion.readers import read_documents
from components.data.matching import Texts, key_of
from components.data.tasks.data import Fields, row_texts
from components.data.tasks.examples import KIND as EXAMPLES
from components.data.tasks.examples import read_split
from components.pipeline.jobs import checked
from components.pipeline.stages import STAGES
from components.settings.params import Params
from components.settings.tasks import SPLITS

#: Maximum number of near copies that are listed per corpus.
_MOST_NEAR = 20


@dataclass(frozen=True)
class Copy:
    """A document of a corpus, or a row of labelled data.

    Attributes:
        where: `corpus/general` or `examples/aws-type`.
        split: of the corpus or the task; `dropped` for a duplicate that ingestion has left out.
        file: shard or table that holds it; the raw file for dropped ones.
        similarity: 1 for a copy; of a near copy the estimated Jaccard similarity.
    """

    where: str
    split: str
    id: str
    file: str
    similarity: float = 1.0


def find_document(params: Params, document: str, *, corpus: str = "") -> list[tuple[str, Outcome]]:
    """(corpus, outcome) of every document that `document` names, an id or a position.

    `corpus` is a name such as general or domain-parallel; empty: all of them.

    Raises:
        ConfigError: there is no such corpus.
        ArtifactError: the corpus, or every corpus, has not been ingested.
        DataError: the document is in none of the ingested corpora.
    """
    directories = {directory.name: directory for directory in _corpora(params)}
    if corpus and corpus not in directories:
        raise ConfigError(f"unknown corpus {corpus!r}{nearest(corpus, directories)}")
    collected: list[tuple[str, Outcome]] = []
    problems: list[HeadstartError] = []
    for name in [corpus] if corpus else directories:
        try:
            collected += [(name, outcome) for outcome in what_became_of(directories[name], document)]
        except HeadstartError as error:
            problems.append(error)
    if not collected:
        if not problems:
            raise DataError(f"{document!r}: this run reads no corpus")
        if len(problems) == 1 or not any(isinstance(error, DataError) for error in problems):
            raise problems[0]
        raise DataError("\n".join(map(str, problems)))
    return collected


def texts_of(params: Params, document: str, *, where: str = "") -> list[str]:
    """The cleaned texts of the documents or labelled rows that an id, FILE:LINE or FILE#ROW names, in a corpus or task
    or in all of them; empty if there is none.

    Raises:
        DataError: the id names different texts in several corpora or tasks.
    """
    matches: dict[str, list[str]] = defaultdict(list)
    with suppress(HeadstartError):
        for name, outcome in find_document(params, document):
            matches[name] += _raw_texts(params, name, outcome.origin)
    for task, _, fields, row_id in _labelled(params):
        source = params.data.tasks[task]
        if f"/{source.path}/{row_id}".endswith(f"/{document.lstrip('/')}"):
            matches[task] += row_texts(source.kind, fields)
    if where:
        matches = {name: texts for name, texts in matches.items() if name == where}
    if len({tuple(sorted(map(key_of, texts))) for texts in matches.values()}) > 1:
        names = ", ".join(matches)
        raise DataError(
            f"{document!r} names different documents in {names}; add the folder to the position, or --in NAME"
        )
    return list(dict.fromkeys(text for texts in matches.values() for text in texts if text.strip()))


def _raw_texts(params: Params, name: str, origin: Origin) -> list[str]:
    """The texts of a document as its raw file has them, cleaned."""
    source = (params.corpora | checked(params, {}))[name]
    root = Path(source.path)
    path = root / origin.source if root.is_dir() else root
    if not path.is_file():
        return []
    for number, texts, _ in read_documents(path, source, Reading()):
        if number == origin.line:
            return [clean(text, strip_markup=params.ingest.strip_markup) for text in texts]
    return []


def holders(params: Params, texts: Texts) -> list[Copy]:
    """Copies of the texts in the corpora and labelled data that the run's folder holds, and the duplicates of them that
    ingestion has dropped."""
    matches: list[Copy] = []
    for directory in _complete(params):
        name = directory.name
        kept = [document for split in corpora.SPLITS for document in _in_split(directory, name, split, texts)]
        ids = {document.id for document in kept}
        matches += kept
        for batch in read_batches(directory / DROPPED, ["id", "source", "line", "twin"]):
            for row in batch.to_pylist():
                if row["twin"] in ids:
                    position = f"{row['source']}:{row['line']}"
                    matches.append(Copy(f"corpus/{name}", "dropped", row["id"], position))
    for task, split, fields, row_id in _labelled(params):
        if texts.in_values(list(fields)):
            matches.append(Copy(f"examples/{task}", split, row_id, f"{split}.parquet"))
    return matches


def _in_split(directory: Path, name: str, split: corpora.Split, texts: Texts) -> Iterator[Copy]:
    for shard in corpora.shards(directory, split):
        columns = ["id", "text", *(["target"] if corpora.holds_pairs(shard) else [])]
        for batch in read_batches(shard, columns):
            values = [column.to_pylist() for column in batch.columns[1:]]
            for row_id, *parts in zip(batch.column(0).to_pylist(), *values, strict=True):
                if any(map(texts.held_by, parts)):
                    yield Copy(f"corpus/{name}", split, row_id, shard.name)


def near_copies(params: Params, wanted: Sequence[str], *, without: Sequence[Copy]) -> list[Copy]:
    """Near copies of texts in the corpora of the run's folder but `without`, most similar first, at most 20 per corpus:
    by the signatures in the key shards; corpora with signatures of another form are left out."""
    if (near := params.ingest.near_duplicates) is None:
        return []
    listed = {(match.where, match.id) for match in without}
    signatures = Shingles().sketches([clean(text) for text in wanted])
    matches: list[Copy] = []
    for directory in _complete(params):
        facts, here = read_manifest(directory, kind=corpora.KIND).facts, list[Copy]()
        for shard in facts["keys"] if stores_signatures(facts["recipe"]["settings"]) else ():
            for batch in read_batches(directory / shard, ["sketch", "id", "heldout"]):
                sketches = unpacked_rows(batch.column(0), np.uint16)
                similarities = np.max([(sketches == signature).mean(axis=1) for signature in signatures], axis=0)
                for row in np.flatnonzero(similarities >= near.threshold).tolist():
                    name, heldout = (batch.column(number)[row].as_py() for number in (1, 2))
                    split = "heldout" if heldout else "train"
                    here.append(Copy(f"corpus/{directory.name}", split, name, shard, float(similarities[row])))
        here = [match for match in here if (match.where, match.id) not in listed]
        matches += sorted(here, key=lambda match: -match.similarity)[:_MOST_NEAR]
    return matches


def _complete(params: Params) -> list[Path]:
    return [directory for directory in _corpora(params) if is_complete(directory, kind=corpora.KIND)]


def _corpora(params: Params) -> list[Path]:
    return [job["output"] for job in STAGES["ingest"].items(params).values()]


def _labelled(params: Params) -> Iterator[tuple[str, str, Fields, str]]:
    """(task, split, texts, id) of the labelled rows that the run's folder holds."""
    for task, job in STAGES["examples"].items(params).items():
        for split in SPLITS if is_complete(job["output"], kind=EXAMPLES) else ():
            rows = read_split(job["output"], split)
            yield from ((task, split, *row) for row in zip(rows.fields, rows.ids, strict=True))
