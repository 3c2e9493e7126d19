"""gensim's word2vec and fastText."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from answering import answer
from gensim.models import FastText, Word2Vec
from gensim.models.fasttext import ft_ngram_hashes


def buckets(words: list[str], shortest: int, longest: int, count: int) -> dict[str, Any]:
    """The buckets of each word's n-grams, in the order of the words."""
    return {str(row): ft_ngram_hashes(word, shortest, longest, count) for row, word in enumerate(words)}


def words_and_grams(sentences: list[list[str]], asked: list[str], settings: dict[str, Any]) -> dict[str, Any]:
    """A fastText model trained for one epoch: its tables, and the vectors of words in and out of its vocabulary."""
    model = FastText(sentences, min_count=1, epochs=1, seed=1, workers=1, **settings)
    return {
        "words": np.array(model.wv.index_to_key),
        "word": model.wv.vectors_vocab,
        "gram": model.wv.vectors_ngrams,
        "vectors": np.stack([model.wv[word] for word in asked]),
    }


def passes_over_a_pair(before: list[list[list[list[float]]]], rate: float) -> dict[str, Any]:
    """Tables (input, output) after one pass over the sentence "a b" by skip-gram with one noise word per pair.

    Args:
        before: tables before, one pair of tables for each seed 0, 1, ...
        rate: learning rate.
    """
    after = []
    for seed, tables in enumerate(np.array(before, dtype=np.float32)):
        settings = {"window": 1, "sg": 1, "negative": 1, "min_count": 1, "sample": 0, "workers": 1, "seed": seed}
        model = Word2Vec(vector_size=tables.shape[-1], alpha=rate, min_alpha=rate, **settings)
        model.build_vocab([["a", "b", "a"]])  # "a" is the more frequent word
        assert model.wv.index_to_key == ["a", "b"]
        model.wv.vectors[:], model.syn1neg[:] = tables
        model.train([["a", "b"]], total_examples=1, epochs=1)
        after.append([model.wv.vectors.copy(), model.syn1neg.copy()])
    return {"after": np.array(after)}


def distributions(counts: dict[str, int], sample: float) -> dict[str, Any]:
    """Probability of keeping each word, and of each word as noise, in the order of `counts`."""
    model = Word2Vec(vector_size=2, min_count=1, sample=sample, negative=5, ns_exponent=0.75)
    model.build_vocab([[word] * count for word, count in counts.items()])
    order = [model.wv.key_to_index[word] for word in counts]
    keep = np.array([model.wv.get_vecattr(word, "sample_int") for word in counts]) / 2.0**32
    cumulative = model.cum_table.astype(np.float64)
    noise = np.diff(cumulative, prepend=0.0) / cumulative[-1]
    return {"keep": keep, "noise": noise[order]}


def text_file(path: str) -> dict[str, Any]:
    """Write random vectors in word2vec's text format."""
    model = Word2Vec([["the", "œuvre", "แมว"]], vector_size=5, min_count=1, seed=3, workers=1)
    model.wv.save_word2vec_format(Path(path))
    return {"words": np.array(model.wv.index_to_key), "vectors": model.wv.vectors}


if __name__ == "__main__":
    answer(buckets, words_and_grams, passes_over_a_pair, distributions, text_file)
