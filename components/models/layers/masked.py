"""Base class of BERT, RoBERTa, ALBERT, MPNet and ModernBERT: a Transformer encoder that predicts masked pieces.

    x = LN(E_token + E_position + E_segment)      per block:  x = LN(x + attention(x));  x = LN(x + W_2 gelu(W_1 x))
    p(piece) = softmax(E_token LN(gelu(W x)) + b) at the masked positions

The output layer is computed at masked positions only.

Shape suffixes: B batch rows, T positions, R rows of W positions when packed, D width, E width of the embeddings, M
masked positions per row, N = B M, V vocabulary.
"""

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.base import Batch, Carry, LanguageModel, Losses, Sum, count_tensor
from components.models.layers.attention import Rotation
from components.models.layers.dropout import Dropout
from components.models.layers.linear import LayerNorm, Linear, compute_dtype
from components.models.layers.packing import packing
from components.models.layers.softmax import linear_cross_entropy
from components.models.layers.transformer import (
    INITIAL_STD,
    Block,
    Feedforward,
    TransformerConfig,
    activated,
    check_length,
    position_rows,
)
from components.tokenization.special import END, START

#: The mask of a block, or a bias of its attention (B, N, T, T), and the rotation of its positions.
Attended = tuple[Tensor | None, Rotation | None]


class MaskedConfig(TransformerConfig):
    """Keys of `TransformerConfig`; `whole_words`: all pieces of a word are masked together (Cui et al. 2019);
    `feedforward`: inner width of the feed-forward layers, 0 for 4 D."""

    whole_words: bool = False
    feedforward: Feedforward = 0

    @property
    def inner(self) -> int:
        return self.feedforward or 4 * self.width


