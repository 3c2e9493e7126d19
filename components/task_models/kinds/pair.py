"""Classification of two texts: paraphrase, entailment, an answer to a question.

[CLS] first [SEP] second [SEP] with segments for BERT, the two with a delimiter between them for a causal Transformer;
encoders without attention read them apart (see `inputs`).
"""

from __future__ import annotations

from components.task_models.base import Task
from components.task_models.inputs import combination, compared, encode_pairs
from components.task_models.kinds.classification import head, strata
from components.tasks.reading import read_pairs

TASK = Task(
    kind="pair",
    reads="text",
    read=read_pairs,
    encode=encode_pairs,
    head=head,
    strata=strata,
    combine=combination(compared),
)
