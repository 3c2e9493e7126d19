"""How a sentence encoder was trained to read a text: prompt, pooling and further layers, one vector per text.

Reimers and Gurevych 2019 (Sentence-BERT), and the modules of the library sentence-transformers.

Shape suffixes: B texts, T positions, D width of the hidden states, F width of the vector.
"""

from typing import Final, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.layers.linear import Linear

#: Poolings: the first position, the maximum, the mean, the sum divided by the root of the length, the mean with weight
#: t at position t = 1, 2, ..., and the last position.
Pool = Literal["first", "max", "mean", "root", "weighted", "last"]
ACTIVATIONS: Final = {
    "identity": nn.Identity, "tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU, "sigmoid": nn.Sigmoid,
}  # fmt: skip
NORMALIZE: Final = "normalize"


class Dense(BaseModel):
    """A linear layer and its activation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    inputs: PositiveInt
    outputs: PositiveInt
    bias: bool = True
    activation: Literal["identity", "tanh", "relu", "gelu", "sigmoid"] = "tanh"


class Reading(BaseModel):
    """The settings.

    Attributes:
        pooling: the vectors of several are concatenated.
        after: layers on the pooled vector, and scaling to length 1, in order.
        prompt: text before every text.
        pool_prompt: whether the prompt, and the special pieces before it, are pooled.
        max_length: maximum number of pieces, special pieces and prompt included; None: as many as the encoder reads.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pooling: tuple[Pool, ...] = Field(default=("mean",), min_length=1)
    after: tuple[Dense | Literal["normalize"], ...] = ()
    prompt: str = ""
    pool_prompt: bool = True
    max_length: PositiveInt | None = None


class TextVectors(nn.Module):
    """Hidden states and lengths of whole texts -> (B, F) float32."""

    def __init__(self, reading: Reading) -> None:
        super().__init__()
        self.reading = reading
        dense = [layer for layer in reading.after if isinstance(layer, Dense)]
        self.dense = nn.ModuleList(Linear(layer.inputs, layer.outputs, bias=layer.bias) for layer in dense)

    def forward(self, hidden_BTD: Tensor, lengths: Tensor, *, lead: int, scaled: bool = True) -> Tensor:
        """`lead`: pieces before the text, which are left out unless `pool_prompt`; without `scaled`, the vectors keep
        their length at the end."""
        first = 0 if self.reading.pool_prompt else lead
        x = torch.cat([pooled(hidden_BTD, lengths, pool, first=first) for pool in self.reading.pooling], dim=1)
        dense = iter(self.dense)
        for index, layer in enumerate(self.reading.after):
            if isinstance(layer, Dense):
                x = ACTIVATIONS[layer.activation]()(next(dense)(x).float())
            elif scaled or index < len(self.reading.after) - 1:
                x = F.normalize(x, dim=1)
        return x


def pooled(hidden_BTD: Tensor, lengths: Tensor, pool: Pool, *, first: int = 0) -> Tensor:
    """(B, D), at least float32: the states of each text from position `first` on, without padding, as one vector."""
    hidden_BTD = hidden_BTD.to(torch.promote_types(hidden_BTD.dtype, torch.float32))
    if pool == "first":
        return hidden_BTD[:, first]
    if pool == "last":
        return hidden_BTD[torch.arange(len(hidden_BTD), device=hidden_BTD.device), lengths - 1]
    at_T = torch.arange(hidden_BTD.shape[1], device=hidden_BTD.device)
    inside_BT = (at_T < lengths[:, None]) & (at_T >= first)
    if pool == "max":
        return hidden_BTD.masked_fill(~inside_BT[..., None], float("-inf")).amax(1)
    weights_BT = inside_BT * (at_T + 1) if pool == "weighted" else inside_BT
    total_BD = hidden_BTD.masked_fill(~inside_BT[..., None], 0)
    total_BD = (total_BD * weights_BT[..., None]).sum(1) if pool == "weighted" else total_BD.sum(1)
    count_B1 = weights_BT.sum(1, keepdim=True)
    return total_BD / (count_B1.float().sqrt() if pool == "root" else count_B1)
