"""Similarity of two texts: regression.

The prediction must be symmetric: a causal Transformer reads both orders, and their representations are added (Radford
et al. 2018, section 3.3); encoders without attention read the texts as two sequences (see `inputs`).
"""

from __future__ import annotations

from collections.abc import Sequence

from components.data.tasks.data import Fields
from components.learners.task_models.base import Encoded, Task
from components.learners.task_models.heads import RegressionHead
from components.learners.task_models.inputs import combination, encode_pairs, likened, summed
from components.models.base import LanguageModel
from components.settings.finetune import FinetuneSettings
from components.tokenization import Tokenizer


def encode(
    rows: Sequence[Fields], tokenizer: Tokenizer, encoder: LanguageModel, settings: FinetuneSettings
) -> list[Encoded]:
    """Both texts; in both orders for a causal encoder."""
    return encode_pairs(rows, tokenizer, encoder, settings, both_orders=True)


TASK = Task(
    kind="similarity",
    reads="text",
    encode=encode,
    head=lambda settings, features, labels: RegressionHead.of(settings, features, 1),
    combine=combination(likened, turned=summed),
    imitates=True,
)
