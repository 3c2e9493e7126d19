"""Token ids on disk: memory-mapped Arrow IPC files, so a corpus may be larger than memory.

A record batch has whole documents in corpus order. Columns: `tokens` large_list<uint16 or uint32>, the ids of a
document, ending with END; `sentences` large_list<uint32>, the start positions of its sentences; `words` and `chars`
uint32, counts of the raw text, for perplexity per word and bits per character.

Shards of pairs have a fifth column, `targets` large_list, the ids of the translation, ending with END; `words` and
`chars` then count the translation, which is the predicted side.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from components.core.artifacts import read_manifest
from components.core.errors import ArtifactError, DataError
from components.tokenization.special import END, UNK

KIND: Final = "tokens"
#: Version of the shard format; incremented when sentences, counts or columns change their meaning.
LAYOUT: Final = 1
SPLITS: Final = ("train", "heldout")

Stored = NDArray[np.uint16] | NDArray[np.uint32]


@dataclass(frozen=True)
class Counts:
    """Totals of a shard; `unknown` counts UNK in tokens and targets, both of which include END."""

    documents: int = 0
    tokens: int = 0
    targets: int = 0
    words: int = 0
    chars: int = 0
    unknown: int = 0

    def __add__(self, other: Counts) -> Counts:
        mine, theirs = asdict(self), asdict(other)
        return Counts(**{name: mine[name] + theirs[name] for name in mine})


@dataclass(frozen=True)
class EncodedDocuments:
    """D encoded documents: the columns of one record batch in ragged form.

    Attributes:
        ids: (N,) concatenated ids; each document ends with END.
        offsets: (D + 1,) int64 start of each document in `ids`.
        sentences: (S,) start of each sentence within its document.
        sentence_offsets: (D + 1,) int64 start of each document in `sentences`.
        words, chars: (D,) counts of the raw text; in a corpus of pairs, of the targets.
        targets, target_offsets: translations, like `ids` and `offsets`; None without pairs.
    """

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    sentences: NDArray[np.int64]
    sentence_offsets: NDArray[np.int64]
    words: Sequence[int]
    chars: Sequence[int]
    targets: NDArray[np.int32] | None = None
    target_offsets: NDArray[np.int64] | None = None


def id_type(vocab_size: int) -> pa.DataType:
    """The smallest unsigned Arrow type for the ids 0 .. vocab_size - 1."""
    return pa.uint16() if vocab_size <= 1 << 16 else pa.uint32()


def write_shard(path: Path, batches: Iterable[EncodedDocuments], *, vocab_size: int, pairs: bool = False) -> Counts:
    """Write an Arrow IPC file with one record batch per element of `batches`; returns its totals."""
    ids_type = id_type(vocab_size)
    schema = pa.schema(
        [
            ("tokens", pa.large_list(ids_type)),
            ("sentences", pa.large_list(pa.uint32())),
            ("words", pa.uint32()),
            ("chars", pa.uint32()),
            *([("targets", pa.large_list(ids_type))] if pairs else []),
        ]
    )
    counts = Counts()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            targets = np.empty(0, dtype=np.int32)
            columns = [
                _lists(batch.ids, batch.offsets, ids_type),
                pa.LargeListArray.from_arrays(batch.sentence_offsets, pa.array(batch.sentences.astype(np.uint32))),
                pa.array(batch.words, type=pa.uint32()),
                pa.array(batch.chars, type=pa.uint32()),
            ]
            if pairs:
                assert batch.targets is not None
                assert batch.target_offsets is not None
                targets = batch.targets
                columns.append(_lists(targets, batch.target_offsets, ids_type))
            writer.write_batch(pa.record_batch(columns, schema=schema))
            counts += Counts(
                documents=len(batch.words),
                tokens=len(batch.ids),
                targets=len(targets),
                words=int(np.sum(batch.words, dtype=np.int64)),
                chars=int(np.sum(batch.chars, dtype=np.int64)),
                unknown=int(np.count_nonzero(batch.ids == UNK) + np.count_nonzero(targets == UNK)),
            )
    return counts


def _lists(ids: NDArray[np.int32], offsets: NDArray[np.int64], ids_type: pa.DataType) -> pa.Array:
    return pa.LargeListArray.from_arrays(offsets, pa.array(ids.astype(ids_type.to_pandas_dtype())))


class TokenStore:
    """One split of a directory of token shards, memory-mapped; the tokens of its documents are the flat stream.

    Attributes:
        predicted: number of tokens that a model predicts: all tokens, or only the targets in a corpus of pairs.
        offsets: (documents + 1,) int64 start of each document in the flat stream.
        words, chars: counts of the raw text; in a corpus of pairs, of the targets.
        shards: name of a shard -> numbers of its documents, in corpus order.

    Raises:
        ArtifactError: the directory is incomplete or of another kind, or a shard cannot be read.
        DataError: there is no such split.
    """

    def __init__(self, directory: Path, split: str = "train") -> None:
        directory = Path(directory)
        if split not in SPLITS:
            raise DataError(f"{directory}: no split {split!r}; known: {', '.join(SPLITS)}")
        self.directory = directory
        self.split = split
        manifest = read_manifest(directory, kind=KIND)
        if manifest.facts["layout"] != LAYOUT:
            raise ArtifactError(f"{directory}: token shards of another version; run the tokenize stage again")
        self.tokenizer_fingerprint: str = manifest.facts["tokenizer"]
        self.vocab_size: int = manifest.facts["vocabulary"]
        self.dtype = np.dtype(id_type(self.vocab_size).to_pandas_dtype())
        self._tokens: list[Stored] = []
        self._sentences: list[tuple[NDArray[np.int64], NDArray[np.uint32]]] = []
        self._targets: list[tuple[NDArray[np.int64], Stored]] = []
        offsets: list[NDArray[np.int64]] = [np.zeros(1, dtype=np.int64)]
        self.documents = self.tokens = self.words = self.chars = 0
        self.shards: dict[str, range] = {}
        for name in manifest.facts["shards"][split]:
            path = directory / name
            first = self.documents
            for batch in _record_batches(path):
                # Zero-copy views; valid because batches are not slices.
                begins, values = _views(batch.column("tokens"))
                if values.dtype != self.dtype:
                    raise ArtifactError(
                        f"{path}: has {values.dtype} ids, expected {self.dtype} according to its manifest"
                    )
                self._tokens.append(values)
                self._sentences.append(_views(batch.column("sentences")))
                if "targets" in batch.schema.names:
                    self._targets.append(_views(batch.column("targets")))
                offsets.append(begins[1:] + self.tokens)
                self.documents += batch.num_rows
                self.tokens += len(values)
                self.words += int(batch.column("words").to_numpy(zero_copy_only=True).sum(dtype=np.int64))
                self.chars += int(batch.column("chars").to_numpy(zero_copy_only=True).sum(dtype=np.int64))
            self.shards[name] = range(first, self.documents)
        self.offsets: NDArray[np.int64] = np.concatenate(offsets)
        self.predicted = sum(len(values) for _, values in self._targets) if self._targets else self.tokens
        # The first token and the first document of each record batch.
        self._first_token = np.cumsum([0, *map(len, self._tokens)], dtype=np.int64)
        self._first_document = np.cumsum([0, *(len(starts) - 1 for starts, _ in self._sentences)], dtype=np.int64)

    def span(self, start: int, length: int) -> NDArray[np.int64]:
        """`length` tokens of the flat stream from `start`, int64, wrapping around. Raises DataError: it is empty."""
        if self.tokens == 0:
            raise DataError(f"{self.directory}: the {self.split} split has no tokens; add text to the corpus")
        out = np.empty(length, dtype=np.int64)
        filled = 0
        position = start % self.tokens
        part = int(np.searchsorted(self._first_token, position, side="right")) - 1
        while filled < length:
            values = self._tokens[part]
            inside = position - int(self._first_token[part])
            piece = values[inside : inside + length - filled]
            out[filled : filled + len(piece)] = piece
            filled += len(piece)
            part = (part + 1) % len(self._tokens)
            position = int(self._first_token[part])
        return out

    def document(self, index: int) -> Stored:
        """The ids of a document, ending with END: a view of the memory map, in the stored type."""
        part = self._part(index)
        start, end = int(self.offsets[index]), int(self.offsets[index + 1])
        first = int(self._first_token[part])
        return self._tokens[part][start - first : end - first]

    def sentence_starts(self, index: int) -> NDArray[np.uint32]:
        """Start positions of the sentences in `document(index)`, ascending from 0; empty without tokens."""
        part = self._part(index)
        offsets, starts = self._sentences[part]
        inside = index - int(self._first_document[part])
        return starts[offsets[inside] : offsets[inside + 1]]

    def pair_lengths(self) -> NDArray[np.int64]:
        """(documents, 2) numbers of ids of documents and targets with END. Raises DataError: no targets."""
        if len(self._targets) < len(self._tokens):
            raise DataError(
                f"{self.directory}: has no pairs; a translation family needs data.parallel and tokenizer: parallel"
            )
        targets = [np.diff(begins) for begins, _ in self._targets]
        return np.stack([np.diff(self.offsets), np.concatenate([np.empty(0, dtype=np.int64), *targets])], axis=1)

    def target(self, index: int) -> Stored:
        """The ids of a document's target, ending with END: a view of the memory map, in the stored type."""
        part = self._part(index)
        begins, values = self._targets[part]
        inside = index - int(self._first_document[part])
        return values[begins[inside] : begins[inside + 1]]

    def _part(self, index: int) -> int:
        if not 0 <= index < self.documents:
            raise IndexError(f"document {index} of {self.documents}")
        return int(np.searchsorted(self._first_document, index, side="right")) - 1


