"""Parts shared by Transformers: sizes, block, position embeddings, std of the initial weights.

Shape suffixes: B batch rows, T positions, D width, F inner width, P positions with an embedding.
"""

from typing import Annotated, Final, Literal, Self, TypeVar

from pydantic import Field, NonNegativeInt, PositiveFloat, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from components.core.errors import ConfigError
from components.models.base import ModelConfig, Rate, Size
from components.models.layers.attention import CrossAttention, Past, Rotation, SelfAttention
from components.models.layers.dropout import Dropout
from components.models.layers.linear import LayerNorm, Linear, RMSNorm

#: Exact GELU, its approximation by tanh (Hendrycks and Gimpel 2016), as in OpenAI's and ALBERT's code, max(0, x), or
#: x sigmoid(x).
Activation = Literal["gelu", "gelu_tanh", "relu", "silu"]

#: Inner width of the feed-forward layers; 0 for 4 D.
Feedforward = Annotated[int, Field(ge=0, exclude_if=lambda value: not value)]
#: Base of the angles of rotary positions.
Base = Annotated[float, Field(gt=1)]

#: Std of the initial weights of BERT and the GPTs.
INITIAL_STD: Final = 0.02


class TransformerConfig(ModelConfig):
    """Sizes and dropout rates; the inner width of the feed-forward layers is 4 D, if the family has no other.

    Attributes:
        width: D.
        layers: number of blocks.
        heads: number of attention heads; 0 for D / 64.
        positions: maximum length of a text in pieces, special pieces included.
        dropout: rate on the summed embeddings and on the output of each sub-layer.
        dropout_attention: rate on the attention weights.
        activation, norm_eps: activation of the feed-forward layers; epsilon of the layer norms.
    """

    width: Size = 256
    layers: Size = 4
    heads: NonNegativeInt = 0
    positions: Size = 512
    dropout: Rate = 0.1
    dropout_attention: Rate = 0.1
    activation: Activation = "gelu"
    norm_eps: PositiveFloat = 1e-12

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.width % self.head_count:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.head_count}")
        return self

    @property
    def head_count(self) -> int:
        return self.heads or max(1, self.width // 64)

    @property
    def inner(self) -> int:
        return 4 * self.width


Sized = TypeVar("Sized", bound=TransformerConfig)


def even_heads(config: Sized) -> Sized:
    """Check of a config with rotary positions, after the others."""
    if config.width // config.head_count % 2:
        raise ValueError(f"width {config.width} / heads {config.head_count} is odd; pairs of columns are rotated")
    return config


class Block(nn.Module):
    """Attention and a feed-forward layer with residual connections.

    Args:
        norm_first: normalise the input of each sub-layer (pre-norm; GPT-2) instead of the sum (post-norm; BERT, GPT).
        causal, band, bias: as for `SelfAttention`; `bias` of the norms and the feed-forward layers too.
    """

    def __init__(
        self,
        config: TransformerConfig,
        *,
        norm_first: bool = False,
        causal: bool = False,
        band: int = 0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        width = config.width
        self.norm_first = norm_first
        self.attention = SelfAttention(
            width, config.head_count, dropout=config.dropout_attention, causal=causal, band=band, bias=bias
        )
        self.attention_norm: nn.Module = LayerNorm(width, eps=config.norm_eps, bias=bias)
        self.expand = Linear(width, config.inner, bias=bias)
        self.contract = Linear(config.inner, width, bias=bias)
        self.norm: nn.Module = LayerNorm(width, eps=config.norm_eps, bias=bias)
        self.drop = Dropout(config.dropout)
        self.activation = config.activation

    def forward(self, x_BTD: Tensor, mask: Tensor | None = None, rotation: Rotation | None = None) -> Tensor:
        return self._after_attention(x_BTD, self.attention(self._before_attention(x_BTD), mask, rotation))

    def extend(self, x_BTD: Tensor, past: Past, rotation: Rotation | None = None) -> tuple[Tensor, Past]:
        attended_BTD, past = self.attention.extend(self._before_attention(x_BTD), past, rotation)
        return self._after_attention(x_BTD, attended_BTD), past

    def _before_attention(self, x_BTD: Tensor) -> Tensor:
        return self.attention_norm(x_BTD) if self.norm_first else x_BTD

    def _after_attention(self, x_BTD: Tensor, attended_BTD: Tensor) -> Tensor:
        x_BTD = x_BTD + self.drop(attended_BTD)
        if self.norm_first:
            return x_BTD + self.drop(self._feed(self.norm(x_BTD)))
        return self._after_norm(self.attention_norm(x_BTD))

    def _after_norm(self, x_BTD: Tensor) -> Tensor:
        return self.norm(x_BTD + self.drop(self._feed(x_BTD)))

    def _feed(self, x_BTD: Tensor) -> Tensor:
        return self.contract(activated(self.expand(x_BTD), self.activation))


class GatedBlock(Block):
    """Pre-norm without biases; the feed-forward layer is W_2 (activation(W_1 y) * W_g y) (Shazeer 2020).

    Args:
        causal, band: as for `SelfAttention`.
        rms: RMS norms in place of layer norms.
    """

    def __init__(self, config: TransformerConfig, *, causal: bool = False, band: int = 0, rms: bool = False) -> None:
        super().__init__(config, norm_first=True, causal=causal, band=band, bias=False)
        # W_1 and W_g.
        self.expand = Linear(config.width, 2 * config.inner, bias=False)
        if rms:
            self.attention_norm, self.norm = (RMSNorm(config.width, eps=config.norm_eps) for _ in range(2))

    def _feed(self, x_BTD: Tensor) -> Tensor:
        inner_BTF, gate_BTF = self.expand(x_BTD).chunk(2, dim=-1)
        return self.contract(activated(inner_BTF, self.activation) * gate_BTF)


class DecoderBlock(Block):
    """Causal attention, attention to an encoder, feed-forward, each with a norm (Vaswani et al. 2017, 3.1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config, causal=True)
        self.cross = CrossAttention(config.width, config.head_count, dropout=config.dropout_attention)
        self.cross_norm = LayerNorm(config.width, eps=config.norm_eps)

    def decode(self, x_BTD: Tensor, past: Past, read: Past, mask_BS: Tensor) -> tuple[Tensor, Past]:
        """The outputs after `past`, and the keys and values for the next call. `read`: `cross.read` of the encoder's
        states; `mask_BS`: True at the texts of the encoder."""
        attended_BTD, past = self.attention.extend(x_BTD, past)
        x_BTD = self.attention_norm(x_BTD + self.drop(attended_BTD))
        return self._after_norm(self.cross_norm(x_BTD + self.drop(self.cross(x_BTD, *read, mask_BS)))), past


def activated(x: Tensor, activation: Activation) -> Tensor:
    """x Phi(x), exact or approximated by tanh, max(0, x), or x sigmoid(x)."""
    if activation in ("relu", "silu"):
        return F.relu(x) if activation == "relu" else F.silu(x)
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
