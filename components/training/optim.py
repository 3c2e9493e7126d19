"""Optimizers and averages of the weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from components.settings.training import Training
from components.training.groups import ParameterGroup
from components.training.rows import RowAdamW

#: Largest decay of the exponential moving average: a memory of 1,000 steps.
EMA_DECAY = 0.999


def make_optimizer(groups: Sequence[ParameterGroup], *, settings: Training) -> torch.optim.Optimizer:
    """AdamW, AdaGrad (Duchi et al. 2011) or SGD, each a fused kernel over all parameters.

    `asgd` is SGD; the average of its weights is that of `average_of`. Weight decay is an L2 penalty in AdaGrad and SGD,
    decoupled in the others. Only AdamW trains tables with sparse gradients.
    """
    options = [
        {
            "params": list(group.parameters),
            "weight_decay": settings.weight_decay if group.weight_decay is None else group.weight_decay,
        }
        for group in groups
    ]
    if settings.optimizer == "adamw":
        return RowAdamW(options, lr=settings.rate, betas=settings.betas, eps=settings.eps, fused=True)
    if settings.optimizer == "adagrad":
        return torch.optim.Adagrad(options, lr=settings.rate, eps=settings.eps, fused=True)
    return torch.optim.SGD(options, lr=settings.rate, fused=True)


class WeightAverage:
    """A running average of the weights.

    `ema`: average += (1 - d) * (weights - average) with d = min(0.999, (1 + t) / (10 + t)) in update t, so that the
    weights of the first steps lose their influence. `asgd`: the mean of the weights after each step later than `begins`
    (Polyak and Juditsky 1992). While `begins` is None there is no average and `swap` has no effect; the non-monotone
    trigger of NT-ASGD (Merity et al. 2018) sets it.

    Attributes:
        tensors: the averages, in the order of the parameters.
        count: number of updates of the average; 0 before it begins.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], *, kind: str, begins: int | None = 0) -> None:
        self.parameters = list(parameters)
        self.kind = kind
        self.begins = begins
        self.count = 0
        self.tensors = [parameter.detach().clone() for parameter in self.parameters]

    def begin(self, step: int) -> None:
        """Start the average with the weights after `step` steps (NT-ASGD, algorithm 1: T = k)."""
        self.begins = step - 1
        self.update(step)

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after `step` steps to the average."""
        if self.begins is None or step <= self.begins:
            return
        self.count += 1
        keep = 1 - 1 / self.count
        if self.kind == "ema":
            keep = min(EMA_DECAY, (1 + self.count) / (10 + self.count))
        torch._foreach_lerp_(self.tensors, [parameter.data for parameter in self.parameters], 1 - keep)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange weights and average: once before the average is evaluated or saved, again before training continues.

        Nothing is exchanged before the average has begun.
        """
        if self.count:
            for parameter, average in zip(self.parameters, self.tensors, strict=True):
                held = parameter.detach().clone()
                parameter.copy_(average)
                average.copy_(held)


def non_monotone(losses: Sequence[float], *, patience: int = 5) -> bool:
    """Whether the last held-out loss v_t is worse than the best of v_0 .. v_{t-n-1}, for t > n.

    The trigger of NT-ASGD (Merity et al. 2018, algorithm 1), with n = `patience`; the paper's is 5 too.
    """
    *earlier, last = losses or [0.0]
    return len(earlier) > patience and last > min(earlier[:-patience])


def average_of(parameters: Sequence[nn.Parameter], *, settings: Training) -> WeightAverage | None:
    """The average of weights that the settings request; None if they request none."""
    if settings.average == "asgd" or settings.optimizer == "asgd":
        return WeightAverage(parameters, kind="asgd", begins=None if settings.optimizer == "asgd" else 0)
    return WeightAverage(parameters, kind="ema") if settings.average == "ema" else None
