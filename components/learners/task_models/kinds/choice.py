"""Multiple choice: a text and several continuations or answers, one of them correct. Each choice is one sequence with
the text (Radford et al. 2018, section 3.3) and has a score; a softmax over the row's choices gives probabilities."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from components.data.tasks.data import Fields
from components.learners.task_models.base import Encoded, Task, most_pieces
from components.learners.task_models.heads import ImitatingHead, precise, softened
from components.learners.task_models.inputs import encode_sequences
from components.models.base import Batch, LanguageModel
from components.settings.finetune import FinetuneSettings
from components.tokenization import Tokenizer


class ChoiceHead(ImitatingHead):
    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Cross entropy over the choices, averaged over rows, plus the penalty."""
        logs, counts = _log_probabilities(precise(outputs[:, 0]), batch)
        first = counts.cumsum(0) - counts
        return self.penalised(-logs[first + batch["targets"][:, 0].long()].mean())

    def imitation(self, outputs: Tensor, batch: Batch, *, temperature: float) -> Tensor:
        """T^2 KL of the distributions over a row's choices at temperature T, averaged over rows."""
        taught = batch["targets"]
        logs, _ = _log_probabilities(precise(outputs[:, 0]) / temperature, batch)
        # Choices that a row does not have are padding.
        given = taught.isfinite()
        wanted = softened(taught.masked_fill(~given, 0.0).to(logs.dtype), temperature)
        wanted = wanted.masked_fill(~given, float("-inf")).log_softmax(1)[given]
        return temperature**2 * (wanted.exp() * (wanted - logs)).sum() / len(taught)

    def answers(self, outputs: Tensor, batch: Batch) -> list[NDArray[np.float32]]:
        logs, counts = _log_probabilities(precise(outputs[:, 0]), batch)
        return [np.asarray(row) for row in np.split(logs.exp().cpu().numpy(), counts.cumsum(0).cpu().numpy()[:-1])]


def _log_probabilities(scores: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """(S,) log-softmax of the scores within each row, and (B,) number of choices."""
    rows = batch["rows"]
    size = len(batch["targets"]) if "targets" in batch else int(rows[-1]) + 1
    counts = rows.new_zeros(size).index_add(0, rows, rows.new_ones(len(rows)))
    largest = scores.new_full((size,), float("-inf")).scatter_reduce(0, rows, scores.detach(), "amax")
    shifted = scores - largest[rows]
    total = scores.new_zeros(size).index_add(0, rows, shifted.exp())
    return shifted - total.log()[rows], counts


def encode(
    rows: Sequence[Fields], tokenizer: Tokenizer, encoder: LanguageModel, settings: FinetuneSettings
) -> list[Encoded]:
    """One sequence per choice: the text, a delimiter, the choice."""
    sequences = [[(text, choice) for choice in choices] for text, *choices in rows]
    return encode_sequences(sequences, tokenizer, encoder, most_pieces(settings, encoder))


TASK = Task(
    kind="choice",
    reads="text",
    encode=encode,
    head=lambda settings, features, labels: ChoiceHead.of(settings, features, 1),
    imitates=True,
)
