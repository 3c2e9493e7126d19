"""An encoder with a head on top: what fine-tuning trains and what is served."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.config import FinetuneSettings
from components.finetuning.heads import ClassificationHead, Features
from components.finetuning.sampler import pad
from components.models.base import Batch, Carry, LanguageModel, Losses
from components.tokenization.special import UNK

Pieces = Sequence[NDArray[np.int64]]

#: Pieces of a batch, padding included, when nothing is learned: enough to keep a core busy, few enough for its cache.
PREDICT_PIECES = 4096


class Classifier(nn.Module):
    """Texts to logits.

    Args:
        encoder: the language model; its objective's own parameters are carried along untouched.
        settings: layers, pooling and head.
        outputs: C classes.
        head: (settings, features, outputs) -> the layers on top, from the task.
    """

    def __init__(
        self,
        encoder: LanguageModel,
        *,
        settings: FinetuneSettings,
        outputs: int,
        head: Callable[[FinetuneSettings, int, int], ClassificationHead],
    ) -> None:
        super().__init__()
        self.encoder = encoder
        one, length = pad([np.asarray(encoder.special_tokens([UNK]), dtype=np.int64)])
        with torch.no_grad():
            hidden = encoder.hidden_states(one, length)
            self.features = Features(
                layers=settings.layers,
                pooling=settings.pooling,
                widths=[layer.shape[-1] for layer in hidden],
                summary=encoder.summary,
            )
            width = self.features(hidden, length).shape[1]
        self.head = head(settings, width, outputs)
        #: Weight of the L2 penalty on the head's last layer; the head alone sets it to what it was learned with.
        self.penalty = 0.0

    def pooled(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """(B, T) piece ids -> (B, F) features."""
        features: Tensor = self.features(self.encoder.hidden_states(tokens, lengths), lengths)
        return features

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """(B, T) piece ids -> (B, C) logits."""
        logits: Tensor = self.head(self.pooled(tokens, lengths))
        return logits

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        """Mean cross entropy of a batch of `ExampleSampler` + penalty / 2 * |W|^2 of the head's last layer W.

        So the head alone and the whole minimise the same thing: where the former stands at its optimum, the latter
        begins without a push on the head, and learns by moving the features.
        """
        logits = self(batch["tokens"], batch["lengths"]).float()
        loss = nn.functional.cross_entropy(logits, batch["labels"])
        count = torch.tensor(len(logits), device=logits.device)
        sums = {"labels": (loss.detach() * count, count)}
        return Losses(loss + self.penalty / 2 * self.head.output.weight.square().sum(), sums)

    def own_parameters(self) -> list[nn.Parameter]:
        """Parameters above the encoder."""
        return [*self.features.parameters(), *self.head.parameters()]


def batches_by_length(pieces: Pieces, budget: int = PREDICT_PIECES) -> Iterator[NDArray[np.int64]]:
    """Row numbers in batches of at most `budget` pieces with padding, the shortest texts first; every row once."""
    lengths = np.asarray([len(text) for text in pieces], dtype=np.int64)
    order = np.argsort(lengths, kind="stable")
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or (end + 1 - start) * lengths[order[end]] > budget:
            yield order[start:end]
            start = end


def run_over(
    function: Callable[[Tensor, Tensor], Tensor], model: nn.Module, pieces: Pieces, *, precision: str = "float32"
) -> Tensor:
    """Apply `function` (tokens, lengths) -> (B, K) to all texts in evaluation mode: (N, K) float32, in their order.

    Args:
        function: a method of `model`.
        pieces: N texts as piece ids.
        precision: `float32` or `bf16`.
    """
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    results: list[tuple[NDArray[np.int64], Tensor]] = []
    with (
        torch.inference_mode(),
        torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"),
    ):
        for rows in batches_by_length(pieces):
            tokens, lengths = pad([pieces[row] for row in rows])
            results.append((rows, function(tokens.to(device), lengths.to(device)).float().cpu()))
    model.train(training)
    order = torch.from_numpy(np.concatenate([rows for rows, _ in results]))
    joined = torch.cat([result for _, result in results])
    # A plain tensor again, that training may use.
    return torch.empty_like(joined).index_copy_(0, order, joined).clone()


def probabilities(model: Classifier, pieces: Pieces, *, precision: str = "float32") -> NDArray[np.float32]:
    """(N, C) class probabilities of texts given as piece ids."""
    return run_over(model, model, pieces, precision=precision).softmax(1).numpy()


def cloned_state(model: nn.Module) -> dict[str, Tensor]:
    """A copy of all weights and buffers, to come back to."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}
