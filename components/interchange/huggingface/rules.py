"""Bidirectional rules that map tensors to other names and layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from torch import Tensor

from components.core.errors import ArtifactError, ConfigError
from components.interchange.huggingface import Converter, Restored
from components.models.base import LanguageModel
from components.models.encoder import build_model, empty_model, misfits
from components.tokenization.special import END, PAD, START

Tensors = dict[str, Tensor]
#: Projections of an attention layer, in the order of the rows of the packed matrix.
PARTS: Final = ("query", "key", "value")


@dataclass(frozen=True)
class Rule:
    """A tensor and its published counterparts.

    Attributes:
        ours: name of the tensor; `{layer}` is replaced by the index of each layer.
        theirs: names of the published tensors, with `{layer}` as well.
        export: tensor -> published tensors, in the order of `theirs`.
        part: name of an optional part; if a file lacks it, it is initialised as in a new model. None: required.
    """

    ours: str
    theirs: tuple[str, ...]
    export: Callable[[Tensor], Sequence[Tensor]] = lambda tensor: (tensor,)
    restore: Callable[..., Tensor] = lambda tensor: tensor
    part: str | None = None


def plain(ours: str, theirs: str, *, part: str | None = None) -> Rule:
    """An equal tensor with another name."""
    return Rule(ours, (theirs,), part=part)


def transposed(ours: str, theirs: str) -> Rule:
    """The weight of a linear layer that is stored as (inputs, outputs)."""
    return Rule(ours, (theirs,), lambda tensor: (tensor.t(),), lambda tensor: tensor.t())


def packed(ours: str, *theirs: str) -> Rule:
    """A tensor whose rows are the rows of several published tensors."""
    return Rule(ours, theirs, lambda tensor: tensor.chunk(len(theirs)), lambda *tensors: torch.cat(tensors))


def module(ours: str, theirs: str, *, part: str | None = None, rule: Callable[..., Rule] = plain) -> list[Rule]:
    """Weight and bias of a layer; `rule` is the rule of the weight."""
    weight = replace(rule(f"{ours}.weight", f"{theirs}.weight"), part=part)
    return [weight, plain(f"{ours}.bias", f"{theirs}.bias", part=part)]


def attention(ours: str, theirs: str, parts: Sequence[str] = PARTS) -> list[Rule]:
    """Separately stored query, key and value projections; `theirs` contains `{}` for the name of the projection."""
    return [
        packed(f"{ours}.{kind}", *(f"{theirs.format(part, layer='{layer}')}.{kind}" for part in parts))
        for kind in ("weight", "bias")
    ]


def lstm(ours: str, theirs: str) -> list[Rule]:
    """A layer of torch's LSTM, whose two biases are added; `theirs` contains `{}` for the name of the parameter."""
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    inputs, state, *biases = (theirs.format(name, layer="{layer}") for name in names)
    weights = [plain(f"{ours}.weight_ih", inputs), plain(f"{ours}.weight_hh", state)]
    return [*weights, Rule(f"{ours}.bias", tuple(biases), lambda bias: (bias, bias), torch.add)]


def blocks(layer: str, *names: str, ours: str = "blocks.{layer}", parts: Sequence[str] = PARTS) -> list[Rule]:
    """A block with post-norm: `names` below `layer` of the projections, which contain `{}`, and of the modules."""
    projections, *modules = (f"{layer}.{name}" for name in names)
    inner = ("attention.output", "attention_norm", "expand", "contract", "norm")
    return [
        *attention(f"{ours}.attention.query_key_value", projections, parts),
        *(rule for our, their in zip(inner, modules, strict=True) for rule in module(f"{ours}.{our}", their)),
    ]


def spread(rules: Sequence[Rule], layers: int) -> list[Rule]:
    """The rules with `{layer}` replaced by the index of each layer."""

    def of_layer(name: str, layer: int) -> str:
        return name.replace("{layer}", str(layer))

    return [
        replace(rule, ours=of_layer(rule.ours, layer), theirs=tuple(of_layer(name, layer) for name in rule.theirs))
        for rule in rules
        for layer in (range(layers) if "{layer}" in rule.ours else (0,))
    ]


