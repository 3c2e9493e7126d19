"""BERT <-> `BertForPreTraining`; files of `BertForMaskedLM` and `BertModel` (without heads) can also be imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from torch import Tensor

from components.interchange.huggingface import Converter
from components.interchange.huggingface.rules import (
    Reader,
    Rule,
    Tensors,
    activation_name,
    attention,
    exported,
    module,
    normalised,
    plain,
    restored,
    spread,
)
from components.models.bert import BERT
from components.models.layers.masked import MaskedConfig
from components.tokenization.special import END, PAD, START

#: Defaults of BertConfig for keys that config.json lacks; RoBERTa's module overrides some of them.
DEFAULTS: Final = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}
#: Buffers in files of older versions.
BUFFERS: Final = ("position_ids", "token_type_ids")


def body_rules(prefix: str) -> list[Rule]:
    """Rules of embeddings and blocks; RoBERTa uses the same names with another prefix."""
    embeddings, layer = f"{prefix}embeddings", f"{prefix}encoder.layer.{{layer}}"
    return [
        plain("token", f"{embeddings}.word_embeddings.weight"),
        *module("embedding_norm", f"{embeddings}.LayerNorm"),
        *attention("blocks.{layer}.attention.query_key_value", f"{layer}.attention.self.{{}}"),
        *module("blocks.{layer}.attention.output", f"{layer}.attention.output.dense"),
        *module("blocks.{layer}.attention_norm", f"{layer}.attention.output.LayerNorm"),
        *module("blocks.{layer}.expand", f"{layer}.intermediate.dense"),
        *module("blocks.{layer}.contract", f"{layer}.output.dense"),
        *module("blocks.{layer}.norm", f"{layer}.output.LayerNorm"),
    ]


RULES: Final[Sequence[Rule]] = (
    *body_rules("bert."),
    plain("position", "bert.embeddings.position_embeddings.weight"),
    plain("segment", "bert.embeddings.token_type_embeddings.weight"),
    *module("pooler", "bert.pooler.dense", part="pooler"),
    *module("transform", "cls.predictions.transform.dense", part="predictions"),
    *module("transform_norm", "cls.predictions.transform.LayerNorm", part="predictions"),
    plain("bias", "cls.predictions.bias", part="predictions"),
    *module("next_sentence", "cls.seq_relationship", part="next sentence"),
)
TIED: Final = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def encoder_config(config: MaskedConfig) -> dict[str, Any]:
    """The part of config.json that all families with BERT's encoder share."""
    return {
        "vocab_size": config.vocabulary,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.head_count,
        "intermediate_size": 4 * config.width,
        "hidden_act": activation_name(config.activation),
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropout_attention,
        "max_position_embeddings": config.positions,
        "type_vocab_size": 2,
        "layer_norm_eps": config.norm_eps,
        "pad_token_id": PAD,
        "bos_token_id": START,
        "eos_token_id": END,
        "tie_word_embeddings": True,
    }


def encoder_settings(reader: Reader, *, activation: str | None = None) -> dict[str, Any]:
    """The inverse of `encoder_config`: settings of the family; problems are collected in the reader."""
    width = reader.number("hidden_size")
    reader.require("intermediate_size", 4 * width)
    reader.require("position_embedding_type", "absolute")
    reader.require("is_decoder", False)
    reader.require("add_cross_attention", False)
    reader.require("tie_word_embeddings", True)
    return {
        "width": width,
        "layers": reader.number("num_hidden_layers"),
        "heads": reader.number("num_attention_heads"),
        "positions": reader.number("max_position_embeddings"),
        "dropout": reader["hidden_dropout_prob"],
        "dropout_attention": reader["attention_probs_dropout_prob"],
        "activation": reader.activation("hidden_act", only=activation),
        "norm_eps": reader["layer_norm_eps"],
    }


def to_huggingface(model: BERT) -> tuple[dict[str, Any], Tensors]:
    """config.json and tensors of an equivalent `BertForPreTraining`."""
    config = {"model_type": "bert", "architectures": ["BertForPreTraining"], **encoder_config(model.config)}
    return config, exported(spread(RULES, model.config.layers), model.state_dict())


def from_huggingface(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], int, Tensors]:
    """Settings, vocabulary and tensors of a `BERT`.

    Raises:
        ArtifactError: config.json has unsupported values, or tensors are missing, surplus or misshapen.
    """
    reader = Reader(config, DEFAULTS)
    settings, vocabulary = encoder_settings(reader), reader.number("vocab_size")
    reader.require("type_vocab_size", 2)
    reader.check()
    named = normalised(tensors, prefix="bert.", tied=TIED, ignored=BUFFERS)
    return settings, vocabulary, restored("bert", settings, vocabulary, spread(RULES, settings["layers"]), named)


CONVERTER = Converter(to_huggingface, from_huggingface)
