"""BERT: a bidirectional Transformer encoder, trained to predict masked pieces.

Devlin, Chang, Lee and Toutanova 2019 (BERT: Pre-training of Deep Bidirectional Transformers):

    x = LN(E_token + E_position + E_segment)      per block:  x = LN(x + attention(x));  x = LN(x + W_2 gelu(W_1 x))
    p(piece) = softmax(E_token LN(gelu(W x)) + b) at the masked positions      p(random next) from tanh(W x_first)

Shape suffixes: B batch rows, T positions, D width, M masked positions per row.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from torch import nn

from components.models.base import Batch, Carry, Losses, ModelFamily
from components.models.layers.masked import MaskedConfig, MaskedModel, pair_loss, total_loss
from components.models.layers.transformer import Block


class BERTConfig(MaskedConfig):
    """The config of BERT has the keys of `MaskedConfig`."""


class BERT(MaskedModel):
    """Masked language model with next-sentence prediction.

    `losses` reads `tokens`, `segments` (B, T), `positions`, `targets` (B, M; columns and ids of the masked pieces) and
    `next_sentence` (B,; 1 where the second part is random). It has no carry.
    """

    config: BERTConfig

    def __init__(self, config: BERTConfig) -> None:
        super().__init__(config, embedding=config.width, segments=2)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.pooler = nn.Linear(config.width, config.width)
        self.next_sentence = nn.Linear(config.width, 2)
        self.initialise()

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        top_BTD = self.run(batch["tokens"], batch["segments"], None)[-1]
        return total_loss(
            tokens=self.masked_loss(top_BTD, batch),
            next_sentence=pair_loss(top_BTD, self.pooler, self.next_sentence, batch["next_sentence"]),
        )

    def body(self) -> Iterable[Block]:
        return cast(Iterable[Block], self.blocks)


def _size(layers: int, width: int) -> dict[str, Any]:
    return {"layers": layers, "width": width, "heads": width // 64}


FAMILY = ModelFamily(
    name="bert",
    config=BERTConfig,
    build=BERT,
    objective="masked",
    sampler="sentence_pairs",
    tokenizers=("wordpiece", "unigram"),
    tiny={"width": 32, "layers": 2, "heads": 2, "positions": 24},
    presets={
        # The 24 miniatures: Turc et al. 2019, Well-Read Students Learn Better, table 1.
        **{f"{layers}x{width}": _size(layers, width) for layers in range(2, 13, 2) for width in (128, 256, 512, 768)},
        "base": _size(12, 768),
        "large": _size(24, 1024),
    },
)
