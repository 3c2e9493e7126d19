"""Values of device tensors that the host knows, so that it does not wait for the device.

Sizes of tensors follow from the lengths of the texts. On a GPU, reading a length from a tensor waits until all queued
kernels have ended. Batches are made on the host, so `to_device` keeps the host's copy beside each tensor, and `on_host`
returns it. On the CPU every tensor is its own copy, and nothing is moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

#: Name of the attribute of a tensor that holds its copy on the host.
_COPY = "_copy_on_host"


def move(x: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on a device; the host does not wait for the copy."""
    if device.type != "cuda":
        return x.to(device)
    moved = x.pin_memory().to(device, non_blocking=True)
    setattr(moved, _COPY, x)
    return moved


def to_device(batch: Mapping[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """A batch of the host on a device, with the host's copies."""
    return {name: move(tensor, device) for name, tensor in batch.items()}


def on_host(x: Tensor) -> Tensor:
    """The value on the CPU: the copy of `to_device` if there is one. Otherwise it is copied, and the host waits."""
    if x.device.type in ("cpu", "meta"):
        return x
    copy: Tensor | None = getattr(x, _COPY, None)
    return x.cpu() if copy is None else copy


def both(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`function(x)`, with its copy on the host if `x` has one."""
    result = function(x)
    if result.device.type != "cpu" and (copy := getattr(x, _COPY, None)) is not None:
        setattr(result, _COPY, function(copy))
    return result


def places(mask: Tensor, device: torch.device) -> tuple[Tensor, ...]:
    """Indices of the true entries of a mask on the host, moved to a device. `x[places(mask, x.device)]` is `x[mask]`,
    but with a mask on the device the host would have to wait for the number of true entries."""
    return tuple(move(index, device) for index in mask.nonzero(as_tuple=True))
