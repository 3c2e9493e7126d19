"""Text embeddings: the mean of an encoder's last hidden states over the tokens of a text."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from components.models.base import Batch
from components.models.encoder import Encoder
from components.task_models.base import Encoded
from components.task_models.inputs import encode_texts
from components.task_models.model import run_over
from components.task_models.pooling import masked_mean


def embed(encoder: Encoder, texts: Sequence[str | None], *, max_length: int = 256) -> list[list[float] | None]:
    """Mean-pooled embeddings.

    Args:
        encoder: model and tokenizer.
        texts: N texts; longer ones are truncated to `max_length` pieces.
        max_length: maximum pieces per text, also limited by the model's positions.

    Returns:
        N vectors of D numbers, in the order of the texts; None for an empty text.
    """
    filled = [index for index, text in enumerate(texts) if text is not None and text.strip()]
    vectors: list[list[float] | None] = [None] * len(texts)
    if not filled:
        return vectors

    def pooled(batch: Batch) -> list[Tensor]:
        hidden = encoder.model.hidden_states(batch["tokens"], batch["lengths"])
        return list(masked_mean(hidden[-1], batch["lengths"]).float().cpu())

    room = min(max_length, encoder.model.max_tokens or max_length)
    pieces = encode_texts([str(texts[index]) for index in filled], encoder.tokenizer, encoder.model, room)
    encoded = [Encoded.of_texts([text]) for text in pieces]
    for index, vector in zip(filled, run_over(pooled, encoder.model, encoded), strict=True):
        vectors[index] = vector.tolist()
    return vectors
