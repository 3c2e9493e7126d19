"""What the promotion rule compares: predictions of the test rows, training noise and latency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from components.registry.comparison import TrainingNoise, Variance
from components.scoring import Scoring

#: Training noise of a constant prediction.
NO_NOISE = TrainingNoise(Variance(0.0, math.inf), "a constant", "constant prediction")


@dataclass(frozen=True)
class Latency:
    """Latency of one text, as measured once for an artifact.

    Attributes:
        p50: median of the fastest pass in milliseconds.
        p99: 99th percentile over all passes in milliseconds.
        rounds: median of each pass over the same rows, in milliseconds.
        conditions: number of rows and threads, and the processor.
    """

    p50: float
    p99: float
    rounds: tuple[float, ...] = ()
    conditions: str = ""


@dataclass(frozen=True)
class Scored:
    """A model version or baseline, and its predictions of the test rows.

    Attributes:
        name: label of the version, such as `headstart-aws-type/3`.
        digest: content digest of the model.
        test_digest: digest of the test split of `statistics`.
        statistics: (N, K) statistics of the task's scoring; None if the model could not be scored.
        latency: None if not measured.
        noise: training noise of its recipe; None if it is unknown.
        paired_noise: of a baseline: training noise of the candidate's gain over it, from runs on the same labels; None:
            the noises of the two are independent.
        problem: why `statistics` is None.
        rolled_back: whether a person rolled this version back.
    """

    name: str
    digest: str
    test_digest: str
    statistics: sparse.csr_array | None
    latency: Latency | None = None
    noise: TrainingNoise | None = None
    paired_noise: TrainingNoise | None = None
    problem: str = ""
    rolled_back: bool = False


@dataclass(frozen=True)
class TestRows:
    """The test split.

    Attributes:
        digest: digest of the split.
        scoring: scoring of the task.
        stand_in: (N, K) statistics of the constant prediction (`Scoring.constant`).
        slices: name of each row's slice, or None without slices.
        groups: name of each row's cluster (None: the row is a cluster of its own), or None if rows are independent.
    """

    __test__ = False  # pytest would collect it because of its name

    digest: str
    scoring: Scoring
    stand_in: sparse.csr_array
    slices: Sequence[str | None] | None = None
    groups: Sequence[str | None] | None = None

    def __len__(self) -> int:
        return int(self.stand_in.shape[0])

    @property
    def clusters(self) -> NDArray[np.int64] | None:
        """(N,) number of each row's cluster, from 0, or None if rows are independent."""
        if self.groups is None or not any(name is not None for name in self.groups):
            return None
        names = [name if name is not None else index for index, name in enumerate(self.groups)]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return np.asarray([numbers[name] for name in names], dtype=np.int64)
