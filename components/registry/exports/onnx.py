"""ONNX export of an encoder's computation graph and of a trained task model, its int8 version, and predictions of the
exported graph by onnxruntime and tokenizers, as a user of the folder computes them."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.core.artifacts import json_of
from components.core.errors import ConfigError, extras
from components.data.tasks.data import Fields
from components.learners.task_models.base import most_pieces
from components.learners.task_models.classifier import TextClassifier
from components.learners.task_models.heads import RegressionHead
from components.learners.task_models.inputs import reads_apart
from components.learners.task_models.model import TaskModel
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
    """One layer of `torch._VF.lstm` as ONNX's LSTM operator, whose order of gates is input, output, forget, cell."""
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
    """Write a module as an ONNX graph with a dynamic batch size and length. Inputs, int64: `tokens` (batch, length)
    with special pieces, padded with 0; `lengths` (batch,); with `segments` also `segments` (batch, length)."""
    with extras():
        import onnxscript  # noqa: F401  (required by torch's exporter)
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
            # Its warnings about packages that are not installed.
            logging.getLogger("torch.onnx").setLevel(logging.ERROR)
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
    """Write `hidden_states` and `summary` as a graph; returns log lines. Outputs: `summary` (batch, width), and
    `layer_0` (the embeddings) .. `layer_L` (batch, length, width)."""
    layers = len(model.layer_groups())
    export_graph(path, _Encoder(model), model, outputs=["summary", *(f"layer_{layer}" for layer in range(layers))])
    if not _agrees(path, model):
        raise ConfigError(
            f"{type(model).__name__} cannot be exported to ONNX: the exported graph has a fixed batch size or length"
        )
    return [f"{MODEL}: tokens, lengths -> summary, layer_0 .. layer_{layers - 1}"]


def _agrees(path: Path, model: LanguageModel) -> bool:
    """Whether graph and model agree for another batch size and length, which the exporter may treat as constants."""
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


INT8: Final = "model.int8.onnx"
CONFIG: Final = "config.json"
TOKENIZER: Final = "tokenizer.json"
#: Kinds that read one text, and those that read two in one sequence.
SINGLE: Final = ("classification", "multilabel", "regression")
PAIRS: Final = ("pair", "similarity")


class _Graph(nn.Module):
    def __init__(self, model: TaskModel, kind: str) -> None:
        super().__init__()
        self.model, self.kind = model, kind

    def forward(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        hidden = self.model.encoder.hidden_states(tokens, lengths, segments)
        outputs = self.model.head(self.model.features(hidden, lengths)).float()
        if isinstance(self.model.head, RegressionHead):
            return self.model.head.low + self.model.head.range * outputs
        return outputs.sigmoid() if self.kind == "multilabel" else outputs.softmax(1)


def refuse(classifier: TextClassifier) -> None:
    """Check that one graph of one sequence expresses a task model.

    Raises:
        ConfigError: it does not; the message says why and names what does.
    """
    problem = f"the answer of a {classifier.kind} task is decoded outside of a graph"
    if classifier.kind in (*SINGLE, *PAIRS) and not (problem := several_parts(classifier)):
        return
    raise ConfigError(f"ONNX cannot express this model: {problem}; `--format container` serves every model")


def several_parts(classifier: TextClassifier) -> str:
    """Why a model is not one network on one sequence, as a sentence; empty if it is."""
    model, settings = classifier.model, classifier.settings
    if classifier.words is not None:
        return "it is combined with a model of words (finetune.<name>.words)"
    if classifier.kind in PAIRS and reads_apart(settings, model.encoder):
        return "it reads two texts as two sequences"
    if model.combine is not None or (settings.chunk is not None and not model.of_units):
        return "it reads long texts in parts (chunk)"
    return ""


def write_task_graph(path: Path, classifier: TextClassifier) -> None:
    """Write the graph: the inputs of `export_graph`, for pairs with segments -> `outputs` (batch, labels), float32."""
    refuse(classifier)
    export_graph(
        path,
        _Graph(classifier.model, classifier.kind),
        classifier.model.encoder,
        outputs=["outputs"],
        segments=classifier.kind in PAIRS,
        instead="; `--format container` serves it",
    )


def write_int8(source: Path, target: Path) -> None:
    """Quantise the matrices of a graph to 8 bits, the activations at run time (dynamic quantisation of onnxruntime)."""
    with extras():
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
    model = onnx.load(str(source))
    # The exporter notes shapes of the example inputs, which contradict those that are inferred.
    del model.graph.value_info[:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantize_dynamic(model, target, weight_type=QuantType.QInt8)


def templates(classifier: TextClassifier) -> dict[str, Any]:
    """How pieces are joined with special pieces: `template`, in which -1 and -2 stand for the pieces of the first and
    of the second text, `segments` of its entries, and `room`, the maximum number of pieces of the texts."""
    encoder, most = classifier.model.encoder, most_pieces(classifier.settings, classifier.model.encoder)
    if classifier.kind in PAIRS:
        template, segments = encoder.pair_tokens([-1], [-2])
        room = most - len(encoder.pair_tokens([], [])[0])
        return {"template": list(template), "segments": list(segments), "room": room}
    template = list(encoder.special_tokens([-1]))
    return {"template": template, "segments": [0] * len(template), "room": most - len(encoder.special_tokens([]))}


def predict(directory: Path, rows: Sequence[Fields], *, int8: bool = False) -> list[NDArray[np.float32]]:
    """The outputs of the graph of a folder, one row at a time."""
    with extras():
        import onnxruntime
    from tokenizers import Tokenizer

    config = json_of(directory / CONFIG)
    tokenizer = Tokenizer.from_file(str(directory / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    graph = str(directory / (INT8 if int8 else MODEL))
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    names = {given.name for given in session.get_inputs()}
    answers = []
    for row in rows:
        pieces = [list(tokenizer.encode(text, add_special_tokens=False).ids) for text in row]
        ids, segments = zip(*_joined(pieces, config), strict=True)
        inputs = {"tokens": [ids], "lengths": [len(ids)], "segments": [segments]}
        given = {name: np.asarray(value, dtype=np.int64) for name, value in inputs.items() if name in names}
        answers.append(np.asarray(session.run(None, given)[0][0], dtype=np.float32))
    return answers


def _joined(pieces: list[list[int]], config: dict[str, Any]) -> Iterator[tuple[int, int]]:
    room = max(1, config["room"])
    if len(pieces) == 1:
        pieces = [pieces[0][:room] or [config["unknown"]]]
    else:
        first, second = pieces
        kept = max(1, min(len(first), max(room - len(second), -(-room // 2))))
        pieces = [first[:kept], second[: max(1, room - kept)]]
    # The entries -1 and -2 of the template stand for the pieces of the texts.
    for entry, segment in zip(config["template"], config["segments"], strict=True):
        for piece in [entry] if entry >= 0 else pieces[-1 - entry]:
            yield piece, segment
