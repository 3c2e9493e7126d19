"""FLAIR: character language models, one per direction.

Akbik, Blythe and Vollgraf 2018 (Contextual String Embeddings for Sequence Labeling):

    forward:  p(x_{t+1} | x_1 .. x_t) = softmax(W h_t + b)     backward: p(x_{t-1} | x_t .. x_T), by a model of its own

A word's embedding is the forward state after its last character joined to the backward state before its first.

Shape suffixes: B batch rows, T characters, D embedding width, H hidden width, N = T B, V characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.base import (
    Batch,
    Carry,
    LanguageModel,
    Losses,
    ModelConfig,
    ModelFamily,
    Sum,
    at_columns,
    counted,
)
from components.models.layers.chunks import Texts
from components.models.layers.directions import both_ends, joined, turned
from components.models.layers.dropout import Dropout
from components.models.layers.lstm import LSTM
from components.models.layers.parallel import losses_beside
from components.models.layers.softmax import linear_cross_entropy
from components.models.layers.targets import following, preceding
from components.models.layers.vocabulary import remapped
from components.tokenization.special import END

Size = Annotated[int, Field(gt=0)]
Rate = Annotated[float, Field(ge=0, lt=1)]


class FLAIRConfig(ModelConfig):
    """Sizes of each direction.

    Attributes:
        embedding: width of the character embedding.
        hidden: width of the LSTM.
        layers: LSTM layers; the paper has one.
        dropout: of the embedding and of the output.
    """

    embedding: Size = 100
    hidden: Size = 512
    layers: Size = 1
    dropout: Rate = 0.1


class Direction(nn.Module):
    """The language model that reads one way; the other reads the reversed text."""

    def __init__(self, config: FLAIRConfig) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(config.vocabulary, config.embedding))
        self.lstms = nn.ModuleList(
            LSTM(config.hidden if layer else config.embedding, config.hidden) for layer in range(config.layers)
        )
        self.output = nn.Parameter(torch.empty(config.vocabulary, config.hidden))
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))
        self.drop = Dropout(config.dropout)
        # Small output rows leave the first predictions to the bias, the unigram frequencies of the characters.
        nn.init.normal_(self.embedding, std=0.1)
        nn.init.normal_(self.output, std=0.1 / config.hidden**0.5)

    def forward(self, tokens_TB: Tensor, carry: Carry, texts: Texts | None = None) -> tuple[list[Tensor], Carry]:
        """Outputs (T, B, .) of the embedding and of every LSTM, and the state after the window."""
        x_TBD = self.drop(self.embedding[tokens_TB])
        outputs, states = [x_TBD], []
        for index, lstm in enumerate(self.lstms):
            x_TBD, state = lstm(x_TBD, carry[2 * index : 2 * index + 2], texts=texts)
            states += state
            outputs.append(self.drop(x_TBD))
        return outputs, tuple(states)

    def loss_sum(self, tokens_BT: Tensor, targets_BT: Tensor, carry: Carry) -> tuple[Tensor, Carry]:
        """Negative log-likelihood of the next characters, in nats, summed, and the state after the window."""
        outputs, carry = self(tokens_BT.t(), carry)
        x_ND = outputs[-1].flatten(0, 1)
        return linear_cross_entropy(x_ND, self.output, self.bias, targets_BT.t().reshape(-1)), carry


class FLAIR(LanguageModel):
    """Both directions, trained side by side.

    `losses` reads `tokens`, `targets` (B, T) of the text and `backward_tokens`, `backward_targets` (B, T) of the
    reversed text. Its carry is h and c of every layer, forward then backward, each (B, H).
    """

    config: FLAIRConfig
    carries_state = True

    def __init__(self, config: FLAIRConfig) -> None:
        super().__init__()
        self.config = config
        self.forwards = Direction(config)
        self.backwards = Direction(config)

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        half = len(carry) // 2
        (loss_forward, carry_forward), (loss_backward, carry_backward) = losses_beside(
            (
                partial(self.forwards.loss_sum, batch["tokens"], batch["targets"], carry[:half]),
                partial(self.backwards.loss_sum, batch["backward_tokens"], batch["backward_targets"], carry[half:]),
            ),
            (self.forwards, self.backwards),
        )
        count = torch.tensor(batch["targets"].numel(), device=loss_forward.device)
        return Losses(
            loss=(loss_forward + loss_backward) / count,
            sums={
                "tokens": ((loss_forward + loss_backward).detach(), 2 * count),
                "forward": (loss_forward.detach(), count),
                "backward": (loss_backward.detach(), count),
            },
            carry=carry_forward + carry_backward,
        )

    def hidden_states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        turned_BT = turned(lengths, tokens.shape[1])
        forward, _ = self.forwards(tokens.t(), (), self.texts(lengths))
        backward, _ = self.backwards(tokens.gather(1, turned_BT).t(), (), self.texts(lengths))
        return [
            joined(ahead_TBD.transpose(0, 1), back_TBD.transpose(0, 1), turned_BT)
            for ahead_TBD, back_TBD in zip(forward, backward, strict=True)
        ]

    def text_loss(self, batch: Batch, hidden: Sequence[Tensor]) -> Sum:
        ahead_BTH, back_BTH = hidden[-1].chunk(2, dim=-1)
        ahead_NH, next_N = following(ahead_BTH, batch["tokens"], batch["lengths"])
        back_NH, last_N = preceding(back_BTH, batch["tokens"], batch["lengths"])
        total = linear_cross_entropy(ahead_NH, self.forwards.output, self.forwards.bias, next_N)
        total = total + linear_cross_entropy(back_NH, self.backwards.output, self.backwards.bias, last_N)
        return counted(total, next_N, last_N)

    def summary(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        return both_ends(hidden, lengths)

    def unit_states(self, hidden: Tensor, units: Tensor) -> Tensor:
        # The forward state behind the unit's end, the backward state before its beginning (Akbik et al. 2018, eq. 6).
        ahead_BTH, back_BTH = hidden.chunk(2, dim=-1)
        return torch.cat([at_columns(ahead_BTH, units[..., 1]), at_columns(back_BTH, units[..., 0])], dim=-1)

    def layer_groups(self) -> list[list[nn.Parameter]]:
        directions = (self.forwards, self.backwards)
        embeddings = [direction.embedding for direction in directions]
        layers = [
            [parameter for direction in directions for parameter in direction.lstms[layer].parameters()]
            for layer in range(self.config.layers)
        ]
        return [embeddings, *layers]

    def remap_vocabulary(self, rows: Tensor) -> None:
        for direction in (self.forwards, self.backwards):
            direction.embedding = remapped(direction.embedding, rows)
            direction.output = remapped(direction.output, rows)
            direction.bias = remapped(direction.bias, rows)
        self.config = self.config.model_copy(update={"vocabulary": len(rows)})

    def set_output_bias(self, log_frequencies: Tensor) -> None:
        with torch.no_grad():
            for direction in (self.forwards, self.backwards):
                direction.bias.copy_(log_frequencies)

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        outputs, carry = self.forwards(tokens.t(), carry)
        return F.linear(outputs[-1].transpose(0, 1).float(), self.forwards.output, self.forwards.bias), carry

    def special_tokens(self, pieces: list[int]) -> list[int]:
        # END stands at both ends of every document in the stream, whichever way it is read.
        return [END, *pieces, END]


FAMILY = ModelFamily(
    name="flair",
    config=FLAIRConfig,
    build=FLAIR,
    objective="causal",
    sampler="bidirectional_stream",
    tokenizers=("char",),
    presets={
        # Akbik et al. 2018, section 3.1; the published "fast" models are half as wide.
        "flair": {"embedding": 100, "hidden": 2048},
        "flair-fast": {"embedding": 100, "hidden": 1024},
    },
)
