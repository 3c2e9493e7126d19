"""How models learn each kind of task. A kind is a `Task` of one of the files and one line here."""

from components.core.errors import ConfigError, nearest
from components.core.tables import LazyTable
from components.learners.task_models.base import Task

TASKS: LazyTable[Task] = LazyTable(
    {
        "classification": "components.learners.task_models.kinds.classification:TASK",
        "multilabel": "components.learners.task_models.kinds.multilabel:TASK",
        "pair": "components.learners.task_models.kinds.classification:PAIR",
        "similarity": "components.learners.task_models.kinds.numbers:SIMILARITY",
        "regression": "components.learners.task_models.kinds.numbers:REGRESSION",
        "choice": "components.learners.task_models.kinds.choice:TASK",
        "tagging": "components.learners.task_models.kinds.tagging:TASK",
        "questions": "components.learners.task_models.kinds.questions:TASK",
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
