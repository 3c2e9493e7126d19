"""Regression: a number for one text, or the similarity of two texts, which is symmetric: a causal Transformer reads
both orders, and their representations are added (Radford et al. 2018, section 3.3)."""

from functools import partial

from components.learners.task_models.base import Task
from components.learners.task_models.heads import RegressionHead
from components.learners.task_models.inputs import combination, encode_pairs, likened, pooling_of_windows, summed
from components.learners.task_models.kinds.classification import encode

SIMILARITY = Task(
    kind="similarity",
    reads="text",
    encode=partial(encode_pairs, both_orders=True),
    head=RegressionHead.of,
    combine=combination(likened, turned=summed),
    imitates=True,
)

REGRESSION = Task(
    kind="regression",
    reads="text",
    encode=encode,
    head=RegressionHead.of,
    combine=pooling_of_windows,
    single=True,
    imitates=True,
)
