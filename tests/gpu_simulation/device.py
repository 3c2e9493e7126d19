"""A simulated CUDA device: tensors that name cuda:0 as their device, computed on the CPU.

`simulating()` is a block in which factory functions with `device="cuda"`, `tensor.to("cuda")` and `module.to("cuda")`
give such tensors. Every operator that reads one passes through `_run`, which

- raises the error of a CUDA build if operands are on different devices,
- records what makes the host wait for the device (`Event`): copies in both directions, and operators whose result has a
  size that depends on values,
- records the names of all operators.

What it does not show: kernels, their precision and speed, memory, and errors of a driver. Autocast has the rules of
CUDA, because torch chooses them by the type of device.

The guard of guard.cpp must be loaded before torch, so this module is imported by `process` only.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

COMPONENTS = str(Path(__file__).parents[2] / "components") + "/"
#: Operators whose result has a size that depends on values, so that the host waits for the device.
SIZED_BY_VALUES = frozenset(
    {
        "_coalesce", "_unique", "_unique2", "bincount", "masked_select", "nonzero", "unique_consecutive", "unique_dim",
    }
)  # fmt: skip
#: Operators with indices, which may be masks.
INDEXED = frozenset({"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"})


@dataclass(frozen=True)
class Event:
    """A moment at which the host waits for the device.

    Attributes:
        operator: its name in torch.
        kind: `read` (a value is copied to the host), `write` (host memory is copied to the device) or `size`.
        place: file and line of the innermost two frames of the project; empty in the backward pass.
    """

    operator: str
    kind: str
    place: str


@dataclass
class Record:
    """What has happened on the simulated device.

    Attributes:
        events: in order.
        operators: name with overload -> number of calls.
    """

    events: list[Event] = field(default_factory=list)
    operators: Counter[str] = field(default_factory=Counter)

    def note(self, operator: str, kind: str) -> None:
        self.events.append(Event(operator, kind, _place()))


RECORD = Record()
CARD = torch.device("cuda", 0)


def _place() -> str:
    """File and line of the innermost two frames of the project, tests excluded."""
    actual: list[str] = []
    frame: FrameType | None = sys._getframe()
    while frame is not None and len(actual) < 2:
        if frame.f_code.co_filename.startswith(COMPONENTS):
            actual.append(f"{frame.f_code.co_filename.removeprefix(COMPONENTS)}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(actual)


def _is_cuda(device: Any) -> bool:
    return device is not None and str(device).startswith("cuda")


class SimulatedTensor(torch.Tensor):
    """A tensor on cuda:0; `held` is its value on the CPU."""

    held: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: Tensor) -> SimulatedTensor:
        strided = held.layout == torch.strided
        made: SimulatedTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride() if strided else None,
            storage_offset=held.storage_offset() if strided else None,
            dtype=held.dtype,
            layout=held.layout,
            device=CARD,
        )
        made.held = held
        return made

    def tolist(self) -> Any:
        RECORD.note("tolist", "read")
        return self.held.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy it to the host")

    def __array__(self, *arguments: Any, **options: Any) -> Any:
        return self.numpy()

    def __repr__(self, **options: Any) -> str:
        return f"SimulatedTensor({self.held})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


@cache
def _names(func: Any) -> tuple[str, str]:
    """Name of an operator without and with its overload."""
    return func._schema.name.removeprefix("aten::"), str(func).removeprefix("aten.")


def _tensors(tree: Any, found: list[Tensor]) -> list[Tensor]:
    """The tensors among arguments, added to `found`."""
    if isinstance(tree, Tensor):
        found.append(tree)
    elif isinstance(tree, list | tuple):
        for part in tree:
            _tensors(part, found)
    return found


def _held(tree: Any) -> Any:
    """Arguments with the values of simulated tensors."""
    if isinstance(tree, SimulatedTensor):
        return tree.held
    return type(tree)(map(_held, tree)) if isinstance(tree, list | tuple) else tree


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute an operator on the values of its operands, and give its result their device."""
    name, full = _names(func)
    operands = _tensors(tuple(kwargs.values()), _tensors(args, []))
    on_device = [single for single in operands if isinstance(single, SimulatedTensor)]
    wanted = kwargs.get("device")
    if not on_device and not _is_cuda(wanted):
        return func(*args, **kwargs)
    RECORD.operators[full] += 1
    if name == "is_pinned":
        return True
    if name == "_pin_memory":
        return args[0]
    _check(
        func, name, args, kwargs, on_device, [single for single in operands if not isinstance(single, SimulatedTensor)]
    )
    plain = {key: _held(value) for key, value in kwargs.items()}
    if _is_cuda(wanted):
        plain["device"] = torch.device("cpu")
    plain |= {"pin_memory": False} if "pin_memory" in plain else {}
    actual = func(*map(_held, args), **plain)
    if name == "copy_":
        return args[0]
    if wanted is not None and not _is_cuda(wanted):
        return actual
    return _simulated(actual, {id(single.held): single for single in on_device})


def _simulated(tree: Any, known: dict[int, SimulatedTensor]) -> Any:
    """Results as simulated tensors; an operand that is returned stays the same object."""
    if isinstance(tree, Tensor):
        return known.get(id(tree)) if id(tree) in known else SimulatedTensor(tree)
    return type(tree)(_simulated(part, known) for part in tree) if isinstance(tree, list | tuple) else tree


