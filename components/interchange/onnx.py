"""ONNX export of an encoder's computation graph."""

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
#: Tolerance of the comparison with the model's output.
TOLERANCE: Final = 1e-3
#: With more bytes of weights, they are written to a second file (size limit of a Protocol Buffers message).
_LARGEST: Final = 1 << 30


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
    """One layer of `torch._VF.lstm` as ONNX's LSTM operator; torch would unroll the time steps of a fixed length.

    The order of the gates is input, output, forget, cell in ONNX, and input, forget, cell, output in torch.
    """
    from onnxscript import opset18 as op

    if (has_biases, num_layers, bidirectional, batch_first) != (True, 1, False, False):
        raise TypeError("only unidirectional single layers with biases and time-major input are supported")
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


def export_graph(
    path: Path,
    graph: nn.Module,
    encoder: LanguageModel,
    *,
    outputs: Sequence[str],
    segments: bool = False,
    instead: str = "",
) -> None:
    """Write a module as an ONNX graph with a dynamic batch size and length.

    Inputs: `tokens` (batch, length) int64 with special pieces, padded with 0; `lengths` (batch,) int64; with `segments`
    also `segments` (batch, length) int64.

    Args:
        segments: whether it reads segments.
        instead: end of the message if ONNX cannot express the computation.

    Raises:
        ConfigError: the required packages are missing, or ONNX cannot express the computation.
    """
    try:
        import onnxscript  # noqa: F401  (required by torch's exporter)
    except ImportError as error:
        raise ConfigError(
            "export to ONNX needs the packages onnx and onnxscript: pip install onnx onnxscript"
        ) from error
    # Sizes that are unlikely to equal another dimension, so that the exporter does not treat them as constants.
    tokens = torch.full((3, 7), FIRST_ORDINARY).masked_fill(torch.arange(7) >= torch.tensor([[7], [5], [6]]), 0)
    tokens[:, 0] = END
    inputs: dict[str, Tensor] = {"tokens": tokens, "lengths": torch.tensor([7, 5, 6])}
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=encoder.max_tokens)
    shapes: dict[str, Any] = {"tokens": {0: batch, 1: length}, "lengths": {0: batch}}
    if segments:
        inputs["segments"] = torch.zeros_like(tokens)
        inputs["segments"][:, 4:] = 1
        shapes["segments"] = {0: batch, 1: length}
    size = sum(parameter.numel() * parameter.element_size() for parameter in graph.parameters())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                graph.eval(),
                tuple(inputs.values()),
                path,
                input_names=list(inputs),
                output_names=outputs,
                dynamic_shapes=shapes,
                custom_translation_table={torch.ops.aten.lstm.input: _lstm},
                dynamo=True,
                external_data=size > _LARGEST,
                verbose=False,
            )
    except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
        raise ConfigError(
            f"{type(encoder).__name__} cannot be exported to ONNX: torch's exporter does not support its "
            f"data-dependent computation ({type(error.__cause__ or error).__name__}){instead}"
        ) from error


def write_onnx(path: Path, model: LanguageModel) -> list[str]:
    """Write `hidden_states` and `summary` as a graph; returns log lines.

    Outputs: `summary` (batch, width), and `layer_0` (the embeddings) .. `layer_L` (batch, length, width).

    Raises:
        ConfigError: the required packages are missing, or ONNX cannot express the computation.
    """
    layers = len(model.layer_groups())
    export_graph(path, _Encoder(model), model, outputs=["summary", *(f"layer_{layer}" for layer in range(layers))])
    if not _agrees(path, model):
        raise ConfigError(
            f"{type(model).__name__} cannot be exported to ONNX: the exported graph has a fixed batch size or length"
        )
    return [f"{MODEL}: tokens, lengths -> summary, layer_0 .. layer_{layers - 1}"]


def _agrees(path: Path, model: LanguageModel) -> bool:
    """Whether the graph and the model agree for another batch size and length.

    The exporter may silently treat a dimension as constant.
    """
    from onnx.reference import ReferenceEvaluator

    tokens, lengths = torch.full((2, 4), FIRST_ORDINARY), torch.tensor([4, 4])
    with torch.no_grad():
        expected = _Encoder(model)(tokens, lengths)
    try:
        result = ReferenceEvaluator(str(path)).run(None, {"tokens": tokens.numpy(), "lengths": lengths.numpy()})
    except Exception:  # any operator may fail on an unexpected shape
        return False
    return all(
        other.shape == tuple(ours.shape) and np.allclose(other, ours.numpy(), atol=TOLERANCE, rtol=TOLERANCE)
        for ours, other in zip(expected, result, strict=True)
    )
