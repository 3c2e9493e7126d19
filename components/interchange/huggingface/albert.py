"""ALBERT <-> `AlbertForPreTraining`; files of `AlbertForMaskedLM` and `AlbertModel` can also be imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from torch import Tensor

from components.interchange.huggingface import Converter
from components.interchange.huggingface.bert import BUFFERS, KEYS
from components.interchange.huggingface.rules import (
    Reader,
    Rule,
    Tensors,
    attention,
    exported,
    module,
    normalised,
    plain,
    restored,
)
from components.models.albert import ALBERT

_KEYS: Final = replace(
    KEYS,
    numbers={
        "vocabulary": ("vocab_size", 30000),
        "embedding": ("embedding_size", 128),
        "width": ("hidden_size", 4096),
        "layers": ("num_hidden_layers", 12),
        "heads": ("num_attention_heads", 64),
        "positions": ("max_position_embeddings", 512),
    },
    values={
        "dropout": ("hidden_dropout_prob", 0.0),
        "dropout_attention": ("attention_probs_dropout_prob", 0.0),
        "norm_eps": ("layer_norm_eps", 1e-12),
    },
    activation=("hidden_act", "gelu_new"),
    fixed={**KEYS.fixed, "num_hidden_groups": 1, "inner_group_num": 1},
)
_EMBEDDINGS: Final = "albert.embeddings"
_LAYER: Final = "albert.encoder.albert_layer_groups.0.albert_layers.0"
RULES: Final[Sequence[Rule]] = (
    plain("token", f"{_EMBEDDINGS}.word_embeddings.weight"),
    plain("position", f"{_EMBEDDINGS}.position_embeddings.weight"),
    plain("segment", f"{_EMBEDDINGS}.token_type_embeddings.weight"),
    *module("embedding_norm", f"{_EMBEDDINGS}.LayerNorm"),
    *module("project", "albert.encoder.embedding_hidden_mapping_in"),
    *attention("block.attention.query_key_value", f"{_LAYER}.attention.{{}}"),
    *module("block.attention.output", f"{_LAYER}.attention.dense"),
    *module("block.attention_norm", f"{_LAYER}.attention.LayerNorm"),
    *module("block.expand", f"{_LAYER}.ffn"),
    *module("block.contract", f"{_LAYER}.ffn_output"),
    *module("block.norm", f"{_LAYER}.full_layer_layer_norm"),
    *module("pooler", "albert.pooler", part="pooler"),
    *module("transform", "predictions.dense", part="predictions"),
    *module("transform_norm", "predictions.LayerNorm", part="predictions"),
    plain("bias", "predictions.bias", part="predictions"),
    *module("sentence_order", "sop_classifier.classifier", part="sentence order"),
)
TIED: Final = {
    "predictions.decoder.weight": f"{_EMBEDDINGS}.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}


def to_huggingface(model: ALBERT) -> tuple[dict[str, Any], Tensors]:
    """`Converter.to_huggingface`."""
    config = _KEYS.write(model.config, kind="albert", architecture="AlbertForPreTraining")
    return config, exported(RULES, model, 1)


def from_huggingface(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], int, Tensors]:
    """`Converter.from_huggingface`."""
    reader = Reader(config, _KEYS)
    settings = reader.read()
    reader.check()
    named = normalised(tensors, prefix="albert.", tied=TIED, ignored=BUFFERS)
    return restored("albert", settings, RULES, named)


CONVERTER = Converter(to_huggingface, from_huggingface)
