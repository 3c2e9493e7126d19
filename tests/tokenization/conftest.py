"""A tiny corpus directory and tokenizers with known vocabularies."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from components.core.artifacts import writing
from components.data.formats import corpus
from tests.tokenizers import make_tokenizer

WriteCorpus = Callable[..., Path]


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
def make() -> Callable[..., Any]:
    """`make("wordpiece", ["a", "##b"], lowercase=False)`: a tokenizer with these pieces after the special ones."""
    return make_tokenizer
