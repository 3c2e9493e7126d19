"""RoBERTa <-> `RobertaForMaskedLM`; files of `RobertaModel` (without the head) can also be imported.

In transformers, positions start at the padding id + 1, so the first rows of the position table are unused, and the
embedding of the single segment is added to every position. Here, it is part of the position embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

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
from components.models.roberta import RoBERTa
from components.tokenization.special import PAD

POSITIONS: Final = "roberta.embeddings.position_embeddings.weight"
SEGMENT: Final = "roberta.embeddings.token_type_embeddings.weight"


def rules(unused: int) -> Sequence[Rule]:
    """The rules for a file whose first `unused` position rows are unused."""
    positions = Rule(
        "position",
        (POSITIONS, SEGMENT),
        lambda table: (torch.cat([table.new_zeros(unused, table.shape[1]), table]), table.new_zeros(1, table.shape[1])),
        lambda table, segment: table[unused:] + segment,
    )
    return (
        *body_rules("roberta."),
        positions,
        *module("transform", "lm_head.dense", part="predictions"),
        *module("transform_norm", "lm_head.layer_norm", part="predictions"),
        plain("bias", "lm_head.bias", part="predictions"),
    )


TIED: Final = {
    "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
}
#: Some files have a pooler, which is not pretrained.
POOLER: Final = ("pooler.dense.weight", "pooler.dense.bias")


def to_huggingface(model: RoBERTa) -> tuple[dict[str, Any], Tensors]:
    """config.json and tensors of an equivalent `RobertaForMaskedLM`.

    Raises:
        ArtifactError: an activation that its head cannot have.
    """
    config = {
        "model_type": "roberta",
        "architectures": ["RobertaForMaskedLM"],
        **encoder_config(model.config),
        "type_vocab_size": 1,
        "max_position_embeddings": model.config.positions + PAD + 1,
    }
    reader = Reader(config, {})
    reader.activation("hidden_act", only="gelu")
    reader.check()
    return config, exported(spread(rules(PAD + 1), model.config.layers), model.state_dict())


def from_huggingface(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], int, Tensors]:
    """Settings, vocabulary and tensors of a `RoBERTa`.

    Raises:
        ArtifactError: config.json has unsupported values, or tensors are missing, surplus or misshapen.
    """
    reader = Reader(config, {**DEFAULTS, "vocab_size": 50265, "pad_token_id": 1})
    settings, vocabulary = encoder_settings(reader, activation="gelu"), reader.number("vocab_size")
    unused = reader["pad_token_id"] + 1 if isinstance(reader["pad_token_id"], int) else 0
    if not 0 < unused < settings["positions"]:
        reader.problems.append(f"pad_token_id is {reader['pad_token_id']!r}, which leaves no positions")
    reader.require("type_vocab_size", 1)
    reader.check()
    settings["positions"] -= unused
    named = normalised(tensors, prefix="roberta.", tied=TIED, ignored=(*BUFFERS, *POOLER))
    table = spread(rules(unused), settings["layers"])
    return settings, vocabulary, restored("roberta", settings, vocabulary, table, named)


CONVERTER = Converter(to_huggingface, from_huggingface)
