"""A tiny corpus directory and tokenizers with known vocabularies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from components.core.artifacts import writing
from components.data.formats import corpus
from components.data.segmenters import Segmentation
from components.tokenization import Tokenizer
from components.tokenization.char import CharTokenizer
from components.tokenization.special import SPECIAL_PIECES
from components.tokenization.word import OpenWordTokenizer, WordTokenizer
from components.tokenization.wordpiece import WordPieceTokenizer

WriteCorpus = Callable[..., Path]
MakeTokenizer = Callable[..., Tokenizer]


@pytest.fixture
def write_corpus() -> WriteCorpus:
    """`write_corpus(directory, train=[[texts of a shard], ...], heldout=[...])` writes what the ingest stage writes.

    A shard of (text, target) tuples is one of pairs.
    """

    def write(
        directory: Path,
        *,
        train: Sequence[Sequence[str | tuple[str, str]]] = (),
        heldout: Sequence[Sequence[str | tuple[str, str]]] = (),
    ) -> Path:
        with writing(directory, kind=corpus.KIND) as draft:
            names = {}
            for split, shards in (("train", train), ("heldout", heldout)):
                pairs = any(isinstance(row, tuple) for texts in shards for row in texts)
                schema = corpus.PAIR_SCHEMA if pairs else corpus.SCHEMA
                writer = corpus.ShardWriter(draft.path, split, schema=schema, limit=1 << 30)
                for rows in shards:
                    texts, *targets = zip(*rows, strict=True) if pairs else (rows,)
                    columns = [[str(row) for row in range(len(rows))], list(texts), ["a.txt"] * len(rows), *targets]
                    writer.write(pa.record_batch(columns, schema=schema))
                    writer.close()
                names[split] = writer.names
            draft.facts["shards"] = names
        return directory

    return write


@pytest.fixture
def make() -> MakeTokenizer:
    """`make("wordpiece", ["a", "##b"], lowercase=False)`: a tokenizer with these pieces after the special ones."""

    def build(
        kind: str, pieces: Sequence[str], *, segmenter: str = "none", lowercase: bool = True, strip: bool | None = None
    ) -> Tokenizer:
        vocabulary = [*SPECIAL_PIECES, *pieces]
        segmentation = Segmentation(segmenter)
        if kind == "char":
            return CharTokenizer(vocabulary, segmentation=segmentation)
        cls = {"wordpiece": WordPieceTokenizer, "word": WordTokenizer, "open_word": OpenWordTokenizer}[kind]
        return cls(
            vocabulary,
            segmentation=segmentation,
            lowercase=lowercase,
            strip_accents=lowercase if strip is None else strip,
        )

    return build
