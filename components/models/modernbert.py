"""ModernBERT: a pre-norm encoder without biases, with rotary positions, gated feed-forward layers, and local attention.

Warner et al. 2024 (Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder), section 2.1; rotary positions: Su
et al. 2021 (RoFormer); gated layers: Shazeer 2020 (GLU Variants Improve Transformer). Published weights are read;
further training predicts masked pieces as RoBERTa does.

    x = LN(E_token)      per block:  x = x + attention(LN(x));  x = x + W_2 (gelu(W_1 y) * W_g y), y = LN(x)

The first block has no norm before its attention. Blocks 0, `every`, 2 `every`, ... attend to the whole text, the others
to positions at most `window` / 2 away. After the last block follows a norm.

Shape suffixes: B batch rows, T positions, D width, F width of the feed-forward layers.
"""

from collections.abc import Sequence

import torch
from pydantic import model_validator
from torch import Tensor, nn

from components.models.base import ModelFamily, Size
from components.models.layers.attention import rotation_of
from components.models.layers.linear import LayerNorm
from components.models.layers.masked import Attended, MaskedConfig, MaskedModel
from components.models.layers.transformer import Base, GatedBlock, even_heads


class ModernBERTConfig(MaskedConfig):
    """Keys of `MaskedConfig`, and:

    Attributes:
        every, window: every how many blocks attend to the whole text; width of the attention of the others.
        base, base_local: of the angles, in blocks that attend to the whole text and in the others.
    """

    norm_eps: float = 1e-5
    every: Size = 3
    window: Size = 128
    base: Base = 160_000.0
    base_local: Base = 10_000.0

    _even = model_validator(mode="after")(even_heads)


class ModernBERT(MaskedModel):
    config: ModernBERTConfig

    def __init__(self, config: ModernBERTConfig) -> None:
        super().__init__(config, embedding=config.width, plain=True)
        self.blocks = nn.ModuleList(GatedBlock(config) for _ in range(config.layers))
        self.blocks[0].attention_norm = nn.Identity()
        self.final_norm = LayerNorm(config.width, eps=config.norm_eps, bias=False)
        self.initialise()

    def layer_groups(self) -> list[list[nn.Parameter]]:
        *others, top = super().layer_groups()
        return [*others, [*top, *self.final_norm.parameters()]]

    def enter(self, x_BTE: Tensor) -> Tensor:
        # A pre-norm residual stream keeps the type of the weights, because its sums are not normalised.
        return x_BTE.to(self.token.dtype)

    def run(
        self, tokens_BT: Tensor, segments_BT: Tensor | None, mask: Tensor | None, positions_BT: Tensor | None = None
    ) -> list[Tensor]:
        *outputs, top_BTD = super().run(tokens_BT, segments_BT, mask, positions_BT)
        return [*outputs, self.final_norm(top_BTD)]

    def attended(self, mask: Tensor | None, positions_BT: Tensor, x_BTD: Tensor) -> Sequence[Attended]:
        config, size = self.config, self.config.width // self.config.head_count
        near_B1TT = ((positions_BT[:, None, :] - positions_BT[:, :, None]).abs() <= config.window // 2)[:, None]
        if mask is not None:
            # Padding attends to itself, because a softmax over nothing is NaN.
            itself_TT = torch.eye(x_BTD.shape[1], dtype=torch.bool, device=x_BTD.device)
            near_B1TT = near_B1TT & mask | itself_TT
        wide = (mask, rotation_of(positions_BT, size, base=config.base))
        local = (near_B1TT, rotation_of(positions_BT, size, base=config.base_local))
        return [wide, *[local] * (config.every - 1)]


FAMILY = ModelFamily(
    name="modernbert",
    config=ModernBERTConfig,
    build=ModernBERT,
    objective="masked",
    sampler="full_sentences",
    tokenizers=("bpe", "wordpiece", "unigram"),
    tiny={"width": 32, "layers": 2, "heads": 2, "positions": 24, "every": 2, "window": 6, "feedforward": 48},
    presets={
        # Warner et al. 2024, table 4.
        "base": {"layers": 22, "width": 768, "heads": 12, "feedforward": 1152, "positions": 8192},
        "large": {"layers": 28, "width": 1024, "heads": 16, "feedforward": 2624, "positions": 8192},
    },
)
