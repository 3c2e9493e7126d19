"""RoBERTa <-> `RobertaForMaskedLM`; files of `RobertaModel` (without the head) can also be imported.

In transformers, positions start at the padding id + 1, so the first rows of the position table are unused, and the
embedding of the single segment is added to every position. Here, it is part of the position embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

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
)
from components.models.roberta import RoBERTa
from components.tokenization.special import PAD

_KEYS: Final = replace(
    KEYS,
    numbers={**KEYS.numbers, "vocabulary": ("vocab_size", 50265)},
    fixed={**KEYS.fixed, "type_vocab_size": 1},
    only="gelu",
)
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
    """`Converter.to_huggingface`; with an activation that the class does not have, an `ArtifactError`."""
    positions = model.config.positions + PAD + 1
    config = _KEYS.write(model.config, kind="roberta", architecture="RobertaForMaskedLM", positions=positions)
    return config, exported(rules(PAD + 1), model, model.config.layers)


def from_huggingface(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], int, Tensors]:
    """`Converter.from_huggingface`."""
    reader = Reader({"pad_token_id": 1, **config}, _KEYS)
    settings, padding = reader.read(), reader["pad_token_id"]
    unused = padding + 1 if isinstance(padding, int) else 0
    if not 0 < unused < settings["positions"]:
        reader.problems.append(f"pad_token_id is {padding!r}, which leaves no positions")
    reader.check()
    settings["positions"] -= unused
    named = normalised(tensors, prefix="roberta.", tied=TIED, ignored=(*BUFFERS, *POOLER))
    return restored("roberta", settings, rules(unused), named)


CONVERTER = Converter(to_huggingface, from_huggingface)
