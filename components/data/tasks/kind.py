"""The interface of a kind of task: everything except its model and its baselines. Free of torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from components.data.scoring.base import Scoring
from components.data.tasks.data import Examples, Labels, Split
from components.data.tasks.task_io import TaskIO
from components.settings.tasks import TaskSource


def one_stratum(split: Split) -> None:
    """`Kind.strata` of kinds whose label budget is a number of rows."""


@dataclass(frozen=True)
class Kind:
    """One entry of the table KINDS.

    Attributes:
        read: (task name, source) -> the task's examples. Raises DataError for invalid data.
        scoring: labels -> the metrics.
        strata: split -> (N,) the stratum of each row; a label budget is a number of rows per stratum. None: the budget
            is a number of rows.
    """

    read: Callable[[str, TaskSource], Examples]
    io: TaskIO
    scoring: Callable[[Sequence[str]], Scoring]
    strata: Callable[[Split], Labels | None] = one_stratum
