"""Classification of two texts: paraphrase, entailment, an answer to a question.

[CLS] first [SEP] second [SEP] with segments for BERT, the two with a delimiter between them for a causal Transformer;
encoders without attention read them apart (see `inputs`).
"""

from __future__ import annotations

from components.task_models.base import Task
from components.task_models.inputs import combination, compared, encode_pairs
from components.task_models.kinds.classification import head

TASK = Task(
    kind="pair",
    reads="text",
    encode=encode_pairs,
    head=head,
    combine=combination(compared),
)
