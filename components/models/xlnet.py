"""XLNet: a language model of pieces in a drawn order, so that every piece learns from both sides.

Yang, Dai, Yang, Carbonell, Salakhutdinov and Le 2019 (XLNet: Generalized Autoregressive Pretraining for Language
Understanding), with the body of Transformer-XL (components.models.layers.relative). For an order z of the places:

    h_{z_t}^n = block(q = h_{z_t}^{n-1}, kv = h_{z <= t}^{n-1})    content: knows its piece;  h^0 = E[x]
    g_{z_t}^n = block(q = g_{z_t}^{n-1}, kv = h_{z < t}^{n-1})     query: knows its place only;  g^0 = w
    p(x_{z_t} | x_{z < t}) = softmax(E g_{z_t} + b)                for the last places of z only (a sixth of them)

Both streams run through the same weights in one pass, the query stream only where a piece is predicted. The order
belongs to attention alone: what a query sees is decided by comparing two numbers (`order`), never by moving pieces.

Shape suffixes: B batch rows, T positions, R rows of W places when packed, M predicted positions a row, Q = T + M
queries, S memory and segment, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from components.models.base import Batch, Carry, LanguageModel, Losses, ModelFamily, Sum, counted
from components.models.layers.adaptive import TiedVocabulary
from components.models.layers.dropout import Dropout
from components.models.layers.packing import packing
from components.models.layers.precision import compute_dtype
from components.models.layers.relative import RelativeBlock, RelativeConfig, Scope, distances, sinusoids
from components.tokenization.special import END, MASK, START


class XLNetConfig(RelativeConfig):
    """Keys of `RelativeConfig`, and one of the batches.

    Attributes:
        backward_rows: whether every second row of a pretraining batch is read from its end (the paper's "bidirectional
            data input pipeline").
    """

    backward_rows: bool = False


class XLNet(LanguageModel):
    """Permutation language model with memory.

    `losses` reads, all (B, T) but the last three:
        tokens: the pieces.
        segments: numbers of segments; only whether two are equal matters. The memory counts as segment 0.
        order: a query sees a key of smaller order; a piece sees itself and its equals as well.
        positions, targets: (B, M) the places that are predicted and what stands there.
        backward: (B,) 1 for rows that are read from their end; absent if there are none.
    Its carry is each block's input (B, m, D) at the first `remembered(T)` pieces, which are where the next segment's
    text begins. `predict` carries all of them.
    """

    config: XLNetConfig
    attention = "around"
    masks_texts = True

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.config = config
        self.pieces = TiedVocabulary(config.vocabulary, config.width)
        self.unknown = nn.Parameter(torch.empty(config.width))
        self.blocks = nn.ModuleList(
            RelativeBlock(config, activation="gelu", eps=1e-12, segments=True) for _ in range(config.layers)
        )
        self.drop = Dropout(config.dropout)
        # Deviation 0.02 everywhere but for biases and norms (XLNet's code, --init_std).
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1 or name == "unknown":
                nn.init.normal_(parameter, std=0.02)

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        segments_BT, order_BT, places_BM = batch["segments"], batch["order"], batch["positions"]
        states, top_BMD = self._run(
            batch["tokens"], segments_BT, order_BT, carry, places_BM=places_BM, backward=batch.get("backward")
        )
        total = self.pieces.loss_sum(self.drop(top_BMD).flatten(0, 1), batch["targets"].reshape(-1))
        count = batch["targets"].numel()
        return Losses(
            loss=total / count,
            sums={"tokens": (total.detach(), torch.tensor(count, device=total.device))},
            carry=self._remembered(carry, states, remembered(segments_BT.shape[1])),
        )

    def hidden_states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        # The segments are those of pretraining, which the pieces themselves tell: the class piece is one of its own.
        segments_BT, packed = _segments(tokens), packing(lengths, tokens.shape[1])
        if packed is None:
            padding_BT = torch.arange(tokens.shape[1], device=tokens.device) >= lengths.unsqueeze(1)
            states, top_BTD = self._run(tokens, segments_BT, padding_BT.long(), ())
            return [*states, top_BTD]
        tokens_RW, segments_RW = packed.pack(tokens), packed.pack(segments_BT)
        states, top_RWD = self._run(tokens_RW, segments_RW, torch.zeros_like(tokens_RW), (), mask=packed.mask)
        return [packed.unpack(state_RWD) for state_RWD in (*states, top_RWD)]

    def text_loss(self, batch: Batch, hidden: Sequence[Tensor]) -> Sum:
        # A second pass, in an order of its own: what is not predicted comes first, padding after everything.
        tokens, places_BM, targets_BM = batch["tokens"], batch["masked_positions"], batch["masked_targets"]
        real_BM = targets_BM >= 0
        predicted = places_BM.shape[1]
        order_BT = (torch.arange(tokens.shape[1], device=tokens.device) >= batch["lengths"].unsqueeze(1)).long()
        order_BT *= predicted + 1
        ranks_BM = torch.arange(1, predicted + 1, device=tokens.device).expand_as(places_BM)
        # Columns that only fill a row up name a place that is predicted, with rank 0: a place's greatest rank holds.
        order_BT = order_BT.scatter_reduce(1, places_BM, ranks_BM * real_BM, "amax")
        _, top_BMD = self._run(tokens, _segments(tokens), order_BT, (), places_BM=places_BM)
        targets_N = targets_BM[real_BM]
        return counted(self.pieces.loss_sum(self.drop(top_BMD)[real_BM], targets_N), targets_N)

    def summary(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), lengths - 1]

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [self.pieces.embedding_parameters(), *(list(block.parameters()) for block in self.blocks)]

    def remap_vocabulary(self, rows: Tensor) -> None:
        self.pieces = self.pieces.remapped(rows)
        self.config = self.config.model_copy(update={"vocabulary": len(rows)})

    def set_output_bias(self, log_frequencies: Tensor) -> None:
        self.pieces.set_bias(log_frequencies)

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        # Each [MASK] is a place whose piece nobody sees; all are predicted from what is left.
        order_BT = (tokens == MASK).long()
        places_BT = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        states, top_BTD = self._run(tokens, _segments(tokens), order_BT, carry, places_BM=places_BT)
        return self.pieces.logits(self.drop(top_BTD)), self._remembered(carry, states, tokens.shape[1])

    def piece_embedding(self) -> nn.Parameter:
        return self.pieces.tables[0]

    def special_tokens(self, pieces: list[int]) -> list[int]:
        # At the end, as in pretraining: the class piece has read everything before it.
        return [*pieces, END, START]

    def _run(
        self,
        tokens_BT: Tensor,
        segments_BT: Tensor,
        order_BT: Tensor,
        carry: Carry,
        *,
        places_BM: Tensor | None = None,
        backward: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[list[Tensor], Tensor]:
        """Both streams; a `mask` (B, 1, T, T) is True where a piece may be seen, if the order lets it.

        Returns:
            The content stream's input to every block, each (B, T, D); and what comes out on top: (B, M, D) of the query
            stream where there are `places_BM`, else (B, T, D) of the content stream.
        """
        rows, length = tokens_BT.shape
        x_BTD = self.pieces.embed(tokens_BT)
        x_BTD = self.drop(x_BTD.to(compute_dtype(x_BTD)))
        x_BQD = x_BTD
        if places_BM is not None:
            unknown_BMD = self.unknown.to(x_BTD.dtype).expand(rows, places_BM.shape[1], -1)
            x_BQD = torch.cat([x_BTD, self.drop(unknown_BMD)], dim=1)
        scope = self._scope(segments_BT, order_BT, carry[0].shape[1] if carry else 0, places_BM, backward).within(mask)
        states = []
        for index, block in enumerate(cast(Iterable[RelativeBlock], self.blocks)):
            state_BTD = x_BQD[:, :length]
            states.append(state_BTD)
            source_BSD = torch.cat([carry[index].to(x_BQD.dtype), state_BTD], dim=1) if carry else state_BTD
            if places_BM is not None and index + 1 == len(self.blocks):
                # Nothing reads the content stream above its last keys.
                x_BQD, scope = x_BQD[:, length:], scope.further()
            x_BQD = block(x_BQD, block.keys(source_BSD), scope)
        return states, x_BQD

    def _scope(
        self,
        segments_BT: Tensor,
        order_BT: Tensor,
        memory: int,
        places_BM: Tensor | None,
        backward: Tensor | None,
    ) -> Scope:
        rows, length = segments_BT.shape
        keys = memory + length
        distances_P = distances(length, keys, ahead=True, clamp=self.config.clamp, device=segments_BT.device)
        if backward is not None:
            distances_P = torch.stack([distances_P, -distances_P])
        encoding = sinusoids(distances_P.flatten(), self.config.width).unflatten(0, distances_P.shape)
        # A piece sees those before it in the order and itself; a place that is predicted only those before it.
        below_BQ, segments_BQ = order_BT + 1, segments_BT
        if places_BM is not None:
            below_BQ = torch.cat([below_BQ, order_BT.gather(1, places_BM)], dim=1)
            segments_BQ = torch.cat([segments_BT, segments_BT.gather(1, places_BM)], dim=1)
        remembered_Bm = order_BT.new_zeros(rows, memory)
        order_BS = torch.cat([remembered_Bm - 1, order_BT], dim=1)
        segments_BS = torch.cat([remembered_Bm, segments_BT], dim=1)
        return Scope(
            length=length,
            encoding=self.drop(encoding),
            hidden=order_BS.unsqueeze(1) >= below_BQ.unsqueeze(2),
            places=places_BM,
            differs=segments_BS.unsqueeze(1) != segments_BQ.unsqueeze(2),
            backward=backward,
        )

    def _remembered(self, carry: Carry, states: list[Tensor], kept: int) -> Carry:
        """The newest `memory` of the memory and of the first `kept` positions, without gradient; () for none."""
        if not self.config.memory:
            return ()
        joined = (
            torch.cat([carry[index].to(state.dtype), state[:, :kept]], dim=1) if carry else state[:, :kept]
            for index, state in enumerate(states)
        )
        return tuple(state[:, max(0, state.shape[1] - self.config.memory) :].detach() for state in joined)


def remembered(window: int) -> int:
    """How many pieces at the beginning of a pretraining window are plain text that the next window goes on from: half
    of it, or what the three special pieces and two more leave."""
    return min(window // 2, window - 5)


def _segments(tokens_BT: Tensor) -> Tensor:
    """Segments of `a [SEP] b [SEP] [CLS]`: 0 for a, 1 for b, 2 for the end; every [SEP] belongs to what it ends."""
    ends_BT = (tokens_BT == END).long()
    return ends_BT.cumsum(1) - ends_BT


FAMILY = ModelFamily(
    name="xlnet",
    config=XLNetConfig,
    build=XLNet,
    objective="permuted",
    sampler="permutation",
    tokenizers=("wordpiece", "unigram", "bpe"),
    presets={
        # Yang et al. 2019, appendix A.4: BERT's sizes, and the memory of the published pretraining.
        "xlnet-base": {"layers": 12, "width": 768, "heads": 12, "memory": 384},
        "xlnet-large": {"layers": 24, "width": 1024, "heads": 16, "memory": 384},
    },
)
