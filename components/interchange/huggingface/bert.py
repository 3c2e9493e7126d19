"""BERT <-> `BertForPreTraining`; files of `BertForMaskedLM` and `BertModel` (without heads) can also be imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from torch import Tensor

from components.interchange.huggingface import Converter
from components.interchange.huggingface.rules import (
    Keys,
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
from components.models.bert import BERT

#: Keys of all families with BERT's encoder, with the defaults of BertConfig.
KEYS: Final = Keys(
    numbers={
        "vocabulary": ("vocab_size", 30522),
        "width": ("hidden_size", 768),
        "layers": ("num_hidden_layers", 12),
        "heads": ("num_attention_heads", 12),
        "positions": ("max_position_embeddings", 512),
    },
    values={
        "dropout": ("hidden_dropout_prob", 0.1),
        "dropout_attention": ("attention_probs_dropout_prob", 0.1),
        "norm_eps": ("layer_norm_eps", 1e-12),
    },
    activation=("hidden_act", "gelu"),
    fixed={"type_vocab_size": 2, "tie_word_embeddings": True},
    required={"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False},
    derived=lambda width: {"intermediate_size": 4 * width},
)
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


def to_huggingface(model: BERT) -> tuple[dict[str, Any], Tensors]:
    """`Converter.to_huggingface`."""
    config = KEYS.write(model.config, kind="bert", architecture="BertForPreTraining")
    return config, exported(RULES, model, model.config.layers)


def from_huggingface(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], int, Tensors]:
    """`Converter.from_huggingface`."""
    reader = Reader(config, KEYS)
    settings = reader.read()
    reader.check()
    named = normalised(tensors, prefix="bert.", tied=TIED, ignored=BUFFERS)
    return restored("bert", settings, RULES, named)


CONVERTER = Converter(to_huggingface, from_huggingface)
