"""The workers of data-parallel training, and their collective operations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """Rank and device of this worker, the number of workers, and their process group; None: the default one. With
    `size` 1 nothing is exchanged and torch.distributed is not needed. All methods but `own_rows` are collective
    operations, which all workers must call."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    group: dist.ProcessGroup | None = None

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, the worker that writes files."""
        return self.rank == 0

    def average_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its mean over all workers, in one exchange. The mean is bit-identical on every worker
        and in every repetition."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.reshape(-1).float() for tensor in tensors])
        dist.all_reduce(flat, group=self.group)
        flat /= self.size
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def average_gradients(self, parameters: Sequence[nn.Parameter], loss: Tensor) -> None:
        """Replace the gradients of the parameters, the same on every worker, and the scalar `loss` by their means."""
        held = [parameter for parameter in parameters if parameter.grad is not None]
        dense = [gradient for entry in held if (gradient := entry.grad) is not None and not gradient.is_sparse]
        self.average_([loss, *dense])
        for parameter in held:
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = self.average_rows(parameter.grad)

    def average_rows(self, gradient: Tensor) -> Tensor:
        """The mean of a sparse gradient (R, D) with one sparse dimension over all workers, coalesced; bit-identical on
        every worker, because the rows are added in the order of ranks."""
        gradient = gradient.coalesce()
        if self.size == 1:
            return gradient
        rows, values = gradient.indices()[0], gradient.values().float()
        counts = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(self.size)]
        dist.all_gather(counts, torch.tensor([len(rows)], device=rows.device), group=self.group)
        most = int(torch.cat(counts).max())
        padded = torch.zeros(most, dtype=rows.dtype, device=rows.device)
        padded[: len(rows)] = rows
        filled = values.new_zeros(most, values.shape[1])
        filled[: len(values)] = values
        held = torch.cat([torch.arange(most, device=rows.device) < count for count in counts])
        every, sums = self.gather_rows(padded)[held], self.gather_rows(filled)[held]
        together = torch.sparse_coo_tensor(every[None], sums, gradient.shape, check_invariants=False).coalesce()
        together.values().div_(self.size)
        return together

    def total(self, values: Tensor) -> Tensor:
        """The sum of a tensor over all workers."""
        if self.size == 1:
            return values
        values = values.clone()
        dist.all_reduce(values, group=self.group)
        return values

    def gather_rows(self, rows: Tensor) -> Tensor:
        """The rows (B, ...) of all workers, concatenated in the order of ranks: (B * size, ...)."""
        if self.size == 1:
            return rows
        parts = [torch.empty_like(rows) for _ in range(self.size)]
        dist.all_gather(parts, rows.contiguous(), group=self.group)
        return torch.cat(parts)

    def own_rows(self, rows: Tensor) -> Tensor:
        """This worker's share of rows that `gather_rows` has concatenated, also for another number of workers."""
        share = rows.shape[0] // self.size
        return rows[self.rank * share : (self.rank + 1) * share]

    def broadcast(self, value: T) -> T:
        """The value of rank 0."""
        if self.size == 1:
            return value
        box: list[T] = [value]
        dist.broadcast_object_list(box, src=0, group=self.group, device=self.device)
        return box[0]


@dataclass(frozen=True)
class Worker:
    """Context that a training function receives in addition to its job.

    Attributes:
        publish: reports progress, as named numbers, to the process that started the training. It is cheap, and calls in
            quick succession may be dropped.
    """

    world: World = field(default_factory=World)
    publish: Callable[[Mapping[str, float]], None] = lambda numbers: None
