"""Parts shared by Transformers: sizes, block, position embeddings, std of the initial weights.

Shape suffixes: B batch rows, T positions, D width, P positions with an embedding.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from components.errors import ConfigError
from components.models.base import ModelConfig, Rate, Size
from components.models.layers.attention import Mask, Past, SelfAttention, Values
from components.models.layers.dropout import Dropout
from components.models.layers.linear import Linear
from components.models.layers.norm import LayerNorm
from components.models.layers.rotary import Rotation

#: Exact GELU, or its approximation by tanh (Hendrycks and Gimpel 2016), as in OpenAI's and ALBERT's code.
Activation = Literal["gelu", "gelu_tanh"]

#: Std of the initial weights of BERT and the GPTs.
INITIAL_STD: Final = 0.02


class TransformerConfig(ModelConfig):
    """Sizes and dropout rates; the inner width of the feed-forward layers is 4 D.

    Attributes:
        width: D.
        layers: number of blocks.
        heads: number of attention heads; 0 for D / 64.
        positions: maximum length of a text in pieces, special pieces included.
        dropout: rate on the summed embeddings and on the output of each sub-layer.
        dropout_attention: rate on the attention weights.
        activation: activation of the feed-forward layers.
        norm_eps: epsilon of the layer norms.
        bigrams: number of hashed bigram embeddings that are added to the embeddings; 0: none.
        value_embeddings: number of tables whose rows of the pieces are added to the values of attention, each in one of
            the first and one of the last blocks (`components.models.layers.values`); 0: none.
    """

    width: Size = 256
    layers: Size = 4
    heads: Annotated[int, Field(ge=0)] = 0
    positions: Size = 512
    dropout: Rate = 0.1
    dropout_attention: Rate = 0.1
    activation: Activation = "gelu"
    norm_eps: Annotated[float, Field(gt=0)] = 1e-12
    bigrams: Annotated[int, Field(ge=0)] = 0
    value_embeddings: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.width % self.head_count:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.head_count}")
        return self

    @model_validator(mode="after")
    def _blocks_for_the_tables(self) -> Self:
        if 2 * self.value_embeddings > self.layers:
            raise ValueError(
                f"value_embeddings {self.value_embeddings} needs {2 * self.value_embeddings} layers: each table is "
                f"used by two blocks; layers is {self.layers}"
            )
        return self

    @property
    def head_count(self) -> int:
        return self.heads or max(1, self.width // 64)


class Block(nn.Module):
    """Attention and a feed-forward layer with residual connections.

    With `glu` the feed-forward layer is W_2 (gelu(W_1 x) * V x) (GEGLU; Shazeer 2020, GLU Variants Improve
    Transformer), of an inner width near 8/3 D instead of 4 D, so that it has about as many weights.

    Args:
        norm_first: normalise the input of each sub-layer (pre-norm; GPT-2) instead of the sum (post-norm; BERT, GPT).
        causal, band: as for `SelfAttention`.
        glu: whether the feed-forward layer is gated.
        biases: whether linear layers and norms have biases.
    """

    def __init__(
        self, config: TransformerConfig, *, norm_first: bool = False, causal: bool = False, band: int = 0,
        glu: bool = False, biases: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        width = config.width
        self.norm_first, self.glu = norm_first, glu
        self.attention = SelfAttention(
            width, config.head_count, dropout=config.dropout_attention, causal=causal, band=band, biases=biases
        )
        self.attention_norm = LayerNorm(width, eps=config.norm_eps, bias=biases)
        inner = gated_width(width) if glu else 4 * width
        # W_1, and V below it.
        self.expand = Linear(width, 2 * inner if glu else inner, bias=biases)
        #: As for `SelfAttention`.
        self.stacked = {"expand.weight": 2} if glu else {}
        self.contract = Linear(inner, width, bias=biases)
        self.norm = LayerNorm(width, eps=config.norm_eps, bias=biases)
        self.drop = Dropout(config.dropout)
        self.activation = config.activation

    def forward(
        self,
        x_BTD: Tensor,
        mask: Mask | None = None,
        rotation: Rotation | None = None,
        values: Values | None = None,
    ) -> Tensor:
        attended_BTD = self.attention(self._before_attention(x_BTD), mask, rotation, values)
        return self._after_attention(x_BTD, attended_BTD)

    def extend(self, x_BTD: Tensor, past: Past, values: Values | None = None) -> tuple[Tensor, Past]:
        """`forward` at the positions after those of `past`."""
        attended_BTD, past = self.attention.extend(self._before_attention(x_BTD), past, values)
        return self._after_attention(x_BTD, attended_BTD), past

    def _before_attention(self, x_BTD: Tensor) -> Tensor:
        return self.attention_norm(x_BTD) if self.norm_first else x_BTD

    def _after_attention(self, x_BTD: Tensor, attended_BTD: Tensor) -> Tensor:
        x_BTD = x_BTD + self.drop(attended_BTD)
        if self.norm_first:
            return x_BTD + self.drop(self._feed(self.norm(x_BTD)))
        x_BTD = self.attention_norm(x_BTD)
        normed_BTD: Tensor = self.norm(x_BTD + self.drop(self._feed(x_BTD)))
        return normed_BTD

    def _feed(self, x_BTD: Tensor) -> Tensor:
        inner = self.expand(x_BTD)
        if self.glu:
            gate, value = inner.chunk(2, -1)
            inner = gelu(gate, self.activation) * value
        else:
            inner = gelu(inner, self.activation)
        fed_BTD: Tensor = self.contract(inner)
        return fed_BTD


def gated_width(width: int) -> int:
    """Inner width of a gated feed-forward layer: the multiple of 32 nearest to 8/3 D."""
    return 32 * max(1, round(width / 12))


def gelu(x: Tensor, activation: Activation) -> Tensor:
    """x Phi(x), exact or approximated by tanh."""
    return F.gelu(x, approximate="none" if activation == "gelu" else "tanh")


def position_rows(table_PD: Tensor, length: int, *, start: int = 0) -> Tensor:
    """The embeddings (T, D) of positions `start` .. `start + length - 1`.

    Raises:
        ConfigError: the model has fewer positions.
    """
    check_length(start + length, len(table_PD))
    return table_PD[start : start + length]


def check_length(length: int, positions: int) -> None:
    """Check the length of a text in pieces.

    Raises:
        ConfigError: the model has fewer positions.
    """
    if length > positions:
        raise ConfigError(
            f"a text of {length} pieces is longer than the model's {positions} positions; shorten it, or train a model "
            "with more (model.positions)"
        )
