"""General text that is repeated during adaptation, against forgetting (Ibrahim et al. 2024).

The tokens of both texts are one directory: links to the domain's shards, and one more shard of general documents in the
domain's vocabulary. Samplers shuffle documents, so every part of an epoch has about the same share of both.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from components.artifacts import read_manifest, writing
from components.errors import DataError
from components.formats import corpus
from components.tokenization import load_tokenizer
from components.tokenization.store import KIND, LAYOUT, TokenStore, write_shard
from components.tokenization.tokenize import encode_corpus
from components.training.rng import counter_rng

#: Name of the shard of general documents.
GENERAL: Final = "general.arrow"


def write_mixture(
    tokens: Path, *, general: Path, general_tokens: Path, tokenizer: Path, replay: float, seed: int, into: Path
) -> Path:
    """Write the directory of the domain's tokens with general documents among them; returns it.

    Equal arguments give an equal digest, so that training resumes from its checkpoints.

    Args:
        tokens: token shards of the domain.
        general: the general corpus.
        general_tokens: its token shards in any vocabulary; its counts of words determine the sample.
        tokenizer: directory of the tokenizer of `tokens`.
        replay: words of general text per word of the domain's. Text that does not suffice is repeated.
        seed: of the sample of documents.
        into: the directory to write.

    Raises:
        ArtifactError: an input is incomplete.
        DataError: the general corpus has no words.
    """
    times = sample(TokenStore(general_tokens), words=round(replay * TokenStore(tokens).words), seed=seed)
    loaded = load_tokenizer(tokenizer)
    facts = read_manifest(tokens, kind=KIND).facts
    shards = corpus.shards(general)

    def rows() -> Iterator[tuple[str, ...]]:
        for repetition in range(max(times.values(), default=0)):
            documents = enumerate(itertools.chain.from_iterable(map(corpus.read_rows, shards)))
            yield from (row for number, row in documents if times[number] > repetition)

    with writing(into, kind=KIND) as draft:
        for name in itertools.chain.from_iterable(facts["shards"].values()):
            os.link(tokens / name, draft.path / name)
        write_shard(
            draft.path / GENERAL,
            encode_corpus(rows(), tokenizer=loaded),
            vocab_size=loaded.vocab_size,
            pairs=any(map(corpus.holds_pairs, shards)),
        )
        draft.facts |= {
            "tokenizer": facts["tokenizer"],
            "vocabulary": facts["vocabulary"],
            "layout": LAYOUT,
            "shards": {**facts["shards"], "train": [*facts["shards"]["train"], GENERAL]},
        }
    return into


def sample(store: TokenStore, *, words: int, seed: int) -> Counter[int]:
    """Number of a document -> how often it is read. Every pass is in a new random order; the last document is not cut.

    Raises:
        DataError: the documents have no words.
    """
    if not store.words:
        raise DataError(f"{store.directory}: has no words that could be repeated; set adapt.<name>.replay to 0")
    times: Counter[int] = Counter()
    number = 0
    while words > 0:
        order = counter_rng(seed, "general replay", number).permutation(store.documents)
        read = np.cumsum(store.words_per_document[order], dtype=np.int64)
        times.update(order[: int(np.searchsorted(read, words)) + 1].tolist())
        words -= int(read[-1])
        number += 1
    return times
