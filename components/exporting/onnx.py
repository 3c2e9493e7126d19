"""ONNX: the encoder's computation, for any runtime that reads it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from components.errors import ConfigError
from components.models.base import LanguageModel
from components.tokenization.special import END, FIRST_ORDINARY

MODEL: Final = "model.onnx"
#: Above this many bytes of weights a file needs a second one beside it (the limit of a Protocol Buffers message).
LARGEST: Final = 1 << 30


class _Encoder(nn.Module):
    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        states = self.model.hidden_states(tokens, lengths)
        return (self.model.summary(states[-1], lengths), *states)


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
                dynamo=True,
                external_data=size > LARGEST,
                verbose=False,
            )
    except (torch.onnx.errors.OnnxExporterError, RuntimeError, torch._dynamo.exc.TorchDynamoException) as error:
        raise ConfigError(
            f"{type(model).__name__} computes something that torch cannot write as ONNX: {str(error).splitlines()[0]}"
        ) from error
    return [f"{MODEL}: tokens, lengths -> summary, layer_0 .. layer_{layers - 1}"]
