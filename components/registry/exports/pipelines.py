"""Task models as folders that `transformers.pipeline` loads. For text classification it has no class, so the folder
contains code (`exported/modeling_headstart.py`), loaded with `trust_remote_code=True`.

Shapes: F features, C outputs.
"""

from pathlib import Path
from typing import Any, Final

from safetensors.torch import save_file
from torch import Tensor, nn

from components.core.artifacts import write_json
from components.core.errors import ConfigError, nearest
from components.data.tasks.kinds import find_kind, scoring_for
from components.interchange.huggingface import CONVERTERS
from components.interchange.tokenizer_json import write_tokenizer
from components.learners.task_models.classifier import TextClassifier
from components.learners.task_models.heads import Head, RegressionHead, affine_of, scaled_blocks
from components.models.encoder import CONFIG, WEIGHTS
from components.models.sentence import NORMALIZE, Reading
from components.registry.exports.exported import __file__ as exported
from components.registry.exports.onnx import reads_pairs, several_parts
from components.settings.tasks import has
from components.training.checkpoint import below

MODULE: Final = "modeling_headstart.py"
#: Line of the model card of a folder with this module.
TRUST: Final = (
    f"this folder contains Python code, {MODULE}, because transformers has no class for the layers, the pooling or the "
    "head of this model; `trust_remote_code=True` runs that code with the rights of the user: read it first, and set "
    "this only for a folder whose origin you trust"
)
#: Families whose classes read no segments.
PLAIN: Final = ("gpt", "llama", "mpnet", "modernbert")
#: Family -> prefix of the encoder's tensors, prefix of the class names, summary of a text.
BASES: Final = {
    "bert": ("bert.", "Bert", "first"),
    "roberta": ("roberta.", "Roberta", "first"),
    "albert": ("albert.", "Albert", "first"),
    "mpnet": ("mpnet.", "MPNet", "first"),
    "modernbert": ("model.", "ModernBert", "first"),
    "gpt": ("transformer.", "GPT2", "last"),
    "llama": ("model.", "Llama", "last"),
    "xlnet": ("transformer.", "XLNet", "last"),
}
#: `Scoring.shares` -> what transformers calls it.
_PROBLEMS: Final = {
    "exclusive": "single_label_classification",
    "independent": "multi_label_classification",
    "": "regression",
}
#: How a folder that answers questions is used.
QUESTIONS: Final = """\
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

model, tokenizer = AutoModelForQuestionAnswering.from_pretrained("."), AutoTokenizer.from_pretrained(".")
inputs = tokenizer("a question", "the text that holds the answer", return_tensors="pt")
outputs = model(**inputs)
start, end = outputs.start_logits[0].argmax(), outputs.end_logits[0].argmax()
print(tokenizer.decode(inputs["input_ids"][0][start : end + 1]))
"""
Affine = tuple[Tensor, Tensor]


def write_pipeline(directory: Path, classifier: TextClassifier, *, family: str) -> tuple[list[str], str]:
    """Write config.json, model.safetensors and the tokenizer; returns log lines, and how the folder is used.

    Raises:
        ConfigError: transformers has no counterpart of the family, of the task or of a part of the model.
    """
    task = find_kind(classifier.kind).pipeline
    _refuse(classifier, family, task)
    converter = CONVERTERS[family]
    config, tensors = converter.to_huggingface(classifier.model.encoder)
    prefix, name, summary = BASES[family]
    encoder = below(prefix, tensors)
    head = affine_layers(classifier.model.head)
    config |= _labels(classifier)
    sequence = task == "text-classification"
    if sequence:
        kind = "ForSequenceClassification"
        result = _sequence(classifier, config, head, encoder, summary)
    else:
        kind = "ForTokenClassification" if task == "token-classification" else "ForQuestionAnswering"
        ((weight, bias),) = head
        output = "classifier" if task == "token-classification" else "qa_outputs"
        result = {prefix + key: value for key, value in encoder.items() if not key.startswith("pooler.")}
        result |= {f"{output}.weight": weight, f"{output}.bias": bias}
    config["architectures"] = [("Headstart" if sequence else name) + kind]
    if sequence:
        config["auto_map"] = {"AutoModelForSequenceClassification": f"modeling_headstart.Headstart{kind}"}
        text = Path(exported).with_name(MODULE).read_text(encoding="utf-8")
        (directory / MODULE).write_text(text.replace("BertConfig", f"{name}Config"), encoding="utf-8")
    write_json(directory / CONFIG, config)
    save_file({key: value.contiguous().clone() for key, value in result.items()}, directory / WEIGHTS, {"format": "pt"})
    notes = write_tokenizer(
        directory, classifier.tokenizer, classifier.model.encoder, segments=family not in PLAIN,
        padding=converter.padding,
    )  # fmt: skip
    trust = ", trust_remote_code=True" if sequence else ""
    example = {"text": "a text", "text_pair": "another one"} if reads_pairs(classifier) else "a text"
    usage = f'from transformers import pipeline\n\nmodel = pipeline("{task}", "."{trust})\nprint(model({example!r}))\n'
    if task == "question-answering":
        # Version 5 of transformers has no pipeline for it.
        usage = QUESTIONS
    return [
        f"{config['architectures'][0]}: {len(result)} tensors{' and a module of its own' * sequence}",
        *notes,
    ], usage


