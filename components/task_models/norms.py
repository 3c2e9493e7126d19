"""Normalisations of the features that a head reads.

Shapes: S sequences, F features in blocks of widths D_1 .. D_b.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

#: `finetune.<name>.head_norm`.
Norm = Literal["fixed", "block", "length", "auto", "batch", "none"]
#: Normalisations with the statistics of the training features.
Statistics = Literal["fixed", "block", "length"]


class FixedNorm(nn.Module):
    """(x - mean) / std with the statistics of the training features; independent of the batch.

    The buffer of the std is named `deviation` in stored heads.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("deviation", torch.ones(features))

    def fit(self, features: Tensor) -> None:
        """Set mean and std from (N, F) features; constant features are not scaled."""
        std = features.std(0, correction=0)
        self.mean.copy_(features.mean(0))
        self.deviation.copy_(torch.where(std > 1e-6, std, torch.ones_like(std)))

    def forward(self, features: Tensor) -> Tensor:
        """(S, F) -> (S, F)."""
        return (features - self.mean) / self.deviation


class BlockNorm(FixedNorm):
    """Normalisation by blocks: (x - mean) / std with one std for all features of a block, the root of their mean
    variance; with `length`, each block of a text is then scaled to the length sqrt(D).

    With few rows, the std of a single feature is uncertain. One std for a block does not scale up the features of small
    variance, which are mostly noise. It also gives blocks of different magnitude, such as layers and the products of
    two vectors, the same mean variance. With `length`, the vectors of all texts have the same length: differences in
    length come from properties that say nothing about the class, such as the number of pieces.

    Attributes:
        kind: what `fit` sets: `fixed` (a std for each feature, as `FixedNorm`), `block` or `length`.
    """

    unit: Tensor

    def __init__(self, features: int, *, kind: Statistics) -> None:
        super().__init__(features)
        self.blocks = [features]
        self.kind: Statistics = kind
        # Stored with the head, because it may have been chosen (`auto`).
        self.register_buffer("unit", torch.zeros(()))

    def fit(self, features: Tensor) -> None:
        """Set mean and std from (N, F) features."""
        super().fit(features)
        self.unit.fill_(float(self.kind == "length"))
        if self.kind == "fixed":
            return
        variance = features.var(0, correction=0)
        stds = [part.mean().sqrt().expand(len(part)) for part in variance.split(self.blocks)]
        std = torch.cat(stds)
        self.deviation.copy_(torch.where(std > 1e-6, std, torch.ones_like(std)))

    def forward(self, features: Tensor) -> Tensor:
        """(S, F) -> (S, F)."""
        x = super().forward(features)
        parts = [nn.functional.normalize(part, dim=-1) * math.sqrt(part.shape[-1]) for part in x.split(self.blocks, -1)]
        return torch.where(self.unit > 0, torch.cat(parts, -1), x)


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation; a batch of one sequence, which has no variance, is normalised by the running statistics."""

    def forward(self, features: Tensor) -> Tensor:
        """(S, F) -> (S, F)."""
        if self.training and len(features) == 1:
            return nn.functional.batch_norm(
                features, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
        return super().forward(features)


def make_norm(kind: Norm, features: int) -> nn.Module:
    """The normalisation of F features; `auto` begins as `fixed`."""
    match kind:
        case "fixed":
            return FixedNorm(features)
        case "block" | "length":
            return BlockNorm(features, kind=kind)
        case "auto":
            return BlockNorm(features, kind="fixed")
        case "batch":
            return BatchNorm(features)
        case "none":
            return nn.Identity()
