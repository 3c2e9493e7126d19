"""Values of device tensors that the host knows, and a mode in which shapes do not depend on values.

Sizes of tensors follow from the lengths of the texts. On a GPU, reading a length from a tensor waits until all queued
kernels have ended. Batches are made on the host, so `to_device` keeps the host's copy beside each tensor, and `on_host`
returns it. On the CPU every tensor is its own copy, and nothing is moved.

Layers save work by leaving out padding or by computing repeated words once, which makes the sizes of their matrix
products depend on the whole batch. Libraries choose kernels by size, and kernels differ in the last bits. With
`fixed_shapes`, layers do not save such work, so that the result of a row does not depend on the other rows.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

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
    """Indices of the true entries of a mask on the host, moved to a device: `x[places(mask, x.device)]` is `x[mask]`
    without waiting for the number of true entries."""
    return tuple(move(index, device) for index in mask.nonzero(as_tuple=True))


_STATE = threading.local()


def is_fixed() -> bool:
    return bool(getattr(_STATE, "on", False))


@contextmanager
def fixed_shapes() -> Iterator[None]:
    """A block in which the mode is on, in this thread."""
    before = is_fixed()
    _STATE.on = True
    try:
        yield
    finally:
        _STATE.on = before
