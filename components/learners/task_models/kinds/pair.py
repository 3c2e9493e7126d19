"""Classification of two texts: paraphrase, entailment, answer selection.

BERT reads [CLS] first [SEP] second [SEP] with segments, causal Transformers both texts with a delimiter; encoders
without attention read them as two sequences (see `inputs`).
"""

from __future__ import annotations

from components.learners.task_models.base import Task
from components.learners.task_models.inputs import combination, compared, encode_pairs
from components.learners.task_models.kinds.classification import head

TASK = Task(
    kind="pair",
    reads="text",
    encode=encode_pairs,
    head=head,
    combine=combination(compared),
    labels_rows=True,
    imitates=True,
)
