"""How models learn each kind of task: encoding of rows, head, loss. A kind is one file ending in `TASK = Task(...)` and
one line here."""

from __future__ import annotations

from components.errors import ConfigError, nearest
from components.tables import LazyTable
from components.task_models.base import Task

TASKS: LazyTable[Task] = LazyTable(
    {
        "classification": "components.task_models.kinds.classification:TASK",
        "multilabel": "components.task_models.kinds.multilabel:TASK",
        "pair": "components.task_models.kinds.pair:TASK",
        "similarity": "components.task_models.kinds.similarity:TASK",
        "regression": "components.task_models.kinds.regression:TASK",
        "choice": "components.task_models.kinds.choice:TASK",
        "tagging": "components.task_models.kinds.tagging:TASK",
        "questions": "components.task_models.kinds.questions:TASK",
    }
)


def find_task(kind: str) -> Task:
    """The entry of a kind of task.

    Raises:
        ConfigError: no model can learn this kind.
    """
    if kind not in TASKS:
        raise ConfigError(f"kind: unknown task kind {kind!r}{nearest(kind, TASKS)}")
    return TASKS[kind]
