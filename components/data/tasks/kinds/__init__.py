"""Kinds of downstream task.

A kind is an entry of a file here (reader, input and output format, metrics; free of torch) and of a file in
`components.learners.task_models.kinds` (encoding and head), with one line in each package's table. Its baselines are in
`components.learners.baselines`, its keys of params.yaml in `components.settings.tasks`; both have defaults.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from components.core.errors import ConfigError, nearest
from components.core.tables import LazyTable
from components.data.scoring.base import LOWER_IS_BETTER, Scoring
from components.data.tasks.data import Examples
from components.data.tasks.task_io import TaskIO
from components.settings.tasks import TaskSource


@dataclass(frozen=True)
class Kind:
    """One entry of the table KINDS.

    Attributes:
        read: (task name, source) -> the task's examples. Raises DataError for invalid data.
        scoring: labels -> the metrics.
        pipeline: what transformers calls the task; None: it has none.
        by_class: whether a label budget is a number of rows per class, not of rows.
    """

    read: Callable[[str, TaskSource], Examples]
    io: TaskIO
    scoring: Callable[[Sequence[str]], Scoring]
    by_class: bool = False
    pipeline: str | None = "text-classification"


KINDS: LazyTable[Kind] = LazyTable(
    {
        "classification": "components.data.tasks.kinds.classification:KIND",
        "multilabel": "components.data.tasks.kinds.multilabel:KIND",
        "pair": "components.data.tasks.kinds.classification:PAIR",
        "similarity": "components.data.tasks.kinds.numbers:SIMILARITY",
        "regression": "components.data.tasks.kinds.numbers:REGRESSION",
        "choice": "components.data.tasks.kinds.choice:KIND",
        "tagging": "components.data.tasks.kinds.tagging:KIND",
        "questions": "components.data.tasks.kinds.questions:KIND",
    }
)


def find_kind(kind: str, *, key: str = "kind") -> Kind:
    if kind not in KINDS:
        raise ConfigError(f"{key}: unknown task kind {kind!r}{nearest(kind, KINDS)}")
    return KINDS[kind]


def scoring_for(kind: str, labels: Sequence[str] = ()) -> Scoring:
    return find_kind(kind).scoring(labels)


def promotion_metrics(kind: str) -> tuple[str, ...]:
    """Names of the metrics that a promotion rule may use for a kind of task, its primary metric first.

    Raises:
        ConfigError: there is no such kind.
    """
    # Only the data show whether tags mark spans; the metrics of both cases are offered.
    variants = (scoring_for(kind, ["B-X"]), scoring_for(kind))
    names = dict.fromkeys(name for scoring in variants for name in scoring.names)
    return tuple(name for name in names if name not in LOWER_IS_BETTER)
