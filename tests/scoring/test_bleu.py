"""BLEU from sums over sentences: by hand, and against sacrebleu's score of the corpus."""

import math
import sys

import numpy as np
import pytest
import sacrebleu

from components.core.errors import ConfigError
from components.data.scoring.bleu import bleu, statistics


def test_the_sums_and_the_score_by_hand():
    sums = statistics(["the cat is on mat", "a dog"], [["the cat is on the mat"], ["one cat"]])
    assert sums.tolist() == [[5, 3, 2, 1, 5, 4, 3, 2, 5, 6], [0, 0, 0, 0, 2, 1, 0, 0, 2, 2]]
    precisions = [5 / 7, 3 / 5, 2 / 3, 1 / 2]
    expected = math.exp(1 - 8 / 7) * math.prod(precisions) ** (1 / 4)
    assert bleu(sums.sum(0)) == pytest.approx(expected)
    assert bleu(sums).tolist() == pytest.approx([math.exp(-1 / 5) * (3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4), 0.0])


def test_the_score_of_a_corpus_is_sacrebleus():
    rng = np.random.default_rng(0)
    words = ["the", "cat", "sat", "on", "a", "mat", ",", "it's", "red."]
    texts = [" ".join(rng.choice(words, rng.integers(0, 12))) for _ in range(20)]
    references = [[" ".join(rng.choice(words, rng.integers(1, 12))) for _ in range(2)] for _ in range(20)]
    expected = sacrebleu.corpus_bleu(texts, [list(each) for each in zip(*references, strict=True)]).score / 100
    assert 0 < expected < 1
    assert bleu(statistics(texts, references).sum(0)) == pytest.approx(expected)


def test_without_sacrebleu(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(ConfigError, match="the package sacrebleu is not installed"):
        statistics(["a"], [["a"]])
