"""Two parts of a model that need nothing of each other, each on its own half of a processor.

A recurrent layer is a chain of small products, and threads that share one wait for each other at every step. Two
directions that learn side by side have a chain each: one thread (or half of them) for each direction is faster than all
threads for one after the other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from components.models.layers.chunks import State
from components.models.layers.dropout import drawing_from

#: Gives a loss, and a state that no gradient goes through.
Part = Callable[[], tuple[Tensor, State]]

#: The thread of the second part, once there is one.
_aside: ThreadPoolExecutor | None = None


def losses_beside(
    parts: tuple[Part, Part], modules: tuple[nn.Module, nn.Module]
) -> tuple[tuple[Tensor, State], tuple[Tensor, State]]:
    """The losses of two parts whose only weights are those of their modules, and the states they leave.

    On a processor the gradient is computed with the loss, both parts at the same time where torch has two threads or
    more. Each part draws its dropout from a generator of its own, so one thread gives the same bits as two.
    Elsewhere, and without gradients, one part runs after the other.
    """
    device = next(modules[0].parameters()).device
    if device.type != "cpu" or not torch.is_grad_enabled():
        return parts[0](), parts[1]()
    threads = torch.get_num_threads()
    first, second = (
        _Work(
            part,
            [parameter for parameter in module.parameters() if parameter.requires_grad],
            seed=int(torch.randint(2**62, ())),
            threads=max(1, threads // 2),
            autocast=torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None,
        )
        for part, module in zip(parts, modules, strict=True)
    )
    if threads == 1:
        return first(), second()
    future = _second_thread().submit(second)
    try:
        return first(), future.result()
    finally:
        wait([future])
        torch.set_num_threads(threads)


@dataclass
class _Work:
    """A part with what its thread has to know: autocast and the number of threads belong to each thread."""

    part: Part
    parameters: Sequence[nn.Parameter]
    seed: int
    threads: int
    autocast: torch.dtype | None

    def __call__(self) -> tuple[Tensor, State]:
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        with (
            torch.enable_grad(),
            torch.autocast("cpu", dtype=self.autocast, enabled=self.autocast is not None),
            drawing_from(torch.Generator().manual_seed(self.seed)),
        ):
            loss, state = self.part()
        if not self.parameters:
            return loss, state
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        known: Tensor = _Known.apply(loss.detach(), gradients, *self.parameters)
        return known, state


class _Known(torch.autograd.Function):
    """A loss whose gradient has been computed with it."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: Sequence[Tensor | None], *parameters: Tensor) -> Tensor:
        ctx.gradients = gradients
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        scale = gradients[0]
        return (None, None, *(None if known is None else known * scale.to(known.dtype) for known in ctx.gradients))


def _second_thread() -> ThreadPoolExecutor:
    global _aside
    if _aside is None:
        _aside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="beside")
    return _aside


def _forget() -> None:
    """A forked process has the executor, but not its thread."""
    global _aside
    _aside = None


os.register_at_fork(after_in_child=_forget)
