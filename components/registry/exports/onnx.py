"""ONNX export of an encoder's computation graph and of a trained task model, its int8 version, and predictions of the
exported graph by onnxruntime and tokenizers, as a user of the folder computes them."""

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from components.core.errors import ConfigError, extras
from components.data.tasks.data import Fields
from components.interchange.tokenizer_json import library_tokenizer, template
from components.learners.task_models.base import most_pieces
from components.learners.task_models.classifier import TextClassifier
from components.learners.task_models.heads import RegressionHead
from components.learners.task_models.inputs import reads_apart
from components.learners.task_models.model import TaskModel
from components.models.base import LanguageModel
from components.tokenization.special import END, FIRST_ORDINARY, SPECIAL_PIECES, UNK

MODEL: Final = "model.onnx"
#: With more bytes of weights, they are written to a second file (size limit of a Protocol Buffers message).
_LARGEST: Final = 1 << 30


class _Encoder(nn.Module):
    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, inside: Tensor) -> tuple[Tensor, ...]:
        tokens, lengths = _filled(tokens, inside)
        states = self.model.hidden_states(tokens, lengths)
        return (self.model.summary(states[-1], lengths), *states)


def _filled(tokens: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens, and lengths of at least 1: a text without any piece has the unknown one, as in `TextClassifier`."""
    lengths = inside.sum(1)
    first = torch.where(lengths == 0, torch.full_like(lengths, UNK), tokens[:, 0])
    return torch.cat([first[:, None], tokens[:, 1:]], 1), lengths.clamp(min=1)


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
    """Write a module as an ONNX graph with a dynamic batch size and length. Inputs, int64, (batch, length):
    `input_ids` with special pieces, `attention_mask`, 0 at padding; with `segments` also `token_type_ids`."""
    with extras():
        import onnxscript  # noqa: F401  (required by torch's exporter)
    # Sizes that are unlikely to equal another dimension, so that the exporter does not treat them as constants.
    inside = (torch.arange(7) < torch.tensor([[7], [5], [6]])).long()
    tokens = FIRST_ORDINARY * inside
    tokens[:, 0] = END
    inputs: dict[str, Tensor] = {"input_ids": tokens, "attention_mask": inside}
    if segments:
        inputs["token_type_ids"] = torch.zeros_like(tokens)
        inputs["token_type_ids"][:, 4:] = 1
    shape = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=encoder.max_tokens)}
    shapes: dict[str, Any] = dict.fromkeys(inputs, shape)
    size = sum(parameter.numel() * parameter.element_size() for parameter in graph.parameters())
    before = logging.root.manager.disable
    # Warnings about packages that are not installed, and about the parts of torch that are passed.
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                graph.eval(),
                tuple(inputs.values()),
                path,
                input_names=list(inputs),
                output_names=outputs,
                dynamic_shapes=tuple(shapes.values()),
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
    finally:
        logging.disable(before)


def write_onnx(path: Path, model: LanguageModel) -> list[str]:
    """Write `hidden_states` and `summary` as a graph; returns log lines. Outputs: `summary` (batch, width), and
    `layer_0` (the embeddings) .. `layer_L` (batch, length, width)."""
    layers = len(model.layer_groups())
    export_graph(path, _Encoder(model), model, outputs=["summary", *(f"layer_{layer}" for layer in range(layers))])
    return [f"{MODEL}: input_ids, attention_mask -> summary, layer_0 .. layer_{layers - 1}"]


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

    def forward(self, tokens: Tensor, inside: Tensor, segments: Tensor | None = None) -> Tensor:
        tokens, lengths = _filled(tokens, inside)
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


def write_tokenizer(path: Path, classifier: TextClassifier) -> None:
    """Write a tokenizer.json that adds special pieces, cuts what is too long, and pads the texts of a batch."""
    encoder = classifier.model.encoder
    tokenizer = library_tokenizer(classifier.tokenizer)
    tokenizer.post_processor = template(encoder, classifier.tokenizer.pieces)
    tokenizer.enable_padding(pad_id=0, pad_token=SPECIAL_PIECES[0])
    # Families may count a special piece that only an empty text has.
    added = len(encoder.special_tokens([-1])) - 1 - len(encoder.special_tokens([]))
    tokenizer.enable_truncation(most_pieces(classifier.settings, encoder) + added)
    tokenizer.save(str(path))


#: Kind of task -> the expression of the answers from `outputs` (batch, labels); of other kinds, a number.
ANSWERS: Final = {
    "classification": "[labels[number] for number in outputs.argmax(1)]",
    "pair": "[labels[number] for number in outputs.argmax(1)]",
    "multilabel": "[[label for label, share in zip(labels, row) if share >= 0.5] for row in outputs]",
}


def snippet(classifier: TextClassifier) -> str:
    """Python code that answers in the folder of the graph, with onnxruntime and tokenizers."""
    pairs = classifier.kind in PAIRS
    texts = [("a text", "another one"), ("two", "texts")] if pairs else ["a text", "another one"]
    names = {"input_ids": "ids", "attention_mask": "attention_mask"} | ({"token_type_ids": "type_ids"} if pairs else {})
    inputs = ", ".join(f'"{name}": np.array([row.{field} for row in rows])' for name, field in names.items())
    labels = f'labels = json.load(open("{CONFIG}"))["labels"]\n' if classifier.kind in ANSWERS else ""
    return (
        f"import json\n\nimport numpy as np\nimport onnxruntime\nfrom tokenizers import Tokenizer\n\n{labels}"
        f'rows = Tokenizer.from_file("{TOKENIZER}").encode_batch({texts!r})\n'
        f'outputs = onnxruntime.InferenceSession("{MODEL}").run(None, {{{inputs}}})[0]\n'
        f"print({ANSWERS.get(classifier.kind, 'outputs[:, 0].tolist()')})\n"
    )


def predict(directory: Path, rows: Sequence[Fields], *, int8: bool = False) -> list[NDArray[np.float32]]:
    """The outputs of the graph of a folder, one row at a time."""
    with extras():
        import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(directory / TOKENIZER))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    graph = str(directory / (INT8 if int8 else MODEL))
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    names = {given.name for given in session.get_inputs()}
    answers = []
    for row in rows:
        encoded = tokenizer.encode(row[0], row[1] if len(row) > 1 else None)
        inputs = {
            "input_ids": encoded.ids,
            "attention_mask": encoded.attention_mask,
            "token_type_ids": encoded.type_ids,
        }
        given = {name: np.asarray([value], dtype=np.int64) for name, value in inputs.items() if name in names}
        answers.append(np.asarray(session.run(None, given)[0][0], dtype=np.float32))
    return answers
