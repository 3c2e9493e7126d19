"""ALBERT <-> `AlbertForPreTraining`; files of `AlbertForMaskedLM` and `AlbertModel` can also be imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from torch import Tensor

from components.interchange.huggingface import Converter
from components.interchange.huggingface.bert import BUFFERS, DEFAULTS, encoder_config, encoder_settings
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
    spread,
)
from components.models.albert import ALBERT

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
    """config.json and tensors of an equivalent `AlbertForPreTraining`."""
    config = {
        "model_type": "albert",
        "architectures": ["AlbertForPreTraining"],
        **encoder_config(model.config),
        "embedding_size": model.config.embedding,
        "num_hidden_groups": 1,
        "inner_group_num": 1,
    }
    return config, exported(spread(RULES, 1), model.state_dict())


def from_huggingface(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], int, Tensors]:
    """Settings, vocabulary and tensors of an `ALBERT`.

    Raises:
        ArtifactError: config.json has unsupported values, or tensors are missing, surplus or misshapen.
    """
    defaults = {
        "vocab_size": 30000,
        "embedding_size": 128,
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "num_hidden_groups": 1,
        "inner_group_num": 1,
    }
    reader = Reader(config, DEFAULTS | defaults)
    settings = {"embedding": reader.number("embedding_size"), **encoder_settings(reader)}
    vocabulary = reader.number("vocab_size")
    for key, only in (("type_vocab_size", 2), ("num_hidden_groups", 1), ("inner_group_num", 1)):
        reader.require(key, only)
    reader.check()
    named = normalised(tensors, prefix="albert.", tied=TIED, ignored=BUFFERS)
    return settings, vocabulary, restored("albert", settings, vocabulary, spread(RULES, 1), named)


CONVERTER = Converter(to_huggingface, from_huggingface)
