"""XLNet: a permutation language model, with context from both sides of every piece.

Yang, Dai, Yang, Carbonell, Salakhutdinov and Le 2019 (XLNet: Generalized Autoregressive Pretraining for Language
Understanding), with the body of Transformer-XL (components.models.layers.relative). For an order z of the positions:

    h_{z_t}^n = block(q = h_{z_t}^{n-1}, kv = h_{z <= t}^{n-1})    content stream: sees its own piece;  h^0 = E[x]
    g_{z_t}^n = block(q = g_{z_t}^{n-1}, kv = h_{z < t}^{n-1})     query stream: knows its position only;  g^0 = w
    p(x_{z_t} | x_{z < t}) = softmax(E g_{z_t} + b)                for the last sixth of z only

Both streams share their weights and are computed in one pass, the query stream only at predicted positions. The order
is implemented by the attention mask, which compares numbers (`order`); pieces are not permuted.

Shape suffixes: B batch rows, T positions, R rows of W positions when packed, M predicted positions per row, Q = T + M
queries, S memory and segment, D width.
"""

from collections.abc import Iterable
from typing import cast

import torch
from torch import Tensor, nn

from components.models.base import Batch, Carry, Losses, ModelFamily, count_tensor
from components.models.layers.adaptive import TiedVocabulary
from components.models.layers.dropout import Dropout
from components.models.layers.linear import compute_dtype
from components.models.layers.packing import packing
from components.models.layers.relative import RelativeBlock, RelativeConfig, RelativeModel, Scope, distances, sinusoids
from components.tokenization.special import END, MASK, START


class XLNetConfig(RelativeConfig):
    """Keys of `RelativeConfig`, and:

    Attributes:
        backward_rows: whether every second row of a pretraining batch is read from its end (the paper's "bidirectional
            data input pipeline").
    """

    backward_rows: bool = False