def _check(
    func: Any, name: str, args: Any, kwargs: dict[str, Any], on_device: list[Tensor], on_host: list[Tensor]
) -> None:
    """Raise an error if devices are mixed, and record whether the host waits."""
    if name in ("_to_copy", "copy_"):
        source = args[0] if name == "_to_copy" else args[1]
        leaves = isinstance(source, SimulatedTensor)
        target = kwargs.get("device")
        arrives = isinstance(args[0], SimulatedTensor) if name == "copy_" else _is_cuda(target)
        moved = leaves != arrives and (name == "copy_" or target is not None)
        waits = not (kwargs.get("non_blocking") or (name == "copy_" and len(args) > 2 and args[2]))
        if moved and waits:
            RECORD.note(name, "read" if leaves else "write")
        return
    _note_variants(name, args, kwargs)
    if name in ("_local_scalar_dense", "equal"):
        RECORD.note(name, "read")
    elif name in SIZED_BY_VALUES or (name == "repeat_interleave" and kwargs.get("output_size") is None):
        RECORD.note(name, "size")
    elif name in INDEXED:
        indices = [index for index in args[1] if index is not None]
        if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
            RECORD.note(name, "size")
        if any(not isinstance(index, SimulatedTensor) for index in indices):
            RECORD.note(name, "write")
        on_host = [single for single in on_host if not any(single is index for index in indices)]
    # The lengths of a packed sequence belong on the host; a number may be anywhere.
    if name != "_pack_padded_sequence" and any(single.dim() for single in on_host):
        shapes = [tuple(single.shape) for single in on_host if single.dim()]
        raise RuntimeError(
            f"{func}: expected all tensors to be on the same device, but found cuda:0 and cpu {shapes} at {_place()}"
        )


def _note_variants(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    """Record the arguments with which some operators have no deterministic kernel."""
    if name == "cumsum" and (args[0].is_floating_point() or args[0].is_complex()):
        RECORD.operators["cumsum of floats"] += 1
    elif name == "bincount" and (kwargs.get("weights") is not None or (len(args) > 1 and args[1] is not None)):
        RECORD.operators["bincount with weights"] += 1
    elif name in ("scatter_reduce", "scatter_reduce_") and "prod" in args:
        RECORD.operators["scatter_reduce with prod"] += 1
    elif name in ("_embedding_bag", "_embedding_bag_forward_only") and args[4:5] == (2,):
        RECORD.operators["embedding_bag with max"] += 1


@contextmanager
def simulating() -> Iterator[Record]:
    """A block with a simulated card, and the record of what happens on it."""

    class Mode(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # Skipping would import torch's compiler and slow down every operator.
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return _run(func, args, kwargs or {})

    with Mode():
        yield RECORD


def pretend_cuda() -> None:
    """Replace what torch.cuda asks of a driver, and what needs kernels of a card, in this process."""
    torch._C._set_only_lift_cpu_tensors(True)
    # module.to() replaces parameters, because the data of a parameter cannot change its class.
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    # Tensors of inference mode cannot be wrapped.
    torch.inference_mode = torch.no_grad
    torch.compile = lambda function, **options: function
    torch.cuda._lazy_init = lambda: None
    torch.cuda.is_available = lambda: True
    torch.cuda.is_bf16_supported = lambda including_emulation=True: True
    torch.cuda.get_device_capability = lambda device=None: (9, 0)
    torch.cuda.manual_seed = lambda seed: None
    torch.cuda.synchronize = lambda device=None: None
    torch.Tensor.pin_memory = lambda self, device=None: self
    _replace_lstm()
    _replace_attention()


def _replace_lstm() -> None:
    """cuDNN's LSTM, one layer and one direction, as single steps."""
    library = torch._VF.lstm

    def lstm(x: Tensor, hx: Any, weights: Any, *others: Any) -> Any:
        if not x.is_cuda:
            return library(x, hx, weights, *others)
        RECORD.operators[f"cudnn_lstm.{str(x.dtype).removeprefix('torch.')}"] += 1
        RECORD.operators["cudnn_lstm.autocast"] += torch.is_autocast_enabled("cuda")
        w_ih, w_hh, b_ih, b_hh = weights
        h, c = hx[0][0], hx[1][0]
        outputs = []
        for gates in x @ w_ih.t() + (b_ih + b_hh):
            i, f, g, o = (gates + h @ w_hh.t()).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            outputs.append(h)
        return torch.stack(outputs), h[None], c[None]

    torch._VF.lstm = lstm


def _replace_attention() -> None:
    """Record masks and types of fused attention, and compute it by its formula: a CUDA build asks the driver for a
    kernel."""
    library = F.scaled_dot_product_attention

    def attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **options: Any) -> Tensor:
        if not q.is_cuda:
            on_host: Tensor = library(q, k, v, attn_mask=attn_mask, **options)
            return on_host
        mask = "none" if attn_mask is None else f"{attn_mask.dtype}".removeprefix("torch.")
        RECORD.operators[f"attention.{str(q.dtype).removeprefix('torch.')}.{mask}"] += 1
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            # The formula adds its mask.
            attn_mask = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill(~attn_mask, float("-inf"))
        actual: Tensor
        actual, _ = torch.ops.aten._scaled_dot_product_attention_math(q, k, v, attn_mask, **options)
        return actual

    F.scaled_dot_product_attention = attention
