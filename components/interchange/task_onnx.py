"""ONNX export of a trained task model: the graph from piece ids to probabilities, and its int8 version."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from components.errors import ConfigError
from components.interchange.onnx import export_graph
from components.task_models.base import most_pieces
from components.task_models.classifier import TextClassifier
from components.task_models.heads import RegressionHead
from components.task_models.inputs import reads_apart
from components.task_models.model import TaskModel
from components.tasks.data import Fields

MODEL: Final = "model.onnx"
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
    """Write the graph: the inputs of `export_graph`, for pairs with segments -> `outputs` (batch, labels), float32.

    Raises:
        ConfigError: the required packages are missing, or ONNX cannot express the computation.
    """
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
    """Quantise the matrices of a graph to 8 bits, the activations at run time (dynamic quantisation of onnxruntime).

    Raises:
        ConfigError: onnxruntime is missing.
    """
    try:
        import onnx
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError as error:
        raise ConfigError("int8 needs the package onnxruntime: pip install onnxruntime") from error
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
    """The outputs of the graph of a folder, one row at a time.

    Returns:
        N vectors (C,).

    Raises:
        ConfigError: onnxruntime is missing.
    """
    try:
        import onnxruntime
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ConfigError(f"the exported model needs the package {error.name}: pip install {error.name}") from error
    config = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
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
