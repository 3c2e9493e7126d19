"""How models learn each kind of task. A kind is a `Task` of one of the files and one line here."""

from components.core.errors import ConfigError, nearest
from components.core.tables import LazyTable
from components.learners.task_models.base import Task

TASKS: LazyTable[Task] = LazyTable(
    {
        "classification": "components.learners.task_models.kinds.texts:CLASSIFICATION",
        "multilabel": "components.learners.task_models.kinds.texts:MULTILABEL",
        "pair": "components.learners.task_models.kinds.texts:PAIR",
        "similarity": "components.learners.task_models.kinds.texts:SIMILARITY",
        "regression": "components.learners.task_models.kinds.texts:REGRESSION",
        "choice": "components.learners.task_models.kinds.texts:CHOICE",
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
