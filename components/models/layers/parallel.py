"""Two independent parts of a model, computed in parallel on the CPU.

A recurrent layer is a chain of small matrix products, and its threads synchronise at every step. Two directions in
parallel, each with half of the threads, are faster than one after the other with all threads.
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
from components.models.layers.dropout import sampling_from

#: A function that returns a loss and a detached state.
Part = Callable[[], tuple[Tensor, State]]

#: The thread of the second part; started on first use.
_second: ThreadPoolExecutor | None = None


def losses_in_parallel(
    parts: tuple[Part, Part], modules: tuple[nn.Module, nn.Module]
) -> tuple[tuple[Tensor, State], tuple[Tensor, State]]:
    """The losses of two parts, and their states after the window.

    On the CPU the gradient is computed together with the loss, both parts in parallel if torch has two or more
    threads. Each part samples dropout masks from its own generator, so one thread gives the same bits as two. On other
    devices, and without gradients, the parts run one after the other.

    Args:
        parts: the functions.
        modules: the modules that own the parts' parameters; the parts use no others.
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
    """A part with its thread's state: autocast and the number of threads are thread-local in torch."""

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
            sampling_from(torch.Generator().manual_seed(self.seed)),
        ):
            loss, state = self.part()
        if not self.parameters:
            return loss, state
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        differentiable: Tensor = _Precomputed.apply(loss.detach(), gradients, *self.parameters)
        return differentiable, state


class _Precomputed(torch.autograd.Function):
    """A loss whose gradient is already computed."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: Sequence[Tensor | None], *parameters: Tensor) -> Tensor:
        ctx.gradients = gradients
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        scale = gradients[0]
        return (None, None, *(None if grad is None else grad * scale.to(grad.dtype) for grad in ctx.gradients))


def _second_thread() -> ThreadPoolExecutor:
    global _second
    if _second is None:
        _second = ThreadPoolExecutor(max_workers=1, thread_name_prefix="parallel")
    return _second


def _forget() -> None:
    """After a fork the child has the executor, but not its thread."""
    global _second
    _second = None


os.register_at_fork(after_in_child=_forget)
