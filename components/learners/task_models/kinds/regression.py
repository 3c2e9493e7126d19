"""Regression: a number for one text. The text is encoded as in classification."""

from __future__ import annotations

from components.learners.task_models.base import Task
from components.learners.task_models.heads import RegressionHead
from components.learners.task_models.inputs import pooling_of_windows
from components.learners.task_models.kinds.classification import encode

TASK = Task(
    kind="regression",
    reads="text",
    encode=encode,
    head=lambda settings, features, labels: RegressionHead.of(settings, features, 1),
    combine=pooling_of_windows,
    single=True,
    imitates=True,
)
