"""Dropouts whose strength can be changed after loading, with masks that cost little on a processor.

Shape suffixes: T time, B batch rows, D width, V vocabulary.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

#: `generator` of this thread, where it has one of its own.
_drawing = threading.local()


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """Draw this thread's masks on a processor from a generator of its own, for threads have the global one together."""
    before = getattr(_drawing, "generator", None)
    _drawing.generator = generator
    try:
        yield
    finally:
        _drawing.generator = before


class Noise(nn.Module):
    """Base of every dropout: a probability, and a scale that ULMFiT's fine-tuning calls the drop multiplier."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.scale = 1.0

    @property
    def rate(self) -> float:
        """Share of values dropped now: 0 in evaluation."""
        return min(self.probability * self.scale, 0.95) if self.training else 0.0

    def extra_repr(self) -> str:
        return f"{self.probability}, scale={self.scale}"


class Dropout(Noise):
    """Every value on its own (Srivastava et al. 2014)."""

    def forward(self, x: Tensor) -> Tensor:
        return x * keep_mask(x.shape, self.rate, x) if self.rate else x


class LockedDropout(Noise):
    """Variational dropout (Gal and Ghahramani 2016): one mask for all time steps of a row."""

    def forward(self, x_TBD: Tensor) -> Tensor:
        return x_TBD * keep_mask((1, *x_TBD.shape[1:]), self.rate, x_TBD) if self.rate else x_TBD


class WeightDropout(Noise):
    """DropConnect (Wan et al. 2013) on a weight: one mask for the whole window."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight * keep_mask(weight.shape, self.rate, weight) if self.rate else weight


class RowDropout(Noise):
    """Embedding dropout (Gal and Ghahramani 2016): whole words vanish, at all their places in the window at once."""

    def forward(self, tokens: Tensor, weight_VD: Tensor, x: Tensor) -> Tensor:
        """Scale looked-up rows `x` (..., D) of `weight_VD` by their word's mask."""
        if not self.rate:
            return x
        return x * keep_mask((weight_VD.shape[0], 1), self.rate, x)[tokens]


def keep_mask(shape: Sequence[int], rate: float, like: Tensor) -> Tensor:
    """A mask of 0 and 1/(1 - rate) in the type and on the device of `like`.

    It is drawn from the global generator, or from that of `drawing_from`. On a processor one 64-bit draw serves four
    values (16 bits each, so the rate is right to 2^-16): drawing is what dropout costs there.
    """
    if like.is_cuda:
        return torch.empty(shape, dtype=like.dtype, device=like.device).bernoulli_(1 - rate).div_(1 - rate)
    count = math.prod(shape)
    words = torch.empty((count + 3) // 4, dtype=torch.int64)
    words.random_(-(2**63), None, generator=getattr(_drawing, "generator", None))
    draws = words.view(torch.int16)[:count]
    dropped = round(rate * 2**16)
    kept = draws.ge_(dropped - 2**15)
    scale = torch.tensor(2**16 / (2**16 - dropped), dtype=like.dtype)
    if like.dtype == torch.bfloat16:
        # In place all the way: a draw becomes 0 or 1, then the bits of a bfloat16 0 or of the scale.
        mask = kept.mul_(int(scale.view(torch.int16))).view(torch.bfloat16)
    else:
        mask = kept.to(like.dtype).mul_(scale)
    return mask.view(tuple(shape))