def _views(lists: pa.Array) -> tuple[NDArray[np.int64], Any]:
    return lists.offsets.to_numpy(zero_copy_only=True), lists.values.to_numpy(zero_copy_only=True)


def _record_batches(path: Path) -> list[pa.RecordBatch]:
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        return [batch for number in range(reader.num_record_batches) if (batch := reader.get_batch(number)).num_rows]
    except (pa.ArrowInvalid, OSError) as error:
        raise ArtifactError(f"{path}: not a readable Arrow file ({error}); run the stage tokenize again") from error


def join_sentences(
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    *,
    sentences: NDArray[np.int64],
    words: Sequence[int],
    chars: Sequence[int],
) -> EncodedDocuments:
    """Join ragged sentences to D documents of (D,) `sentences` each: END is appended to each document, sentences
    without pieces are dropped."""
    last = np.cumsum(sentences)
    document_ends = offsets[last]
    # The END of document d is inserted before position `document_ends[d]`.
    joined = np.insert(ids, document_ends, np.int32(END))
    documents = np.arange(len(sentences))
    new_ends = document_ends + documents + 1
    new_offsets = np.concatenate((np.zeros(1, dtype=np.int64), new_ends))
    of_document = np.repeat(documents, sentences)
    begins = offsets[:-1] + of_document - new_offsets[of_document]
    filled = np.diff(offsets) > 0
    per_document = np.bincount(of_document[filled], minlength=len(sentences))
    return EncodedDocuments(
        ids=joined,
        offsets=new_offsets,
        sentences=begins[filled],
        sentence_offsets=np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(per_document))),
        words=words,
        chars=chars,
    )