class XLNet(RelativeModel):
    """Permutation language model with memory.

    `losses` reads, (B, T) unless stated otherwise:
        tokens: the pieces.
        segments: segment of each piece; only equality matters. The memory is segment 0.
        order: a query attends to keys of smaller order; in the content stream also to keys of equal order.
        positions, targets: (B, M) the predicted positions and their pieces.
        backward: (B,) 1 for rows that are read from their end; absent if there are none.
    Its carry is each block's input (B, m, D) at the first `remembered(T)` pieces, where the next segment continues;
    the carry of `predict` contains all pieces."""

    config: XLNetConfig
    attention = "around"
    compiles = True

    def __init__(self, config: XLNetConfig) -> None:
        super().__init__()
        self.config = config
        self.pieces = TiedVocabulary(config.vocabulary, config.width)
        self.unknown = nn.Parameter(torch.empty(config.width))
        self.blocks = nn.ModuleList(
            RelativeBlock(config, activation="gelu", eps=1e-12, segments=True) for _ in range(config.layers)
        )
        self.drop = Dropout(config.dropout)
        # Std 0.02 except for biases and norms (XLNet's code, --init_std).
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1 or name == "unknown":
                nn.init.normal_(parameter, std=0.02)

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        segments_BT, order_BT, positions_BM = batch["segments"], batch["order"], batch["positions"]
        states, top_BMD = self._run(
            batch["tokens"], segments_BT, order_BT, carry, positions_BM=positions_BM, backward=batch.get("backward")
        )
        total = self.pieces.loss_sum(self.drop(top_BMD).flatten(0, 1), batch["targets"].reshape(-1))
        count = batch["targets"].numel()
        return Losses(
            loss=total / count,
            sums={"tokens": (total.detach(), count_tensor(count, total))},
            carry=self._remembered(carry, states, remembered(segments_BT.shape[1])),
        )

    def hidden_states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        # As in pretraining, segments follow from the pieces ([SEP]); [CLS] is a segment of its own.
        segments_BT, packed = _segments(tokens), packing(lengths, tokens.shape[1])
        if packed is None:
            padding_BT = torch.arange(tokens.shape[1], device=tokens.device) >= lengths.unsqueeze(1)
            states, top_BTD = self._run(tokens, segments_BT, padding_BT.long(), ())
            return [*states, top_BTD]
        tokens_RW, segments_RW = packed.pack(tokens), packed.pack(segments_BT)
        states, top_RWD = self._run(tokens_RW, segments_RW, torch.zeros_like(tokens_RW), (), mask=packed.mask)
        return [packed.unpack(state_RWD) for state_RWD in (*states, top_RWD)]

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [self.pieces.embedding_parameters(), *(list(block.parameters()) for block in self.blocks)]

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        # [MASK] pieces have the highest order, so they are predicted from the others only.
        order_BT = (tokens == MASK).long()
        positions_BT = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        states, top_BTD = self._run(tokens, _segments(tokens), order_BT, carry, positions_BM=positions_BT)
        return self.pieces.logits(self.drop(top_BTD)), self._remembered(carry, states, tokens.shape[1])

    def special_tokens(self, pieces: list[int]) -> list[int]:
        # The class piece is at the end, as in pretraining.
        return [*pieces, END, START]

    def _run(
        self,
        tokens_BT: Tensor,
        segments_BT: Tensor,
        order_BT: Tensor,
        carry: Carry,
        *,
        positions_BM: Tensor | None = None,
        backward: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[list[Tensor], Tensor]:
        """Both streams; `mask` (B, 1, T, T) is True where attention is allowed, combined with the order."""
        rows, length = tokens_BT.shape
        x_BTD = self.pieces.embed(tokens_BT)
        x_BTD = self.drop(x_BTD.to(compute_dtype(x_BTD)))
        x_BQD = x_BTD
        if positions_BM is not None:
            unknown_BMD = self.unknown.to(x_BTD.dtype).expand(rows, positions_BM.shape[1], -1)
            x_BQD = torch.cat([x_BTD, self.drop(unknown_BMD)], dim=1)
        memory = carry[0].shape[1] if carry else 0
        scope = self._scope(segments_BT, order_BT, memory, positions_BM, backward).within(mask)
        states = []
        for index, block in enumerate(cast(Iterable[RelativeBlock], self.blocks)):
            state_BTD = x_BQD[:, :length]
            states.append(state_BTD)
            source_BSD = torch.cat([carry[index].to(x_BQD.dtype), state_BTD], dim=1) if carry else state_BTD
            if positions_BM is not None and index + 1 == len(self.blocks):
                # The content stream's output of the last block is not used.
                x_BQD, scope = x_BQD[:, length:], scope.further()
            x_BQD = block(x_BQD, block.keys(source_BSD), scope)
        return states, x_BQD

    def _scope(
        self, segments_BT: Tensor, order_BT: Tensor, memory: int, positions_BM: Tensor | None, backward: Tensor | None
    ) -> Scope:
        rows, length = segments_BT.shape
        keys = memory + length
        distances_P = distances(length, keys, ahead=True, clamp=self.config.clamp, device=segments_BT.device)
        if backward is not None:
            distances_P = torch.stack([distances_P, -distances_P])
        encoding = sinusoids(distances_P.flatten(), self.config.width).unflatten(0, distances_P.shape)
        # A piece attends to earlier ones in the order and to itself; a predicted position to earlier ones only.
        below_BQ, segments_BQ = order_BT + 1, segments_BT
        if positions_BM is not None:
            below_BQ = torch.cat([below_BQ, order_BT.gather(1, positions_BM)], dim=1)
            segments_BQ = torch.cat([segments_BT, segments_BT.gather(1, positions_BM)], dim=1)
        remembered_Bm = order_BT.new_zeros(rows, memory)
        order_BS = torch.cat([remembered_Bm - 1, order_BT], dim=1)
        segments_BS = torch.cat([remembered_Bm, segments_BT], dim=1)
        return Scope(
            length=length,
            encoding=self.drop(encoding),
            hidden=order_BS.unsqueeze(1) >= below_BQ.unsqueeze(2),
            positions=positions_BM,
            differs=segments_BS.unsqueeze(1) != segments_BQ.unsqueeze(2),
            backward=backward,
        )

    def _remembered(self, carry: Carry, states: list[Tensor], kept: int) -> Carry:
        if not self.config.memory:
            return ()
        joined = (
            torch.cat([carry[index].to(state.dtype), state[:, :kept]], dim=1) if carry else state[:, :kept]
            for index, state in enumerate(states)
        )
        return tuple(state[:, max(0, state.shape[1] - self.config.memory) :].detach() for state in joined)


def remembered(window: int) -> int:
    """Number of pieces at the beginning of a pretraining window after which the next window continues: half of it, or
    all but five (three special pieces and two pieces of text)."""
    return min(window // 2, window - 5)


def _segments(tokens_BT: Tensor) -> Tensor:
    """Segments of `a [SEP] b [SEP] [CLS]`: 0 for a, 1 for b, 2 for [CLS]; a [SEP] belongs to the text before it."""
    ends_BT = (tokens_BT == END).long()
    return ends_BT.cumsum(1) - ends_BT


FAMILY = ModelFamily(
    name="xlnet",
    config=XLNetConfig,
    build=XLNet,
    objective="permuted",
    sampler="permutation",
    tokenizers=("wordpiece", "unigram", "bpe"),
    tiny={"width": 32, "layers": 2, "heads": 2, "memory": 5, "backward_rows": True},
    presets={
        # Yang et al. 2019, appendix A.4: BERT's sizes, and the memory of the published pretraining.
        "xlnet-base": {"layers": 12, "width": 768, "heads": 12, "memory": 384},
        "xlnet-large": {"layers": 24, "width": 1024, "heads": 16, "memory": 384},
    },
)
