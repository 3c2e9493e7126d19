"""Regularisation of fine-tuning towards the weights that it starts from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from components.errors import ConfigError
from components.models.base import Batch, LanguageModel, Losses


class HasLosses(Protocol):
    """A model whose loss is computed with mixed weights."""

    encoder: LanguageModel

    def batch_losses(self, batch: Batch) -> Losses: ...


class Mixout:
    """Mixout (Lee et al. 2020, equation 3): every weight of a matrix is that of the start with probability p.

    W' = (M W + (1 - M) W_0 - p W_0) / (1 - p) elementwise, with M = 1 with probability 1 - p, so that the mean of W' is
    W. It applies to the matrices of the encoder's layers above the embeddings, in training steps only. The random
    numbers are those of the step's dropout.

    Args:
        model: its current weights are the start.
        probability: p.
    """

    def __init__(self, model: nn.Module, *, probability: float) -> None:
        above = cast(HasLosses, model).encoder.layer_groups()[1:]
        inside = {id(parameter) for group in above for parameter in group if parameter.ndim > 1}
        self.probability = probability
        self.start = {
            name: parameter.detach().clone() for name, parameter in model.named_parameters() if id(parameter) in inside
        }
        self._computing = _Computing(model)

    def losses(self, batch: Batch) -> Losses:
        """The model's losses with mixed weights."""
        model = self._computing.model
        named = dict(model.named_parameters())
        mixed = {f"model.{name}": self.mixed(named[name], start) for name, start in self.start.items()}
        found: Losses = functional_call(self._computing, mixed, (batch,))
        return found

    def mixed(self, weight: Tensor, start: Tensor) -> Tensor:
        """Weights of one step, with a gradient for the current ones."""
        kept = torch.rand_like(start) >= self.probability
        start = start.to(weight.device)
        return (torch.where(kept, weight, start) - self.probability * start) / (1 - self.probability)


class _Computing(nn.Module):
    """A model whose `forward` computes the losses, as `functional_call` needs it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Losses:
        """The losses of a batch."""
        return cast(HasLosses, self.model).batch_losses(batch)


@contextmanager
def interpolated(model: nn.Module, start: Mapping[str, Tensor], weight: float) -> Iterator[None]:
    """Inside, the weights are (1 - weight) * start + weight * current (WiSE-FT, Wortsman et al. 2022, equation 1);
    afterwards those of before, bit-identical.

    Args:
        model: changed inside.
        start: name of each parameter -> its value before training.
        weight: 1 for the current weights.
    """
    if weight == 1:
        yield
        return
    with torch.no_grad():
        named = dict(model.named_parameters())
        held = {name: named[name].detach().clone() for name in start}
        for name, value in start.items():
            named[name].lerp_(value.to(named[name].device), 1 - weight)
    try:
        yield
    finally:
        with torch.no_grad():
            for name, value in held.items():
                named[name].copy_(value)


def reinitialise(encoder: LanguageModel, fresh: LanguageModel, *, layers: int) -> None:
    """Replace the weights of the top layer groups by those of a new model (Zhang et al. 2021, section 4).

    Args:
        encoder: changed.
        fresh: a model of the same architecture with initial weights.
        layers: number of layer groups.

    Raises:
        ConfigError: more than there are above the embeddings.
    """
    if layers > (most := len(encoder.layer_groups()) - 1):
        raise ConfigError(f"reinitialised: {layers}, but the encoder has {most} layers above the embeddings")
    with torch.no_grad():
        for own, new in zip(encoder.layer_groups()[-layers:], fresh.layer_groups()[-layers:], strict=True):
            for parameter, initial in zip(own, new, strict=True):
                parameter.copy_(initial)
