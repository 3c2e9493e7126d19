"""What the promotion rule compares: predictions of the test rows, and latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scipy import sparse

from components.scoring import Scoring
from components.scoring.intervals import Ints, clusters_of


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
        problem: why `statistics` is None.
        rolled_back: whether a person rolled this version back.
    """

    name: str
    digest: str
    test_digest: str
    statistics: sparse.csr_array | None
    latency: Latency | None = None
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
    def clusters(self) -> Ints | None:
        """(N,) number of each row's cluster, from 0, or None if rows are independent."""
        return clusters_of(self.groups)