def _refuse(classifier: TextClassifier, family: str, task: str | None) -> None:
    model, settings = classifier.model, classifier.settings
    problem = ""
    if family not in CONVERTERS:
        problem = f"the family {family!r} has no counterpart in transformers{nearest(family, CONVERTERS)}"
    elif task is None:
        problem = f"transformers has no pipeline for a {classifier.kind} task"
    elif reason := several_parts(classifier):
        problem = reason
    elif getattr(model.encoder, "task", None) is not None:
        problem = "its special tokens of tasks have no counterpart in transformers"
    elif settings.pooling == "trained" and task == "text-classification" and _trained(classifier) is None:
        problem = "the pooling or the further layers of its sentence encoder have no counterpart in the exported module"
    elif task != "text-classification":
        plain = settings.layers == "last" and not settings.head_hidden and not scaled_blocks(model.head)
        if family in ("gpt", "llama", "xlnet"):
            problem = f"transformers reads another piece of a word than {family} does here"
        elif family == "modernbert":
            problem = "transformers' ModernBERT has a further layer before the output"
        elif has(classifier.kind, "words") and settings.tagger != "linear":
            problem = f"tagger: {settings.tagger} has no counterpart in transformers"
        elif not plain:
            problem = (
                "transformers reads one layer by one linear layer (layers: last, head_hidden: 0, head_norm: fixed)"
            )
    if problem:
        raise ConfigError(f"{problem}; `--format onnx` or container may express the model")


def _trained(classifier: TextClassifier) -> tuple[str, bool] | None:
    """The pooling of a sentence encoder in the names of the exported module, and whether vectors are scaled to length
    1; None: the module does not have it."""
    reading = classifier.model.encoder.config.reading or Reading()
    names = {"mean": "mean", "max": "max", "first": "summary"}
    plain = len(reading.pooling) == 1 and reading.pooling[0] in names and reading.after in ((), (NORMALIZE,))
    # Only of causal families is the summary not the first position.
    if not plain or (reading.prompt and not reading.pool_prompt) or classifier.model.encoder.attention != "around":
        return None if classifier.model.encoder.config.reading else ("mean", False)
    return names[reading.pooling[0]], bool(reading.after)


def affine_layers(head: Head) -> list[Affine]:
    """The linear layers of a head with its normalisations folded in, in float64: (C, F) and (C,) of each, with a ReLU
    between two. The output of a regression is on the scale of its targets."""
    pairs: list[tuple[nn.Module, nn.Module]] = [(head.norm, head.output)]
    if isinstance(head.hidden, nn.Sequential):
        pairs = [(head.norm, head.hidden[0]), (head.hidden[2], head.output)]
    layers = []
    for norm, layer in pairs:
        assert isinstance(layer, nn.Linear)
        weight, bias = layer.weight.detach().double(), layer.bias.detach().double()
        if (affine := affine_of(norm)) is not None:
            scale, offset = affine
            weight, bias = weight * scale, bias + weight @ offset
        layers.append((weight, bias))
    if isinstance(head, RegressionHead):
        weight, bias = layers[-1]
        layers[-1] = (weight * head.range.double(), bias * head.range.double() + head.low.double())
    return [(weight.float(), bias.float()) for weight, bias in layers]


def _labels(classifier: TextClassifier) -> dict[str, Any]:
    if has(classifier.kind, "context"):
        return {}
    names = dict(enumerate(["value"] if has(classifier.kind, "score") else classifier.labels))
    result: dict[str, Any] = {
        "id2label": {str(number): name for number, name in names.items()},
        "label2id": {name: number for number, name in names.items()},
    }
    if not has(classifier.kind, "words"):
        result["problem_type"] = _PROBLEMS[scoring_for(classifier.kind, classifier.labels).shares]
    return result


def _sequence(
    classifier: TextClassifier, config: dict[str, Any], head: list[Affine], encoder: dict[str, Tensor], summary: str
) -> dict[str, Tensor]:
    """The tensors of `exported/modeling_headstart.py`; describes the head in `config`."""
    features, settings = classifier.model.features, classifier.settings
    mix = features.mix
    pooling: str = settings.pooling
    unit = settings.unit_length
    if pooling == "trained" and (trained := _trained(classifier)) is not None:
        pooling, unit = trained[0], trained[1] or unit
    config["headstart"] = {
        "layers": settings.layers,
        "pooling": pooling,
        "unit_length": unit,
        "summary": summary,
        "widths": [head[0][0].shape[1], *(len(bias) for _, bias in head)],
        "mix": 0 if mix is None else len(mix.scores),
        "blocks": scaled_blocks(classifier.model.head),
    }
    result = {f"encoder.{key}": value for key, value in encoder.items()}
    for index, (weight, bias) in enumerate(head):
        result |= {f"head.{2 * index}.weight": weight, f"head.{2 * index}.bias": bias}
    if mix is not None:
        result["mix"] = (mix.gamma * mix.scores.softmax(0)).detach()
    if config["headstart"]["blocks"]:
        # The std of a block scales all of it, which its length does not keep.
        result["centre"] = classifier.model.head.get_buffer("norm.mean")
    return result
