"""Device and precision of training: float32, or `bf16` matrix products (torch.autocast). `auto` is decided by
instructions and size, never by measured time, so that the same type of processor computes the same numbers."""

from contextlib import AbstractContextManager
from typing import Final, Literal

import torch

from components.models.base import LanguageModel

Precision = Literal["float32", "bf16"]

#: Model size (`product_size`) from which `auto` uses bf16 on a CPU with bf16 instructions. From here on a training step
#: takes at most 0.85 of the time in float32, with and without the language model's output layer; below 20,000 some
#: models are slower (docs/results/precision.json).
BF16_SIZE: Final = 100_000


def first_device() -> torch.device:
    """The first GPU that this process sees; the CPU if it sees none."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def computing(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def has_bf16(device: torch.device) -> bool:
    """Whether the device has bf16 instructions: a CPU with AMX or AVX512-BF16, a GPU with compute capability >= 8.0."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()


def product_size(model: LanguageModel) -> int:
    """Number of parameters in the matrices of all layers above the embeddings, independent of the vocabulary."""
    return sum(
        parameter.numel() for layer in model.layer_groups()[1:] for parameter in layer if parameter.ndim > 1
    )  # fmt: skip


def choose(requested: Literal["auto", "float32", "bf16"], *, device: torch.device, size: int) -> Precision:
    """The precision to train in: the requested one; `auto` is bf16 on a GPU with bf16 instructions, and on a CPU with
    them if the model is large enough; else float32."""
    if requested != "auto":
        return requested
    return "bf16" if has_bf16(device) and (device.type == "cuda" or size >= BF16_SIZE) else "float32"
