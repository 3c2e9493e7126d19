"""MPNet: RoBERTa's encoder with a bias of the attention by distance, shared by all layers.

Song, Tan, Qin, Lu and Liu 2020 (MPNet: Masked and Permuted Pre-training for Language Understanding), section 4.1; the
buckets are those of T5 (Raffel et al. 2020, section 2.1). Published weights are read; further training predicts masked
pieces as RoBERTa does.

    attention(q, k) = softmax(Q K^T / sqrt(K) + b_bucket(k - q))

Shape suffixes: B batch rows, T positions, D width, N heads.
"""

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn

from components.models.base import ModelFamily
from components.models.layers.masked import Attended
from components.models.roberta import RoBERTa, RoBERTaConfig

#: Buckets: half of them for keys after the query; of each half, half for one distance each, up to `FARTHEST`.
BUCKETS: Final = 32
FARTHEST: Final = 128


class MPNet(RoBERTa):
    def __init__(self, config: RoBERTaConfig) -> None:
        super().__init__(config)
        self.distance = nn.Parameter(torch.zeros(BUCKETS, config.head_count))

    def layer_groups(self) -> list[list[nn.Parameter]]:
        embeddings, first, *others = super().layer_groups()
        return [embeddings, [*first, self.distance], *others]

    def attended(self, mask: Tensor | None, positions_BT: Tensor, x_BTD: Tensor) -> Sequence[Attended]:
        buckets_BTT = bucket(positions_BT[:, None, :] - positions_BT[:, :, None])
        bias_BNTT = self.distance[buckets_BTT].permute(0, 3, 1, 2).to(x_BTD.dtype)
        return [(bias_BNTT if mask is None else bias_BNTT.masked_fill(~mask, torch.finfo(x_BTD.dtype).min), None)]


def bucket(away: Tensor) -> Tensor:
    """The bucket of each distance from query to key."""
    half, exact = BUCKETS // 2, BUCKETS // 4
    far = away.abs()
    share = torch.log(far.clamp(min=1).float() / exact) / math.log(FARTHEST / exact)
    spread = (exact + (share * (half - exact)).long()).clamp(max=half - 1)
    return half * (away > 0).long() + torch.where(far < exact, far, spread)


FAMILY = ModelFamily(
    name="mpnet",
    config=RoBERTaConfig,
    build=MPNet,
    objective="masked",
    sampler="full_sentences",
    tokenizers=("wordpiece",),
    tiny={"width": 32, "layers": 2, "heads": 2, "positions": 24},
)
