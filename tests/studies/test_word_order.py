"""Sentences and the same words in a random order."""

from __future__ import annotations

import numpy as np
import pytest

from components.core.errors import DataError
from tests.studies.conftest import FILLER, findings, fits


def texts(count: int) -> list[str]:
    """Sentences of six words in alphabetic order, so that the order can be learned."""
    rng = np.random.default_rng(0)
    return [" ".join(sorted(rng.choice(FILLER, 6, replace=False))).capitalize() + "." for _ in range(count)]


def test_static_vectors_guess_and_contextual_ones_do_not(outputs, add_encoder, add_corpus):
    add_corpus("domain", texts(200))
    for name in ("word2vec", "ulmfit"):
        add_encoder(name)
    outputs.params.run.__dict__["families"] = ["word2vec", "ulmfit"]
    actual = findings(outputs, "word-order", sentences=200, seeds=2)
    fits(actual, "word-order")
    (rows,) = actual.numbers.values()
    means = [row["accuracy"]["mean"] for row in rows]
    assert [row["encoder"] for row in rows] == ["word2vec-adapted", *["ulmfit-adapted"] * 3]
    assert means[:2] == [0.5, 0.5] and means[-1] > 0.6
    assert actual.chapter.tables[0].rows[0] == ["word2vec-adapted", "0", "0.500"]
    assert actual.chapter.lead[0].startswith(
        "domain text; 0 is the embedding: accuracy is highest for ulmfit-adapted, "
    )
    assert "word2vec-adapted" in actual.chapter.figures[0].svg


def test_too_few_words(outputs, add_encoder, add_corpus):
    add_corpus("domain", ["The bank is old."] * 30)
    add_encoder("word2vec")
    with pytest.raises(DataError, match="contains no sentence of 5 to 60 words"):
        findings(outputs, "word-order", encoder="word2vec", sentences=20)
