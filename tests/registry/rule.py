"""The promotion rule on 400 rows of four classes: models that are correct on a given number of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse

from components.data.tasks.kinds.classification import Classification
from components.registry.decide import Decision, Latency, Scored, TestRows, decide
from components.settings.registry import PromotionRule

ROWS = 400
LABELS = np.arange(ROWS) % 4
RULE = PromotionRule(metric="accuracy", confidence=0.95, latency_ms=50, slice_rows=50)
FAST = Latency(10.0, (10.0, 10.1, 9.9, 10.0, 10.0), "100 rows, a processor")
SCORING = Classification(list("abcd"), bins=1)


def statistics_of(
    predictions: np.ndarray, labels: np.ndarray = LABELS, scoring: Classification = SCORING
) -> sparse.csr_array:
    """Statistics of predictions with probability 1."""
    probabilities = np.eye(len(scoring.labels), dtype=np.float32)[predictions]
    return scoring.statistics([("text",)] * len(labels), labels[:, None], probabilities)


TEST = TestRows(
    digest="t1",
    scoring=SCORING,
    stand_in=statistics_of(np.zeros(ROWS, dtype=int)),
    slices=tuple("even" if row % 8 < 4 else "odd" for row in range(ROWS)),
)


def answers(right: np.ndarray) -> sparse.csr_array:
    """Statistics of predictions that are correct on these rows, (N,) of bool, and wrong elsewhere."""
    return statistics_of(np.where(right, LABELS, (LABELS + 1) % 4))


def run_of(right: int, *, first: int = 0) -> sparse.csr_array:
    """Statistics of predictions that are correct on `right` consecutive rows from row `first` on, modulo N."""
    return answers(np.isin(np.arange(ROWS), (first + np.arange(right)) % ROWS))


def scored(name: str, right: int | None, **changes: object) -> Scored:
    base = Scored(
        name=f"m/{name}",
        digest=f"digest-{name}",
        statistics=None if right is None else run_of(right),
        latency=FAST,
    )
    return replace(base, **changes)


CHAMPION = scored("champion", 280)


def decided(
    candidate: Scored, champion: Scored | None = CHAMPION, *, rows: TestRows = TEST, uses: int = 1, **rule: object
) -> Decision:
    """The decision by `RULE` with these changes."""
    return decide(candidate, champion, RULE.model_copy(update=rule), rows=rows, test_uses=uses)