class MaskedModel(LanguageModel):
    """Embeddings and the masked-language-model head; a family adds the blocks.

    `losses` reads `tokens` (B, T), `positions` and `targets` (B, M; columns and ids of the masked pieces); with a
    second objective, named by `pair_objective`, also `segments` (B, T) and its labels (B,). It has no carry.
    `embedding`: E; `segments`: number of segment embeddings; `plain`: no biases, and no embeddings of positions."""

    config: MaskedConfig
    blocks: nn.ModuleList
    pooler: nn.Linear
    pair_objective = ""
    position: nn.Parameter | None
    segment: nn.Parameter | None
    attention = "around"
    compiles = True
    piece_parameters = ("token", "bias")

    def __init__(self, config: MaskedConfig, *, embedding: int, segments: int = 0, plain: bool = False) -> None:
        super().__init__()
        self.config = config
        self.token = nn.Parameter(torch.empty(config.vocabulary, embedding))
        self.position = None if plain else nn.Parameter(torch.empty(config.positions, embedding))
        self.register_parameter("segment", nn.Parameter(torch.empty(segments, embedding)) if segments else None)
        self.embedding_norm = LayerNorm(embedding, eps=config.norm_eps, bias=not plain)
        self.drop = Dropout(config.dropout)
        self.transform = Linear(config.width, embedding, bias=not plain)
        self.transform_norm = LayerNorm(embedding, eps=config.norm_eps, bias=not plain)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))

    def initialise(self) -> None:
        """Normal with std 0.02, truncated at two std; biases zero (BERT's code, modeling.py: create_initializer)."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                _truncated(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for table in (self.token, self.position, self.segment):
            if table is not None:
                _truncated(table)

    def add_pair_objective(self) -> None:
        self.pooler = nn.Linear(self.config.width, self.config.width)
        setattr(self, self.pair_objective, nn.Linear(self.config.width, 2))

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        top_BTD = self.run(batch["tokens"], batch.get("segments"), None)[-1]
        sums = {"tokens": self.masked_loss(top_BTD, batch)}
        if name := self.pair_objective:
            sums[name] = pair_loss(top_BTD, self.pooler, getattr(self, name), batch[name])
        # The sum of objectives, each averaged over its own targets.
        means = [total / count for total, count in sums.values()]
        return Losses(sum(means[1:], means[0]), {key: (total.detach(), count) for key, (total, count) in sums.items()})

    def body(self) -> Iterable[Block]:
        """The blocks in the order of application; a shared block is repeated."""
        return cast(Iterable[Block], self.blocks)

    def enter(self, x_BTE: Tensor) -> Tensor:
        """Embeddings (B, T, E) to the first block's input (B, T, D)."""
        return x_BTE

    def masked_loss(self, top_BTD: Tensor, batch: Batch) -> Sum:
        """Summed negative log-likelihood of the predicted pieces, and their number N."""
        masked_BMD = top_BTD.gather(1, batch["positions"].unsqueeze(-1).expand(-1, -1, top_BTD.shape[-1]))
        targets_N = batch["targets"].reshape(-1)
        total = linear_cross_entropy(self._transformed(masked_BMD).flatten(0, 1), self.token, self.bias, targets_N)
        return total, count_tensor(len(targets_N), total)

    def hidden_states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        check_length(tokens.shape[1], self.config.positions)
        packed = packing(lengths, tokens.shape[1])
        if packed is None:
            mask_BT = torch.arange(tokens.shape[1], device=tokens.device) < lengths.unsqueeze(1)
            return self.run(tokens, segments, mask_BT[:, None, None, :])
        segments_RW = None if segments is None else packed.pack(segments)
        states = self.run(packed.pack(tokens), segments_RW, packed.mask, packed.positions)
        return [packed.unpack(state_RWD) for state_RWD in states]

    def summary(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        return hidden[:, 0]

    def embeddings(self) -> list[nn.Parameter]:
        tables = [table for table in (self.token, self.position, self.segment) if table is not None]
        return [*tables, *self.embedding_norm.parameters()]

    def layer_groups(self) -> list[list[nn.Parameter]]:
        # A shared block is one group.
        *groups, top = [list(block.parameters()) for block in dict.fromkeys(self.body())]
        return [self.embeddings(), *groups, [*top, *(self.sentence.parameters() if self.sentence else ())]]

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        top_BTD = self.run(tokens, None, None)[-1]
        return F.linear(self._transformed(top_BTD).to(self.token.dtype), self.token, self.bias), ()

    def piece_embedding(self) -> nn.Parameter:
        return self.token

    def special_tokens(self, pieces: list[int]) -> list[int]:
        return [START, *self.prompt, *pieces, END]

    @property
    def max_tokens(self) -> int:
        reading = self.config.reading
        return min(self.config.positions, (reading and reading.max_length) or self.config.positions)

    def run(
        self, tokens_BT: Tensor, segments_BT: Tensor | None, mask: Tensor | None, positions_BT: Tensor | None = None
    ) -> list[Tensor]:
        """Outputs (B, T, D) of the embeddings and of every block; default segments are 0, positions 0 .. T - 1."""
        x_BTE = F.embedding(tokens_BT, self.token)
        if self.position is not None:
            at = None if positions_BT is None else F.embedding(positions_BT, self.position)
            x_BTE = x_BTE + (position_rows(self.position, tokens_BT.shape[1]) if at is None else at)
        if self.segment is not None:
            x_BTE = x_BTE + (self.segment[0] if segments_BT is None else F.embedding(segments_BT, self.segment))
        # From here on in the dtype of the matrix products: every block ends in a norm, which bounds rounding errors.
        outputs = [self.enter(self.drop(self.embedding_norm(x_BTE.to(compute_dtype(x_BTE)))))]
        if positions_BT is None:
            positions_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)[None]
        for block, attended in zip(self.body(), cycle(self.attended(mask, positions_BT, outputs[0])), strict=False):
            outputs.append(block(outputs[-1], *attended))
        return outputs

    def attended(self, mask: Tensor | None, positions_BT: Tensor, x_BTD: Tensor) -> Sequence[Attended]:
        """What the blocks attend to, in turn. `positions_BT`: of each row, or (1, T) of all; `x_BTD`: their input."""
        return [(mask, None)]

    def _transformed(self, x: Tensor) -> Tensor:
        return self.transform_norm(activated(self.transform(x), self.config.activation))


def pair_loss(top_BTD: Tensor, pooler: nn.Linear, output: nn.Linear, labels_B: Tensor) -> Sum:
    """Cross entropy of softmax(output(tanh(pooler(x_first)))), summed over B; and B. Rows with the label -100 add 0,
    but count in B, so that a global batch has the same loss for any number of workers."""
    first_BD = torch.tanh(pooler(top_BTD[:, 0]))
    total = F.cross_entropy(output(first_BD).float(), labels_B, reduction="sum")
    return total, count_tensor(len(labels_B), total)


def _truncated(weight: Tensor) -> None:
    nn.init.trunc_normal_(weight, std=INITIAL_STD, a=-2 * INITIAL_STD, b=2 * INITIAL_STD)
