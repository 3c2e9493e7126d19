"""float32 or bfloat16: weights stay float32, bf16 is what matrix products are computed in (autocast)."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Literal, Protocol

import torch

from components.models.base import Batch, Carry, LanguageModel, Losses

Precision = Literal["float32", "bf16"]

#: bf16 is taken on a CPU if it is at least this much faster; below, its coarser numbers are not worth it.
WORTHWHILE = 1.1
#: Steps are timed until one precision is clearly ahead, and at most so many.
CLEAR = 2.0
TIMED_STEPS = 3


class Timed(Protocol):
    """What can be timed: a module with a loss."""

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses: ...
    def zero_grad(self, set_to_none: bool = True) -> None: ...


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    """The context in which a forward pass runs."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def has_bf16(device: torch.device) -> bool:
    """Whether the device has instructions for bfloat16; without them it is slow."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()


def machine(device: torch.device) -> str:
    """What `choose` depends on besides the model: the name of the card, or what the processor can compute with."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.backends.cpu.get_cpu_capability()}{' bf16' if has_bf16(device) else ''}"


def choose(model: Timed, batch: Batch, wish: Literal["auto", "float32", "bf16"], device: torch.device) -> Precision:
    """The precision to train in: the wish, or for `auto` what suits the device.

    A GPU that has bf16 uses it. A CPU uses it if it has instructions for it (AMX or AVX512-BF16) and a few steps of
    this model on this batch are faster with it. The choice depends on a clock, so whoever asks keeps it: a language
    model in its checkpoint, fine-tuning for all starts of a family. A run that goes on does so in the precision it
    began with.
    """
    if wish != "auto":
        return wish
    if device.type == "cuda" or not has_bf16(device):
        return "bf16" if has_bf16(device) else "float32"
    choices: tuple[Precision, Precision] = ("float32", "bf16")
    # In turns, so that a busy moment of the machine does not decide; the least time is the undisturbed one.
    times = {precision: [_seconds(model, batch, precision, device)] for precision in choices}
    gain = 1.0
    for _ in range(TIMED_STEPS):
        for precision in choices:
            times[precision].append(_seconds(model, batch, precision, device))
        gain = min(times["float32"][1:]) / min(times["bf16"][1:])
        if not WORTHWHILE / CLEAR < gain < WORTHWHILE * CLEAR:
            break
    return choices[gain > WORTHWHILE]


def _seconds(model: Timed, batch: Batch, precision: Precision, device: torch.device) -> float:
    # Of the processor, not of the clock: whoever else is at work on the machine does not decide.
    began = time.process_time()
    with computing(precision, device):
        loss = model.losses(batch).loss
    loss.backward()
    model.zero_grad(set_to_none=True)
    return time.process_time() - began


def product_size(model: LanguageModel) -> int:
    """Number of parameters in the matrices of the layers above the embeddings."""
    return sum(p.numel() for group in model.layer_groups()[1:] for p in group if p.ndim > 1)
