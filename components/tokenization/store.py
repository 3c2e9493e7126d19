"""Token ids on disk: Arrow IPC files that are memory-mapped, so a corpus larger than memory costs none of it.

A record batch holds whole documents in the order of the corpus. Columns: `tokens` large_list<uint16 or uint32> (the
document's ids, ending with END), `sentences` large_list<uint32> (the position in the document at which each of its
sentences starts), `words` and `chars` uint32 (of the raw text, for perplexity per word and bits per character).

Shards of pairs have a fifth column, `targets` large_list (the ids of the translation, ending with END); `words` and
`chars` are then the translation's, for that is what is predicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from components.artifacts import read_manifest
from components.errors import ArtifactError, DataError
from components.tokenization.special import END, UNK

KIND: Final = "tokens"
#: Version of what a shard holds; raised when sentences, counts or columns change their meaning.
LAYOUT: Final = 1
SPLITS: Final = ("train", "heldout")

Stored = NDArray[np.uint16] | NDArray[np.uint32]


@dataclass(frozen=True)
class Counts:
    """What one shard holds; `unknown` counts the UNK among the tokens and targets, END belongs to both."""

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
    """Some documents, encoded: the columns of one record batch in ragged form.

    Attributes:
        ids: (N,) flat ids, each document ending with END.
        offsets: (documents + 1,) int64, where each document starts in `ids`.
        sentences: (S,) start of each sentence within its document.
        sentence_offsets: (documents + 1,) int64, where each document's sentences start in `sentences`.
        words, chars: (documents,) counts of the raw text, of the targets' where there are some.
        targets, target_offsets: the other half of each pair, as `ids` and `offsets`; None where documents stand alone.
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
    """The smallest Arrow type that holds the ids 0 .. vocab_size - 1."""
    return pa.uint16() if vocab_size <= 1 << 16 else pa.uint32()


