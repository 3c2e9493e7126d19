"""The downstream tasks. A task is one file ending in `TASK = Task(...)` and one line here."""

from __future__ import annotations

from components.errors import ConfigError, nearest
from components.task_models.base import Task
from components.task_models.kinds import choice, classification, multilabel, pair, questions, similarity, tagging
from components.tasks.data import Examples, Split

TASKS: dict[str, Task] = {
    task.kind: task
    for task in (
        classification.TASK,
        multilabel.TASK,
        pair.TASK,
        similarity.TASK,
        choice.TASK,
        tagging.TASK,
        questions.TASK,
    )
}


def find_task(kind: str, *, key: str = "kind") -> Task:
    """The task of this kind.

    Raises:
        ConfigError: there is none; the message names `key` and those that exist.
    """
    if kind not in TASKS:
        raise ConfigError(f"{key}: unknown task kind {kind!r}{nearest(kind, TASKS)}")
    return TASKS[kind]


__all__ = ["TASKS", "Examples", "Split", "Task", "find_task"]
