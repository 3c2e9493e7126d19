"""ALBERT: BERT with one block shared by all layers, narrower embeddings, and sentence-order prediction.

Lan et al. 2020 (ALBERT: A Lite BERT for Self-supervised Learning of Language Representations), section 3.1:

    x = W_in LN(E_token + E_position + E_segment) + b_in, E of width 128      the same block, L times
    p(piece) = softmax(E_token LN(gelu(W x)) + b) at the masked positions     p(swapped) from tanh(W x_first)

Shape suffixes: B batch rows, T positions, D width, E width of the embeddings, M masked positions per row.
"""

from collections.abc import Iterable

from torch import Tensor, nn

from components.models.base import ModelFamily, Size
from components.models.layers.linear import Linear
from components.models.layers.masked import MaskedConfig, MaskedModel
from components.models.layers.transformer import Activation, Block


class ALBERTConfig(MaskedConfig):
    """Keys of `MaskedConfig`, and:

    Attributes:
        embedding: E.
        layers: number of times that the block is applied.
    """

    embedding: Size = 128
    activation: Activation = "gelu_tanh"


class ALBERT(MaskedModel):
    """Masked language model with sentence-order prediction (1 where the two parts are swapped)."""

    config: ALBERTConfig
    pair_objective = "sentence_order"

    def __init__(self, config: ALBERTConfig) -> None:
        super().__init__(config, embedding=config.embedding, segments=2)
        self.project = Linear(config.embedding, config.width)
        self.block = Block(config)
        self.add_pair_objective()
        self.initialise()

    def body(self) -> Iterable[Block]:
        return (self.block for _ in range(self.config.layers))

    def enter(self, x_BTE: Tensor) -> Tensor:
        return self.project(x_BTE)

    def embeddings(self) -> list[nn.Parameter]:
        return [*super().embeddings(), *self.project.parameters()]


#: The second version of the published models is trained without dropout.
_V2 = {"embedding": 128, "dropout": 0.0, "dropout_attention": 0.0}

FAMILY = ModelFamily(
    name="albert",
    config=ALBERTConfig,
    build=ALBERT,
    objective="masked",
    sampler="sentence_order",
    tokenizers=("wordpiece", "unigram"),
    tiny={"width": 32, "embedding": 16, "layers": 2, "heads": 2, "positions": 24},
    presets={
        # Lan et al. 2020, table 1.
        "base": {"layers": 12, "width": 768, "heads": 12, **_V2},
        "large": {"layers": 24, "width": 1024, "heads": 16, **_V2},
        "xlarge": {"layers": 24, "width": 2048, "heads": 16, **_V2},
        "xxlarge": {"layers": 12, "width": 4096, "heads": 64, **_V2},
    },
)
