"""Dropout layers whose rate can be changed after loading, with masks that are cheap on the CPU.

Shape suffixes: T time, B batch rows, D width, V vocabulary.
"""

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

#: Attribute `generator`: the generator of this thread, if it has its own.
_sampling = threading.local()


@contextmanager
def sampling_from(generator: torch.Generator) -> Iterator[None]:
    """Sample this thread's CPU masks from `generator` instead of the global generator, which threads share."""
    before = getattr(_sampling, "generator", None)
    _sampling.generator = generator
    try:
        yield
    finally:
        _sampling.generator = before


class Noise(nn.Module):
    """Base of dropout layers.

    Attributes:
        probability: configured dropout rate.
        scale: factor on it (ULMFiT's drop multiplier).
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.scale = 1.0

    @property
    def rate(self) -> float:
        return min(self.probability * self.scale, 0.95) if self.training else 0.0


class Dropout(Noise):
    """Independent masks for all values (Srivastava et al. 2014)."""

    def forward(self, x: Tensor) -> Tensor:
        return x * keep_mask(x.shape, self.rate, x) if self.rate else x


class LockedDropout(Noise):
    """Variational dropout (Gal and Ghahramani 2016): the same mask at all time steps of a row."""

    def forward(self, x_TBD: Tensor) -> Tensor:
        return x_TBD * keep_mask((1, *x_TBD.shape[1:]), self.rate, x_TBD) if self.rate else x_TBD


class WordDropout(Noise):
    """Whole positions are dropped (Akbik et al. 2018)."""

    def forward(self, x: Tensor) -> Tensor:
        return x * keep_mask((*x.shape[:-1], 1), self.rate, x) if self.rate else x


class WeightDropout(Noise):
    """DropConnect (Wan et al. 2013) on a weight: one mask per window."""

    def forward(self, weight: Tensor) -> Tensor:
        return weight * keep_mask(weight.shape, self.rate, weight) if self.rate else weight


class RowDropout(Noise):
    """Embedding dropout (Gal and Ghahramani 2016): whole words are dropped, at all their positions in the window."""

    def forward(self, tokens: Tensor, weight_VD: Tensor, x: Tensor) -> Tensor:
        """Multiply the looked-up rows `x` (..., D) of `weight_VD` by their word's mask."""
        if not self.rate:
            return x
        return x * keep_mask((weight_VD.shape[0], 1), self.rate, x)[tokens]


def keep_mask(shape: Sequence[int], rate: float, like: Tensor) -> Tensor:
    """A dropout mask with values 0 and 1 / (1 - rate), with the dtype and device of `like`, from the global generator
    or the one of `sampling_from`. On the CPU, where sampling dominates the cost of dropout, one 64-bit random number
    serves four values (16 bits each, so the rate is exact to 2^-16)."""
    if like.is_cuda:
        return torch.empty(shape, dtype=like.dtype, device=like.device).bernoulli_(1 - rate).div_(1 - rate)
    count = math.prod(shape)
    words = torch.empty((count + 3) // 4, dtype=torch.int64)
    words.random_(-(2**63), None, generator=getattr(_sampling, "generator", None))
    samples = words.view(torch.int16)[:count]
    dropped = round(rate * 2**16)
    kept = samples.ge_(dropped - 2**15)
    scale = torch.tensor(2**16 / (2**16 - dropped), dtype=like.dtype)
    if like.dtype == torch.bfloat16:
        # In place: a sample becomes 0 or 1, then the bits of 0 or of the scale in bfloat16.
        mask = kept.mul_(int(scale.view(torch.int16))).view(torch.bfloat16)
    else:
        mask = kept.to(like.dtype).mul_(scale)
    return mask.view(tuple(shape))
