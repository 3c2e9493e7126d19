"""ONNX: the encoder's computation, for any runtime that reads it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from components.errors import ConfigError
from components.models.base import LanguageModel
from components.tokenization.special import END, FIRST_ORDINARY

MODEL: Final = "model.onnx"
#: Difference from the model's own output up to which a graph is right.
TOLERANCE: Final = 1e-3
#: Above this many bytes of weights a file needs a second one beside it (the limit of a Protocol Buffers message).
LARGEST: Final = 1 << 30


class _Encoder(nn.Module):
    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        states = self.model.hidden_states(tokens, lengths)
        return (self.model.summary(states[-1], lengths), *states)


def _lstm(
    input: Any, hx: Sequence[Any], params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """One layer of `torch._VF.lstm` as ONNX's operator; torch itself would write out each step of one length.

    ONNX orders the gates input, output, forget, cell; torch input, forget, cell, output.
    """
    from onnxscript import opset18 as op

    if (has_biases, num_layers, bidirectional, batch_first) != (True, 1, False, False):
        raise TypeError("only single layers in one direction, with biases and time first, are used here")
    w_ih, w_hh, *biases = [
        op.Concat(*(op.Split(part, num_outputs=4, axis=0)[gate] for gate in (0, 3, 1, 2)), axis=0) for part in params
    ]
    first = op.Constant(value_ints=[0])
    out_T1BH, h_1BH, c_1BH = op.LSTM(
        input,
        op.Unsqueeze(w_ih, first),
        op.Unsqueeze(w_hh, first),
        op.Unsqueeze(op.Concat(*biases, axis=0), first),
        None,
        hx[0],
        hx[1],
        hidden_size=params[1].shape[1],
    )
    return op.Squeeze(out_T1BH, op.Constant(value_ints=[1])), h_1BH, c_1BH


def write_onnx(path: Path, model: LanguageModel) -> list[str]:
    """Write `hidden_states` and `summary` as a graph; returns what to know.

    Inputs: `tokens` (batch, length) int64 with the special pieces, padded with 0, and `lengths` (batch,) int64.
    Outputs: `summary` (batch, width) and `layer_0` (the embeddings) .. `layer_L` (batch, length, width). Batch and
    length are free.

    Raises:
        ConfigError: the packages for it are missing, or the family computes something that ONNX cannot say.
    """
    try:
        import onnxscript  # noqa: F401  (what torch's exporter is written in)
    except ImportError as error:
        raise ConfigError(
            "export to ONNX needs the packages onnx and onnxscript: pip install onnx onnxscript"
        ) from error
    layers = len(model.layer_groups())
    # Sizes that nothing in a model is likely to equal, so that none is taken for a constant.
    tokens = torch.full((3, 7), FIRST_ORDINARY).masked_fill(torch.arange(7) >= torch.tensor([[7], [5], [6]]), 0)
    tokens[:, 0] = END
    inputs = (tokens, torch.tensor([7, 5, 6]))
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=model.max_tokens)
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                _Encoder(model.eval()),
                inputs,
                path,
                input_names=["tokens", "lengths"],
                output_names=["summary", *(f"layer_{layer}" for layer in range(layers))],
                dynamic_shapes={"tokens": {0: batch, 1: length}, "lengths": {0: batch}},
                custom_translation_table={torch.ops.aten.lstm.input: _lstm},
                dynamo=True,
                external_data=size > LARGEST,
                verbose=False,
            )
    except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
        raise ConfigError(
            f"{type(model).__name__} cannot be written as ONNX: what it computes depends on the pieces of a text in a "
            f"way that torch's exporter does not follow ({type(error.__cause__ or error).__name__})"
        ) from error
    if not _agrees(path, model):
        raise ConfigError(
            f"{type(model).__name__} cannot be written as ONNX: torch fixes the number or the length of texts"
        )
    return [f"{MODEL}: tokens, lengths -> summary, layer_0 .. layer_{layers - 1}"]


def _agrees(path: Path, model: LanguageModel) -> bool:
    """Whether the graph says what the model says for another number of texts of another length.

    The exporter may take a size for a constant without a word.
    """
    from onnx.reference import ReferenceEvaluator

    tokens, lengths = torch.full((2, 4), FIRST_ORDINARY), torch.tensor([4, 4])
    with torch.no_grad():
        expected = _Encoder(model)(tokens, lengths)
    try:
        found = ReferenceEvaluator(str(path)).run(None, {"tokens": tokens.numpy(), "lengths": lengths.numpy()})
    except Exception:  # whatever operator comes upon a shape that does not fit
        return False
    return all(
        other.shape == tuple(ours.shape) and np.allclose(other, ours.numpy(), atol=TOLERANCE, rtol=TOLERANCE)
        for ours, other in zip(expected, found, strict=True)
    )
