"""Metrics of any number of labels per row, compared with hand-computed values and scikit-learn."""

import numpy as np
import pytest
from sklearn import metrics

from components.data.tasks.kinds.multilabel import Multilabel

SCORING = Multilabel(["a", "b", "c"])


def vectors(*rows: list[float]) -> list[np.ndarray]:
    return [np.asarray(row, dtype=np.float64) for row in rows]


def test_scores_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    truths = rng.random((200, 4)) < 0.3
    answers = np.clip(truths * 0.4 + rng.random((200, 4)) * 0.6, 0, 1)
    scoring = Multilabel(list("abcd"))
    actual = scoring.score([("",)] * 200, [np.flatnonzero(row).astype(float) for row in truths], list(answers))
    guesses = answers >= 0.5
    assert actual["micro_f1"] == pytest.approx(metrics.f1_score(truths, guesses, average="micro"))
    assert actual["macro_f1"] == pytest.approx(metrics.f1_score(truths, guesses, average="macro"))
    assert actual["subset_accuracy"] == pytest.approx(metrics.accuracy_score(truths, guesses))


def test_the_constant_predicts_the_most_frequent_labels():
    (first, *_) = SCORING.constant(vectors([0, 1], [0], [1], [0, 2]))
    assert first.tolist() == [0.75, 0.5, 0.25]
    (rare, *_) = SCORING.constant(vectors([0], [0], [1], [], []))
    assert rare.tolist() == pytest.approx([0.5, 0.2, 0.0]), "none has half of the rows: the most frequent one"
