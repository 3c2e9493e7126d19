"""BERT: a bidirectional Transformer encoder, trained to predict masked pieces.

Devlin, Chang, Lee and Toutanova 2019 (BERT: Pre-training of Deep Bidirectional Transformers):

    x = LN(E_token + E_position + E_segment)      per block:  x = LN(x + attention(x));  x = LN(x + W_2 gelu(W_1 x))
    p(piece) = softmax(E_token LN(gelu(W x)) + b) at the masked positions      p(random next) from tanh(W x_first)

Shape suffixes: B batch rows, T positions, D width, M masked positions per row.
"""

from typing import Any

from torch import nn

from components.models.base import ModelFamily
from components.models.layers.masked import MaskedConfig, MaskedModel
from components.models.layers.transformer import Block


class BERTConfig(MaskedConfig):
    """The config of BERT has the keys of `MaskedConfig`."""


class BERT(MaskedModel):
    """Masked language model with next-sentence prediction (1 where the second part is random)."""

    config: BERTConfig
    pair_objective = "next_sentence"

    def __init__(self, config: BERTConfig) -> None:
        super().__init__(config, embedding=config.width, segments=2)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.add_pair_objective()
        self.initialise()


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
