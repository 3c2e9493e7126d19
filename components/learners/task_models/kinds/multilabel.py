"""Multi-label classification: independent probabilities of the labels."""

from components.learners.task_models.base import Task
from components.learners.task_models.heads import MultilabelHead
from components.learners.task_models.inputs import pooling_of_windows
from components.learners.task_models.kinds.classification import encode

TASK = Task(
    kind="multilabel",
    reads="text",
    encode=encode,
    head=MultilabelHead.of,
    combine=pooling_of_windows,
    labels_rows=True,
    imitates=True,
    single=True,
)
