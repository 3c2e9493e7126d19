"""ELECTRA <-> `ElectraForPreTraining`, the discriminator, and `ElectraForMaskedLM`, the generator.

The two are published as two models with equal embeddings. Here the generator's folder is the subfolder `generator` of
the discriminator's; without one the generator is initialised as in a new model. Files of `ElectraModel` (without heads)
can also be imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from components.errors import ArtifactError
from components.interchange.huggingface import Converter
from components.interchange.huggingface.bert import BUFFERS, KEYS, body_rules
from components.interchange.huggingface.rules import (
    Reader,
    Rule,
    Tensors,
    exported,
    module,
    normalised,
    plain,
    restored,
    spread,
)
from components.models.electra import ELECTRA

GENERATOR: Final = "generator"
_KEYS: Final = replace(
    KEYS,
    numbers={
        **KEYS.numbers,
        "embedding": ("embedding_size", 128),
        "width": ("hidden_size", 256),
        "heads": ("num_attention_heads", 4),
    },
    only="gelu",
)
_EMBEDDINGS: Final = "electra.embeddings."
_OWN: Final = tuple(body_rules("electra."))
_SHARED: Final[Sequence[Rule]] = (
    *(rule for rule in _OWN if rule.theirs[0].startswith(_EMBEDDINGS)),
    plain("position", f"{_EMBEDDINGS}position_embeddings.weight"),
    plain("segment", f"{_EMBEDDINGS}token_type_embeddings.weight"),
)
_BLOCKS: Final = [rule for rule in _OWN if rule.ours.startswith("blocks.")]
DISCRIMINATOR_RULES: Final[Sequence[Rule]] = (
    *_SHARED,
    *module("project", "electra.embeddings_project"),
    *_BLOCKS,
    *module("detect", "discriminator_predictions.dense", part="predictions"),
    *module("detect_output", "discriminator_predictions.dense_prediction", part="predictions"),
)


def _of_generator(rule: Rule) -> Rule:
    theirs = tuple(f"{GENERATOR}/{name}" for name in rule.theirs)
    ours = f"generator_{rule.ours}" if rule.ours.startswith(("blocks.", "project.")) else rule.ours
    return Rule(ours, theirs, rule.export, rule.restore, GENERATOR)


GENERATOR_RULES: Final[Sequence[Rule]] = [
    _of_generator(rule)
    for rule in (
        *module("project", "electra.embeddings_project"),
        *_BLOCKS,
        *module("transform", "generator_predictions.dense"),
        *module("transform_norm", "generator_predictions.LayerNorm"),
        plain("bias", "generator_lm_head.bias"),
    )
]


def to_huggingface(model: ELECTRA) -> tuple[dict[str, Any], Tensors]:
    """`Converter.to_huggingface`, with the generator as a part; with an activation that the class does not have, an
    `ArtifactError`."""
    ours, small = model.config, model.config.of_generator()
    config = _KEYS.write(ours, kind="electra", architecture="ElectraForPreTraining")
    config[GENERATOR] = _KEYS.write(small, kind="electra", architecture="ElectraForMaskedLM")
    tensors = exported(DISCRIMINATOR_RULES, model, ours.layers) | exported(GENERATOR_RULES, model, small.layers)
    shared = {f"{GENERATOR}/{name}": tensor.clone() for name, tensor in tensors.items() if _is_shared(name)}
    return config, tensors | shared


def from_huggingface(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], int, Tensors]:
    """`Converter.from_huggingface`; an `ArtifactError` also if the generator does not fit the discriminator."""
    if any(name.startswith("generator_") for name in tensors):
        raise ArtifactError(
            "these are the weights of a generator; import the folder of the discriminator, with this one as its "
            f"subfolder `{GENERATOR}`"
        )
    reader = Reader(config, _KEYS)
    settings = reader.read()
    reader.check()
    parts: dict[str, dict[str, Tensor]] = {"": {}, GENERATOR: {}}
    for name, tensor in tensors.items():
        part, _, ours = name.rpartition("/")
        parts[part][ours] = tensor
    named = normalised(parts[""], prefix="electra.", tied={}, ignored=BUFFERS)
    layers = settings["layers"]
    if GENERATOR in config:
        sizes = _generator_sizes(config[GENERATOR], settings)
        layers = sizes["layers"]
        settings["generator"] = sizes["width"] / settings["width"]
        settings["generator_layers"] = 0 if layers == settings["layers"] else layers
        named |= _generator_tensors(parts[GENERATOR], shared={name: named[name] for name in named if _is_shared(name)})
    return restored("electra", settings, [*DISCRIMINATOR_RULES, *spread(GENERATOR_RULES, layers)], named)


def _generator_sizes(config: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the generator for a discriminator's settings."""
    reader = Reader(config, _KEYS)
    sizes = reader.read()
    for key in ("embedding", "positions", "dropout", "dropout_attention", "norm_eps"):
        if sizes[key] != settings[key]:
            reader.problems.append(f"{key} is {sizes[key]!r}, but {settings[key]!r} in the discriminator")
    reader.require("vocab_size", settings["vocabulary"])
    reader.require("num_attention_heads", max(1, sizes["width"] // 64))
    if sizes["width"] > settings["width"]:
        reader.problems.append(f"hidden_size is {sizes['width']}, above the discriminator's {settings['width']}")
    try:
        reader.check()
    except ArtifactError as error:
        raise ArtifactError(f"{GENERATOR}/{error}") from error
    return sizes


def _generator_tensors(tensors: Mapping[str, Tensor], *, shared: Mapping[str, Tensor]) -> Tensors:
    """The generator's tensors without the embeddings, with the name of the part."""
    output = {"generator_lm_head.weight": f"{_EMBEDDINGS}word_embeddings.weight"}
    named = normalised(tensors, prefix="electra.", tied=output, ignored=BUFFERS)
    for name, tensor in shared.items():
        if name in named and not torch.equal(named.pop(name), tensor):
            raise ArtifactError(
                f"{GENERATOR}/{name} differs from {name} of the discriminator: untied embeddings are not supported"
            )
    return {f"{GENERATOR}/{name}": tensor for name, tensor in named.items()}


def _is_shared(name: str) -> bool:
    return name.startswith(_EMBEDDINGS)


CONVERTER = Converter(to_huggingface, from_huggingface, parts=(GENERATOR,))
