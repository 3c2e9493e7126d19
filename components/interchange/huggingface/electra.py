"""ELECTRA <-> `ElectraForPreTraining`, the discriminator, and `ElectraForMaskedLM`, the generator.

The two are published as two models with equal embeddings. Here the generator's folder is the subfolder `generator` of
the discriminator's; without one the generator is initialised as in a new model. Files of `ElectraModel` (without heads)
can also be imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from components.errors import ArtifactError
from components.interchange.huggingface import Converter
from components.interchange.huggingface.bert import BUFFERS, DEFAULTS, body_rules, encoder_config, encoder_settings
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
_EMBEDDINGS: Final = "electra.embeddings."
_OWN: Final = tuple(body_rules("electra."))
_SHARED: Final[Sequence[Rule]] = (
    *(rule for rule in _OWN if rule.theirs[0].startswith(_EMBEDDINGS)),
    plain("position", f"{_EMBEDDINGS}position_embeddings.weight"),
    plain("segment", f"{_EMBEDDINGS}token_type_embeddings.weight"),
)
_BLOCKS: Final = [rule for rule in _OWN if rule.own.startswith("blocks.")]
DISCRIMINATOR_RULES: Final[Sequence[Rule]] = (
    *_SHARED,
    *module("project", "electra.embeddings_project"),
    *_BLOCKS,
    *module("detect", "discriminator_predictions.dense", part="predictions"),
    *module("detect_output", "discriminator_predictions.dense_prediction", part="predictions"),
)


def _of_generator(rule: Rule) -> Rule:
    theirs = tuple(f"{GENERATOR}/{name}" for name in rule.theirs)
    own = f"generator_{rule.own}" if rule.own.startswith(("blocks.", "project.")) else rule.own
    return Rule(own, theirs, rule.export, rule.restore, GENERATOR)


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
    """config.json and tensors of an equivalent `ElectraForPreTraining`, with those of an `ElectraForMaskedLM`.

    Raises:
        ArtifactError: an activation that the generator's head cannot have.
    """
    own, small = model.config, model.config.of_generator()
    config = {"model_type": "electra", **encoder_config(own), "embedding_size": own.embedding}
    reader = Reader(config, {})
    reader.activation("hidden_act", only="gelu")
    reader.check()
    sizes = {**encoder_config(small), "model_type": "electra", "embedding_size": own.embedding}
    weights = model.state_dict()
    rules = [*spread(DISCRIMINATOR_RULES, own.layers), *spread(GENERATOR_RULES, small.layers)]
    tensors = exported([rule for rule in rules if rule.own in weights], weights)
    tensors |= {f"{GENERATOR}/{name}": tensor.clone() for name, tensor in tensors.items() if _is_shared(name)}
    return {
        **config,
        "architectures": ["ElectraForPreTraining"],
        GENERATOR: {**sizes, "architectures": ["ElectraForMaskedLM"]},
    }, tensors


def from_huggingface(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], int, Tensors]:
    """Settings, vocabulary and tensors of an `ELECTRA`.

    Raises:
        ArtifactError: config.json has unsupported values, tensors are missing, surplus or misshapen, or the generator
            does not fit the discriminator.
    """
    if any(name.startswith("generator_") for name in tensors):
        raise ArtifactError(
            "these are the weights of a generator; import the folder of the discriminator, with this one as its "
            f"subfolder `{GENERATOR}`"
        )
    reader, settings = _read(config)
    vocabulary = reader.number("vocab_size")
    reader.check()
    parts: dict[str, dict[str, Tensor]] = {"": {}, GENERATOR: {}}
    for name, tensor in tensors.items():
        part, _, own = name.rpartition("/")
        parts[part][own] = tensor
    named = normalised(parts[""], prefix="electra.", tied={}, ignored=BUFFERS)
    layers = settings["layers"]
    if GENERATOR in config:
        sizes = _generator_settings(config[GENERATOR], settings, vocabulary)
        layers = sizes.pop("layers")
        settings |= sizes
        named |= _generator_tensors(parts[GENERATOR], shared={name: named[name] for name in named if _is_shared(name)})
    rules = [*spread(DISCRIMINATOR_RULES, settings["layers"]), *spread(GENERATOR_RULES, layers)]
    return settings, vocabulary, restored("electra", settings, vocabulary, rules, named)


def _read(config: Mapping[str, Any]) -> tuple[Reader, dict[str, Any]]:
    reader = Reader(config, DEFAULTS | {"embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4,
                                        "intermediate_size": 1024})  # fmt: skip
    settings = {"embedding": reader.number("embedding_size"), **encoder_settings(reader, activation="gelu")}
    reader.require("type_vocab_size", 2)
    return reader, settings


def _generator_settings(config: Mapping[str, Any], settings: Mapping[str, Any], vocabulary: int) -> dict[str, Any]:
    """`generator`, `generator_layers`, and the number of the generator's layers, for a discriminator's settings."""
    reader, sizes = _read(config)
    for key in ("embedding", "positions", "dropout", "dropout_attention", "norm_eps"):
        if sizes[key] != settings[key]:
            reader.problems.append(f"{key} is {sizes[key]!r}, but {settings[key]!r} in the discriminator")
    reader.require("vocab_size", vocabulary)
    reader.require("num_attention_heads", max(1, sizes["width"] // 64))
    if sizes["width"] > settings["width"]:
        reader.problems.append(f"hidden_size is {sizes['width']}, above the discriminator's {settings['width']}")
    try:
        reader.check()
    except ArtifactError as error:
        raise ArtifactError(f"{GENERATOR}/{error}") from error
    own = 0 if sizes["layers"] == settings["layers"] else sizes["layers"]
    return {"generator": sizes["width"] / settings["width"], "generator_layers": own, "layers": sizes["layers"]}


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