class Size(NamedTuple):
    """Rows, and uncompressed bytes of UTF-8 text."""

    documents: int
    text_bytes: int


def measure(shard: Path) -> Size:
    try:
        metadata = pq.read_metadata(shard)
        column = next(number for number, name in enumerate(metadata.schema.names) if name == "text")
        groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
        return Size(metadata.num_rows, sum(group.column(column).total_uncompressed_size for group in groups))
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise ArtifactError(f"{shard}: not a readable corpus shard ({error}); run the stage ingest again") from error


class Selection:
    """A view of the documents `chosen` of a store, in this order, with the interface of
    `components.training.windows.Tokens`; nothing is copied. Raises DataError: they have no tokens."""

    def __init__(self, store: TokenStore, chosen: NDArray[np.int64]) -> None:
        self._store, self.chosen = store, chosen
        lengths = store.offsets[chosen + 1] - store.offsets[chosen]
        self.offsets: NDArray[np.int64] = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
        self.documents = len(chosen)
        self.tokens = int(self.offsets[-1])
        if not self.tokens:
            raise DataError(f"{store.directory}: the chosen documents have no tokens")

    def span(self, start: int, length: int) -> NDArray[np.int64]:
        """`length` tokens of the stream from position `start`, int64, wrapping around at its end."""
        out = np.empty(length, dtype=np.int64)
        filled, position = 0, start % self.tokens
        document = int(np.searchsorted(self.offsets, position, side="right")) - 1
        while filled < length:
            skipped = position - int(self.offsets[document])
            taken = min(length - filled, int(self.offsets[document + 1]) - position)
            if taken:
                first = int(self._store.offsets[self.chosen[document]]) + skipped
                out[filled : filled + taken] = self._store.span(first, taken)
            filled += taken
            document = (document + 1) % self.documents
            position = int(self.offsets[document])
        return out

    def sentence_starts(self, document: int) -> NDArray[Any]:
        return self._store.sentence_starts(int(self.chosen[document]))
