"""Tensors under other names and in other arrangements, by a table that is read in both directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from components.errors import ArtifactError, ConfigError
from components.models.encoder import build_model

Tensors = dict[str, Tensor]
#: What an attention layer that is stored in parts is made of, in the order of our rows.
PARTS: Final = ("query", "key", "value")


@dataclass(frozen=True)
class Rule:
    """One of our tensors and what it is made of there.

    Attributes:
        own, theirs: names; `{layer}` in both stands for each layer's number.
        export, restore: our tensor -> theirs, in the order of the names; and back. For a rule, `restore` undoes
            `export`.
        part: name of a part that a file may leave out as a whole; it then starts as in a new model. None: required.
    """

    own: str
    theirs: tuple[str, ...]
    export: Callable[[Tensor], Sequence[Tensor]] = lambda tensor: (tensor,)
    restore: Callable[..., Tensor] = lambda tensor: tensor
    part: str | None = None


def plain(own: str, theirs: str, *, part: str | None = None) -> Rule:
    """The same tensor under another name."""
    return Rule(own, (theirs,), part=part)


def transposed(own: str, theirs: str) -> Rule:
    """A linear layer that is stored as (inputs, outputs)."""
    return Rule(own, (theirs,), lambda tensor: (tensor.t(),), lambda tensor: tensor.t())


def packed(own: str, *theirs: str) -> Rule:
    """Our rows are those of several tensors, one below the other."""
    return Rule(own, theirs, lambda tensor: tensor.chunk(len(theirs)), lambda *tensors: torch.cat(tensors))


def module(own: str, theirs: str, *, part: str | None = None, rule: Callable[..., Rule] = plain) -> list[Rule]:
    """Weight and bias of a layer; `rule` says how the weight is stored."""
    weight = rule(f"{own}.weight", f"{theirs}.weight")
    return [
        Rule(weight.own, weight.theirs, weight.export, weight.restore, part),
        plain(f"{own}.bias", f"{theirs}.bias", part=part),
    ]


def attention(own: str, theirs: str) -> list[Rule]:
    """Queries, keys and values of a Transformer that stores them apart; `theirs` holds `{}` for which of the three."""
    return [
        packed(f"{own}.{kind}", *(f"{theirs.format(part, layer='{layer}')}.{kind}" for part in PARTS))
        for kind in ("weight", "bias")
    ]


def spread(rules: Sequence[Rule], layers: int) -> list[Rule]:
    """Each rule with `{layer}` in its names, once a layer."""
    return [
        Rule(
            rule.own.replace("{layer}", str(layer)),
            tuple(name.replace("{layer}", str(layer)) for name in rule.theirs),
            rule.export,
            rule.restore,
            rule.part,
        )
        for rule in rules
        for layer in (range(layers) if "{layer}" in rule.own else (0,))
    ]


def exported(rules: Sequence[Rule], own: Mapping[str, Tensor]) -> Tensors:
    """Our tensors as theirs: float32, each with memory of its own."""
    return {
        name: tensor.detach().float().cpu().clone(memory_format=torch.contiguous_format)
        for rule in rules
        for name, tensor in zip(rule.theirs, rule.export(own[rule.own]), strict=True)
    }


def restored(
    family: str, settings: Mapping[str, Any], vocabulary: int, rules: Sequence[Rule], tensors: Mapping[str, Tensor]
) -> Tensors:
    """Their tensors as ours, float32; parts that are not there as a new model has them.

    Raises:
        ArtifactError: the settings describe no model of the family, or tensors are missing, surplus or misshapen.
    """
    try:
        with torch.device("meta"):
            own = build_model(family, vocabulary=vocabulary, settings=settings).state_dict()
    except ConfigError as error:
        raise ArtifactError(f"config.json: {error}") from error
    rules = [rule for rule in rules if rule.own in own]
    present = {rule.part for rule in rules if any(name in tensors for name in rule.theirs)}
    fresh = [rule.own for rule in rules if rule.part is not None and rule.part not in present]
    rules = [rule for rule in rules if rule.own not in fresh]
    expected = {
        name: tuple(tensor.shape)
        for rule in rules
        for name, tensor in zip(rule.theirs, rule.export(own[rule.own]), strict=True)
    }
    problems = [
        *(f"missing {name}" for name in expected.keys() - tensors.keys()),
        *(f"surplus {name}" for name in tensors.keys() - expected.keys()),
        *(
            f"{name} is {tuple(tensors[name].shape)}, expected {expected[name]}"
            for name in expected.keys() & tensors.keys()
            if tuple(tensors[name].shape) != expected[name]
        ),
    ]
    if problems:
        raise ArtifactError(f"the weights do not fit config.json: {'; '.join(sorted(problems))}")
    result = {rule.own: rule.restore(*(tensors[name].float() for name in rule.theirs)).contiguous() for rule in rules}
    return result | _fresh(family, settings, own, fresh)


def _fresh(family: str, settings: Mapping[str, Any], own: Mapping[str, Tensor], names: Sequence[str]) -> Tensors:
    """Tensors as a new model starts them, the same ones each time: random matrices, zero for a bias of the pieces."""
    if not names:
        return {}
    # No part that may be missing has to do with the layers or the vocabulary, but for the output bias, which is zero.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        smallest = {name: 1 for name in ("layers", "positions") if name in settings}
        model = build_model(family, vocabulary=1, settings={**settings, **smallest}).state_dict()
    return {
        name: model[name] if model[name].shape == own[name].shape else torch.zeros(own[name].shape) for name in names
    }


class Reader:
    """Values of a config.json, with the defaults that stand in Hugging Face's classes.

    Problems are collected, so that one message names all of them.
    """

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self.values = {**defaults, **config}
        self.problems: list[str] = []

    def __getitem__(self, key: str) -> Any:
        return self.values.get(key)

    def require(self, key: str, *allowed: Any) -> None:
        """Note a value that our family has no counterpart for."""
        if self[key] not in allowed:
            self.problems.append(f"{key} is {self[key]!r}, only {' or '.join(map(repr, allowed))} can be taken over")

    def number(self, key: str) -> int:
        """A size; 1 in place of one that is none."""
        value = self[key]
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.problems.append(f"{key} is {value!r}, expected a positive whole number")
            return 1
        return value

    def activation(self, key: str, *, only: str | None = None) -> str:
        """Our name of an activation."""
        name = ACTIVATIONS.get(str(self[key]))
        if name is None or only not in (None, name):
            known = [theirs for theirs, ours in ACTIVATIONS.items() if only in (None, ours)]
            self.problems.append(f"{key} is {self[key]!r}, only {' or '.join(map(repr, known))} can be taken over")
            return "gelu"
        return name

    def check(self) -> None:
        """Raise what was noted.

        Raises:
            ArtifactError: something was.
        """
        if self.problems:
            raise ArtifactError(f"config.json: {'; '.join(self.problems)}")


#: Their names of activations -> ours; the first of each is what is exported.
ACTIVATIONS: Final = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}


def activation_name(activation: str) -> str:
    """Their name of one of our activations."""
    return next(theirs for theirs, ours in ACTIVATIONS.items() if ours == activation)


def normalised(
    tensors: Mapping[str, Tensor], *, prefix: str, tied: Mapping[str, str], ignored: Sequence[str] = ()
) -> Tensors:
    """Names as the newest version of their library writes them.

    Args:
        prefix: of the encoder's tensors in a model with a head; a file of the bare encoder has none.
        tied: name of a copy -> what it must be a copy of; the copies are left out.
        ignored: endings of names of tensors that hold no weights, or weights that no family has.

    Raises:
        ArtifactError: a copy is none.
    """
    result: Tensors = {}
    bare = not any(name.startswith(prefix) for name in tensors)
    heads = ("cls.", "lm_head.", "predictions.", "sop_classifier.")
    for name, tensor in tensors.items():
        if name.endswith(tuple(ignored)):
            continue
        # Files of TensorFlow's time call the parameters of a norm gamma and beta.
        for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
            name = name.removesuffix(old) + new if name.endswith(old) else name
        result[prefix + name if bare and not name.startswith(heads) else name] = tensor
    for copy, original in tied.items():
        if copy in result and original in result:
            if not torch.equal(result[copy], result[original]):
                raise ArtifactError(f"{copy} differs from {original}: an output layer of its own cannot be taken over")
            del result[copy]
    return result