def exported(rules: Sequence[Rule], model: LanguageModel, layers: int) -> Tensors:
    """The published tensors of a model: float32, contiguous copies. Rules of parts that it lacks are left out."""
    ours = model.state_dict()
    return {
        name: tensor.detach().float().cpu().clone(memory_format=torch.contiguous_format)
        for rule in spread(rules, layers)
        if rule.ours in ours
        for name, tensor in zip(rule.theirs, rule.export(ours[rule.ours]), strict=True)
    }


def restored(
    family: str,
    settings: Mapping[str, Any],
    rules: Sequence[Rule],
    tensors: Mapping[str, Tensor],
    *,
    file: str = "config.json",
) -> Restored:
    """The result of `Converter.from_huggingface`; missing parts are initialised as in a new model. `file` is the file
    of the settings, for messages.

    Raises:
        ArtifactError: the settings are invalid for the family, or tensors are missing, surplus or misshapen.
    """
    settings = dict(settings)
    vocabulary = settings.pop("vocabulary")
    if settings.get("feedforward") == 4 * settings.get("width", 0):
        settings["feedforward"] = 0  # the default
    try:
        ours = empty_model(family, vocabulary=vocabulary, settings=settings).state_dict()
    except ConfigError as error:
        raise ArtifactError(f"{file}: {error}") from error
    rules = [rule for rule in spread(rules, settings["layers"]) if rule.ours in ours]
    present = {rule.part for rule in rules if any(name in tensors for name in rule.theirs)}
    missing = [rule for rule in rules if rule.part is not None and rule.part not in present]
    rules = [rule for rule in rules if rule not in missing]
    expected = {
        name: tuple(tensor.shape)
        for rule in rules
        for name, tensor in zip(rule.theirs, rule.export(ours[rule.ours]), strict=True)
    }
    if problems := misfits(expected, {name: tuple(tensor.shape) for name, tensor in tensors.items()}):
        raise ArtifactError(f"the weights do not fit {file}: {'; '.join(problems)}")
    result = {rule.ours: rule.restore(*(tensors[name].float() for name in rule.theirs)).contiguous() for rule in rules}
    result |= _fresh(family, settings, ours, [rule.ours for rule in missing])
    return Restored(settings, vocabulary, result, [name for rule in missing for name in rule.theirs])


def _fresh(family: str, settings: Mapping[str, Any], ours: Mapping[str, Tensor], names: Sequence[str]) -> Tensors:
    """Initial tensors of missing parts, deterministic: random matrices, and zero for an output bias."""
    if not names:
        return {}
    # Optional parts other than blocks do not depend on the number of layers, and none on the vocabulary, except the
    # output bias, which is zero.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        blocks = any("blocks." in name for name in names)
        smallest = {
            name: 1 for name in ("layers", "positions") if name in settings and not (blocks and name == "layers")
        }
        model = build_model(family, vocabulary=1, settings={**settings, **smallest}).state_dict()
    return {
        name: model[name] if model[name].shape == ours[name].shape else torch.zeros(ours[name].shape) for name in names
    }


#: Hugging Face's names of activations -> the families'; the first name of each is exported.
ACTIVATIONS: Final = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
}


@dataclass(frozen=True)
class Keys:
    """The keys of config.json and the settings of a family that they stand for.

    Attributes:
        numbers: setting -> key and its default in Hugging Face's class: positive whole numbers, `vocabulary` too.
        values: setting -> key and default, for other values.
        activation: key of the activation and its default; None: the family has no choice.
        only: the only activation that the class has; None: any.
        fixed: key -> its only value.
        required: key -> its only value, of keys that are not written.
        derived: width of the model -> further keys with their only values.
        written: key -> value, of keys that are not read.
    """

    numbers: Mapping[str, tuple[str, int]]
    values: Mapping[str, tuple[str, Any]]
    activation: tuple[str, str] | None = None
    only: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    required: Mapping[str, Any] = field(default_factory=dict)
    derived: Callable[[int], Mapping[str, Any]] = lambda width: {}
    written: Mapping[str, Any] = field(
        default_factory=lambda: {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END}
    )

    def write(self, config: Any, *, kind: str, architecture: str, **changes: Any) -> dict[str, Any]:
        """The content of config.json for the config of a model; `changes` are settings that are written otherwise.

        Raises:
            ArtifactError: the class does not have the activation.
        """
        ours = {"heads": config.head_count, "feedforward": config.inner, **changes}
        ours |= {name: getattr(config, name) for name in (*self.numbers, *self.values) if name not in ours}
        got = {"model_type": kind, "architectures": [architecture]}
        got |= {key: ours[name] for name, (key, _) in {**self.numbers, **self.values}.items()}
        if self.activation is not None:
            names = [theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation]
            got[self.activation[0]] = names[0]
            Reader(got, self).activation().check()
        return {**got, **self.written, **self.fixed, **self.derived(config.width)}


