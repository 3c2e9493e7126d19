"""Llama: GPT-2 with rotary positions, RMS norms and gated feed-forward layers, without biases.

Touvron et al. 2023 (LLaMA: Open and Efficient Foundation Language Models), section 2.2; rotary positions: Su et al.
2021 (RoFormer). Keys and values that several heads share (Ainslie et al. 2023) are read as those of each head.

    x = E_token      per block:  x = x + attention(RMS(x));  x = x + W_2 (silu(W_1 y) * W_g y), y = RMS(x)
    p(w_{t+1}) = softmax(E_token RMS(x_t) + b)

Shape suffixes: B batch rows, T positions, D width.
"""

from typing import Any

import torch
from pydantic import model_validator
from torch import Tensor, nn

from components.models.base import ModelFamily
from components.models.gpt import GPT, GPTConfig
from components.models.layers.attention import Rotation, rotation_of
from components.models.layers.linear import RMSNorm
from components.models.layers.transformer import Activation, Base, Feedforward, GatedBlock, check_length, even_heads


class LlamaConfig(GPTConfig):
    """Keys of `GPTConfig`, and `base` of the angles of the positions; norms are before each sub-layer."""

    activation: Activation = "silu"
    feedforward: Feedforward = 0
    base: Base = 10_000.0

    @model_validator(mode="after")
    def _norm_first(self) -> "LlamaConfig":
        if self.norm != "pre":
            raise ValueError("norm is 'post'; Llama has norms before each sub-layer")
        return even_heads(self)

    @property
    def inner(self) -> int:
        return self.feedforward or 4 * self.width


class Llama(GPT):
    config: LlamaConfig

    def _position_table(self) -> None:
        return None

    def _block(self, band: int) -> GatedBlock:
        return GatedBlock(self.config, causal=True, band=band, rms=True)

    def _final_norm(self) -> nn.Module:
        return RMSNorm(self.config.width, eps=self.config.norm_eps)

    def _enter(
        self, tokens_BT: Tensor, positions_BT: Tensor | None = None, *, start: int = 0
    ) -> tuple[Tensor, Rotation | None]:
        if positions_BT is None:
            check_length(end := start + tokens_BT.shape[1], self.config.positions)
            positions_BT = torch.arange(start, end, device=tokens_BT.device)[None]
        rotation = rotation_of(positions_BT, self.config.width // self.config.head_count, base=self.config.base)
        return self._embed(self._rows(tokens_BT)), rotation


def _size(layers: int, width: int, heads: int, feedforward: int) -> dict[str, Any]:
    sizes = {"layers": layers, "width": width, "heads": heads, "feedforward": feedforward, "positions": 2048}
    return {**sizes, "output_bias": False, "norm_eps": 1e-6, "dropout": 0.0, "dropout_attention": 0.0}


FAMILY = ModelFamily(
    name="llama",
    config=LlamaConfig,
    build=Llama,
    objective="causal",
    sampler="packed",
    tokenizers=("bpe", "wordpiece", "unigram"),
    tiny={"width": 32, "layers": 2, "heads": 2, "positions": 24, "feedforward": 48},
    presets={
        # Touvron et al. 2023, table 2; the inner width is that of the published weights.
        "7b": _size(32, 4096, 32, 11008),
        "13b": _size(40, 5120, 40, 13824),
    },
    # Section 2.3.
    training={size: {"betas": (0.9, 0.95), "weight_decay": 0.1, "clip": 1.0} for size in ("7b", "13b")},
    task_tokens=True,
)
