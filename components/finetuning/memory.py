"""Estimated memory of a fine-tuning run on a GPU, for its placement. It need not be exact: no result depends on it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from components.finetuning.specs import RunSpec
from components.models.encoder import architecture_of, count_parameters
from components.training.precision import product_size

#: Bytes that every process occupies: the CUDA context, and workspaces of cuBLAS and cuDNN.
PROCESS: Final = 10**9
#: Tensors of float32 per parameter: weights, gradient, two moments of AdamW, best weights so far.
COPIES: Final = 5
#: Assumed dimension of an attention head.
HEAD: Final = 64


def gpu_bytes(specs: Iterable[RunSpec]) -> int:
    """Bytes that the largest of these runs needs on a GPU; 0 without runs.

    A layer of width h stores h (34 + 5 a T / h) bytes per position for the backward pass, with activations of 16 bits,
    T positions and a attention heads (Korthikanti et al. 2022, equation 1). A Transformer layer has 12 h^2 parameters;
    a recurrent layer of as many parameters stores less.
    """
    distinct = {
        (spec.encoder, spec.precision, spec.settings.step_rows, spec.settings.max_length): spec for spec in specs
    }
    return max(map(_run_bytes, distinct.values()), default=0)


def _run_bytes(spec: RunSpec) -> int:
    model = architecture_of(spec.encoder)
    layers = max(1, len(model.layer_groups()) - 1)
    width = (product_size(model) / (12 * layers)) ** 0.5
    length = spec.settings.max_length
    position = width * (34 + 5 * length / HEAD) * (1 if spec.precision == "bf16" else 2)
    activations = spec.settings.step_rows * length * layers * position
    return int(PROCESS + 4 * COPIES * count_parameters(model) + activations)