class Reader:
    """Values of a config.json with the defaults of Hugging Face's classes; collects problems for one message."""

    def __init__(self, config: Mapping[str, Any], keys: Keys) -> None:
        defaults = dict([*keys.numbers.values(), *keys.values.values()])
        self.keys, self.values = keys, {**defaults, **keys.fixed, **keys.required, **config}
        self.problems: list[str] = []
        self.settings: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        return self.values.get(key)

    def read(self) -> dict[str, Any]:
        """All settings of the keys, with `vocabulary`; problems are recorded."""
        for name, (key, _) in self.keys.numbers.items():
            value = self[key]
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                self.problems.append(f"{key} is {value!r}, expected a positive whole number")
                value = 1
            self.settings[name] = value
        self.settings |= {name: self[key] for name, (key, _) in self.keys.values.items()}
        self.activation()
        derived = self.keys.derived(self.settings["width"])
        self.values = {**derived, **self.values}
        for key, only in {**self.keys.fixed, **self.keys.required, **derived}.items():
            self.require(key, only)
        return self.settings

    def require(self, key: str, *allowed: Any) -> None:
        """Record a problem if the value of a key is not one of `allowed`."""
        if self[key] not in allowed:
            self.problems.append(f"{key} is {self[key]!r}, only {' or '.join(map(repr, allowed))} is supported")

    def activation(self) -> Reader:
        """Read the activation; records a problem if it is unknown or not the only one of the class."""
        if self.keys.activation is not None:
            key, default = self.keys.activation
            allowed = [theirs for theirs, ours in ACTIVATIONS.items() if self.keys.only in (None, ours)]
            self.values.setdefault(key, default)
            self.require(key, *allowed)
            self.settings["activation"] = ACTIVATIONS.get(str(self[key]), "gelu")
        return self

    def check(self) -> None:
        if self.problems:
            raise ArtifactError(f"config.json: {'; '.join(self.problems)}")


def settings_of(config: Mapping[str, Any], keys: Keys) -> dict[str, Any]:
    """All settings of a config.json. Raises ArtifactError: a value is not supported."""
    reader = Reader(config, keys)
    settings = reader.read()
    reader.check()
    return settings


def converter(
    family: str,
    keys: Keys,
    rules: Sequence[Rule],
    *,
    architecture: str,
    older: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda config: config,
    **names: Any,
) -> Converter:
    """The converter of a family that needs nothing but keys and rules; `names`: arguments of `normalised`."""

    def to_huggingface(model: Any) -> tuple[dict[str, Any], Tensors]:
        config = keys.write(model.config, kind=family, architecture=architecture)
        return config, exported(rules, model, model.config.layers)

    def from_huggingface(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Restored:
        settings = settings_of(older(config), keys)
        return restored(family, settings, rules, normalised(tensors, **names))

    return Converter(to_huggingface, from_huggingface)


def normalised(
    tensors: Mapping[str, Tensor], *, prefix: str, copies: Mapping[str, str], ignored: Sequence[str] = ()
) -> Tensors:
    """Tensors with the names of the current version of transformers.

    Args:
        prefix: of the encoder's tensors in a model with a head; files of the bare encoder lack it.
        copies: name of a copy -> name of the original; copies are removed.
        ignored: name suffixes of tensors without weights, or with weights that no family has.

    Raises:
        ArtifactError: a copy differs from its original.
    """
    result: Tensors = {}
    bare = not any(name.startswith(prefix) for name in tensors)
    heads = ("cls.", "lm_head.", "predictions.", "sop_classifier.", "vocab_")
    for name, tensor in tensors.items():
        if name.endswith(tuple(ignored)):
            continue
        # Old files, converted from TensorFlow, name the parameters of a norm gamma and beta.
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
            name = name.removesuffix(old) + new if name.endswith(old) else name
        result[prefix + name if bare and not name.startswith(heads) else name] = tensor
    for copy, original in copies.items():
        if copy in result and original in result:
            if not torch.equal(result[copy], result[original]):
                raise ArtifactError(f"{copy} differs from {original}: untied output layers are not supported")
            del result[copy]
    return result
