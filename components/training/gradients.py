"""Averages of gradients over the workers, exchanged while the backward pass still computes other gradients.

Gradients are grouped into buckets (Li et al. 2020, PyTorch Distributed, section 3.2), the parameters of the last layers
first, because backward reaches them first. The exchange of a bucket begins as soon as all of its gradients are there.
Unlike in torch's DistributedDataParallel, which changes its buckets after the first step, the buckets are a function of
the parameters. So the sums are added in the same order in every step, and a resumed run is bit-identical.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from components.training.distributed import World

#: Elements of a bucket: large enough to use the bandwidth, small relative to the model, so that most of the exchange
#: happens during the backward pass.
BUCKET: Final = 8 * 2**20


@dataclass
class _Bucket:
    """Parameters whose gradients are exchanged together.

    Attributes:
        parameters: in a fixed order.
        missing: number of gradients that backward has not computed yet.
        sent: once the exchange has begun, the parameters with dense gradients; these, concatenated (N,) float32; and
            the exchange. None before, and if there are no such gradients.
    """

    parameters: list[nn.Parameter]
    missing: int = 0
    sent: tuple[list[nn.Parameter], Tensor, dist.Work] | None = None


class GradientAverage:
    """Replaces gradients by their means over all workers. With one worker nothing is exchanged.

    The mean is bit-identical on every worker and in every repetition: buckets and their order are fixed, and a ring
    all-reduce sums in a fixed order.

    Args:
        parameters: all that may have gradients, in the order in which the forward pass uses them.
        world: the workers, which must have gradients of the same parameters in every step.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], world: World) -> None:
        self.world = world
        self.parameters = list(parameters)
        self.buckets = [] if world.size == 1 else _buckets(self.parameters[::-1])
        self._bucket_of = {id(one): bucket for bucket in self.buckets for one in bucket.parameters}
        self._next = 0
        self._hooks: list[RemovableHandle] = []

    def begin(self) -> None:
        """The next backward pass computes the last part of the gradients of an update; `finish` must follow it."""
        for bucket in self.buckets:
            learning = [one for one in bucket.parameters if one.requires_grad]
            bucket.missing, bucket.sent = len(learning), None
            self._hooks += [one.register_post_accumulate_grad_hook(self._arrived) for one in learning]
        self._next = 0

    def finish(self, loss: Tensor) -> None:
        """Wait for all means, that of the scalar `loss` included, which is changed in place."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._send(wanted=len(self.buckets))
        self.world.average_([loss])
        for bucket in self.buckets:
            if bucket.sent is None:
                continue
            parameters, flat, work = bucket.sent
            work.wait()
            flat /= self.world.size
            gradients = [cast(Tensor, one.grad) for one in parameters]
            for gradient, part in zip(gradients, flat.split([one.numel() for one in gradients]), strict=True):
                gradient.copy_(part.view_as(gradient))
            bucket.sent = None
        for one in self.parameters:
            if one.grad is not None and one.grad.is_sparse:
                one.grad = self.world.average_rows(one.grad)

    def _arrived(self, parameter: nn.Parameter) -> None:
        """Called by autograd when a gradient is complete."""
        self._bucket_of[id(parameter)].missing -= 1
        ready = self._next
        while ready < len(self.buckets) and not self.buckets[ready].missing:
            ready += 1
        self._send(wanted=ready)

    def _send(self, *, wanted: int) -> None:
        """Begin the exchanges up to bucket `wanted`, in the order of buckets, which must be that of all workers."""
        for bucket in self.buckets[self._next : wanted]:
            dense = [one for one in bucket.parameters if one.grad is not None and not one.grad.is_sparse]
            if dense:
                flat = torch.cat([cast(Tensor, one.grad).reshape(-1).float() for one in dense])
                bucket.sent = dense, flat, cast(dist.Work, dist.all_reduce(flat, async_op=True))
        self._next = wanted


def _buckets(parameters: Sequence[nn.Parameter]) -> list[_Bucket]:
    """Buckets of at most `BUCKET` elements; a larger parameter has one of its own."""
    found = [_Bucket([])]
    filled = 0
    for one in parameters:
        if filled and filled + one.numel() > BUCKET:
            found.append(_Bucket([]))
            filled = 0
        found[-1].parameters.append(one)
        filled += one.numel()
    return [bucket for bucket in found if bucket.parameters]