def write_shard(path: Path, batches: Iterable[EncodedDocuments], *, vocab_size: int, pairs: bool = False) -> Counts:
    """Write one Arrow IPC file, a record batch for each of `batches`; returns what it holds.

    Args:
        pairs: whether the batches have targets.
    """
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
    """One split of a directory of token shards, read through memory maps.

    Documents are numbered over all shards in the order of the corpus; their tokens, laid end to end, are the flat
    stream of the split.

    Attributes:
        documents, tokens, words, chars: totals of the split.
        predicted: tokens that a model of this text predicts: all, or those of the targets where it holds pairs.
        dtype: of the stored ids, uint16 or uint32.
        offsets: (documents + 1,) int64, where each document starts in the flat stream.
        words_per_document, chars_per_document: (documents,) uint32.
        vocab_size: pieces of the vocabulary that the ids belong to.
        tokenizer_fingerprint: of the tokenizer that made the ids.

    Raises:
        ArtifactError: the directory is incomplete or holds something else, or a shard cannot be read.
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
        words: list[NDArray[np.uint32]] = [np.empty(0, dtype=np.uint32)]
        chars: list[NDArray[np.uint32]] = [np.empty(0, dtype=np.uint32)]
        total = 0
        for name in manifest.facts["shards"][split]:
            path = directory / name
            for batch in _record_batches(path):
                # Views of the map: a batch is never sliced here.
                begins, values = _views(batch.column("tokens"))
                if values.dtype != self.dtype:
                    raise ArtifactError(f"{path}: holds {values.dtype} ids, its manifest says {self.dtype}")
                self._tokens.append(values)
                self._sentences.append(_views(batch.column("sentences")))
                if "targets" in batch.schema.names:
                    self._targets.append(_views(batch.column("targets")))
                offsets.append(begins[1:] + total)
                words.append(batch.column("words").to_numpy(zero_copy_only=True))
                chars.append(batch.column("chars").to_numpy(zero_copy_only=True))
                total += len(values)
        self.offsets: NDArray[np.int64] = np.concatenate(offsets)
        self.words_per_document: NDArray[np.uint32] = np.concatenate(words)
        self.chars_per_document: NDArray[np.uint32] = np.concatenate(chars)
        self.documents = len(self.words_per_document)
        self.tokens = total
        self.words = int(self.words_per_document.sum(dtype=np.int64))
        self.chars = int(self.chars_per_document.sum(dtype=np.int64))
        self.predicted = sum(len(values) for _, values in self._targets) if self._targets else total
        # Where each record batch begins, in tokens and in documents.
        self._first_token = np.cumsum([0, *map(len, self._tokens)], dtype=np.int64)
        self._first_document = np.cumsum([0, *(len(starts) - 1 for starts, _ in self._sentences)], dtype=np.int64)

    def span(self, start: int, length: int) -> NDArray[np.int64]:
        """`length` tokens of the flat stream from position `start`, across documents, starting over at its end.

        Raises:
            DataError: the split is empty.
        """
        if self.tokens == 0:
            raise DataError(f"{self.directory}: the {self.split} split holds no tokens; give ingest more text")
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
        """The ids of one document, ending with END: a view of the map, in the stored type."""
        part = self._part(index)
        start, end = int(self.offsets[index]), int(self.offsets[index + 1])
        first = int(self._first_token[part])
        return self._tokens[part][start - first : end - first]

    def sentence_starts(self, index: int) -> NDArray[np.uint32]:
        """Positions in `document(index)` at which its sentences start, ascending, the first 0; empty for no tokens."""
        part = self._part(index)
        offsets, starts = self._sentences[part]
        inside = index - int(self._first_document[part])
        return starts[offsets[inside] : offsets[inside + 1]]

    def pair_lengths(self) -> NDArray[np.int64]:
        """(documents, 2) ids of each document and of its target, END included.

        Raises:
            DataError: the documents have no targets.
        """
        if len(self._targets) < len(self._tokens):
            raise DataError(
                f"{self.directory}: holds no pairs; a family that learns to translate needs data.parallel and "
                "tokenizer: parallel"
            )
        targets = [np.diff(begins) for begins, _ in self._targets]
        return np.stack([np.diff(self.offsets), np.concatenate([np.empty(0, dtype=np.int64), *targets])], axis=1)

    def target(self, index: int) -> Stored:
        """The ids of a document's target, ending with END: a view of the map, in the stored type."""
        part = self._part(index)
        begins, values = self._targets[part]
        inside = index - int(self._first_document[part])
        return values[begins[inside] : begins[inside + 1]]

    def _part(self, index: int) -> int:
        if not 0 <= index < self.documents:
            raise IndexError(f"document {index} of {self.documents}")
        return int(np.searchsorted(self._first_document, index, side="right")) - 1


def _views(lists: pa.Array) -> tuple[NDArray[np.int64], Any]:
    """Offsets and values of a column of lists, as views of the map."""
    return lists.offsets.to_numpy(zero_copy_only=True), lists.values.to_numpy(zero_copy_only=True)


def _record_batches(path: Path) -> list[pa.RecordBatch]:
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        return [batch for number in range(reader.num_record_batches) if (batch := reader.get_batch(number)).num_rows]
    except (pa.ArrowInvalid, OSError) as error:
        raise ArtifactError(f"{path}: not a readable Arrow file ({error}); run the tokenize stage again") from error


def join_sentences(
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    *,
    sentences: NDArray[np.int64],
    words: Sequence[int],
    chars: Sequence[int],
) -> EncodedDocuments:
    """Documents from their separately encoded sentences: END is put after each, sentences without a piece vanish.

    Args:
        ids, offsets: the sentences of all documents in order, ragged.
        sentences: (documents,) number of sentences of each document.
        words, chars: (documents,) counts of the raw text.
    """
    last = np.cumsum(sentences)
    document_ends = offsets[last]
    # Before position `document_ends[d]` of the old array comes document d's END.
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
