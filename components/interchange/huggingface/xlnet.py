"""XLNet <-> `XLNetLMHeadModel`; files of the bare `XLNetModel` can also be imported.

The classes of transformers use segments only if `token_type_ids` are passed; those of its tokenizer, with a separate
segment for the final [CLS], give equal hidden states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

from components.interchange.huggingface import Converter
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
from components.models.xlnet import XLNet
from components.tokenization.special import END, PAD, START

#: Defaults of XLNetConfig for keys that config.json lacks.
DEFAULTS: Final = {
    "vocab_size": 32000,
    "d_model": 1024,
    "n_layer": 24,
    "n_head": 16,
    "d_inner": 4096,
    "d_head": None,
    "ff_activation": "gelu",
    "attn_type": "bi",
    "untie_r": True,
    "layer_norm_eps": 1e-12,
    "dropout": 0.1,
    "mem_len": 512,
    "bi_data": False,
    "clamp_len": -1,
    "same_length": False,
    "tie_word_embeddings": True,
}


def rules(heads: int) -> list[Rule]:
    """The rules. Projections have the shape (inputs, heads, head width), the output projection is not transposed."""
    layer, attention = "transformer.layer.{layer}", "transformer.layer.{layer}.rel_attn"

    def projection(own: str, *theirs: str) -> Rule:
        return Rule(
            f"blocks.{{layer}}.attention.{own}.weight",
            tuple(f"{attention}.{name}" for name in theirs),
            lambda weight: [part.t().unflatten(1, (heads, -1)) for part in weight.chunk(len(theirs))],
            lambda *parts: torch.cat([part.flatten(1).t() for part in parts]),
        )

    return [
        plain("pieces.tables.0", "transformer.word_embedding.weight"),
        Rule("unknown", ("transformer.mask_emb",), lambda row: (row.view(1, 1, -1),), lambda row: row.flatten()),
        projection("query", "q"),
        projection("key_value", "k", "v"),
        projection("position", "r"),
        Rule(
            "blocks.{layer}.attention.output.weight",
            (f"{attention}.o",),
            lambda weight: (weight.unflatten(1, (heads, -1)),),
            lambda weight: weight.flatten(1),
        ),
        plain("blocks.{layer}.attention.content_bias", f"{attention}.r_w_bias"),
        plain("blocks.{layer}.attention.position_bias", f"{attention}.r_r_bias"),
        plain("blocks.{layer}.attention.segment_bias", f"{attention}.r_s_bias"),
        plain("blocks.{layer}.attention.segment", f"{attention}.seg_embed"),
        *module("blocks.{layer}.attention_norm", f"{attention}.layer_norm"),
        *module("blocks.{layer}.expand", f"{layer}.ff.layer_1"),
        *module("blocks.{layer}.contract", f"{layer}.ff.layer_2"),
        *module("blocks.{layer}.norm", f"{layer}.ff.layer_norm"),
        plain("pieces.bias", "lm_loss.bias", part="predictions"),
    ]


def to_huggingface(model: XLNet) -> tuple[dict[str, Any], Tensors]:
    """config.json and tensors of an equivalent `XLNetLMHeadModel`."""
    own = model.config
    config = {
        "model_type": "xlnet",
        "architectures": ["XLNetLMHeadModel"],
        "vocab_size": own.vocabulary,
        "d_model": own.width,
        "n_layer": own.layers,
        "n_head": own.head_count,
        "d_inner": own.inner,
        "ff_activation": "gelu",
        "attn_type": "bi",
        "untie_r": True,
        "layer_norm_eps": 1e-12,
        "dropout": own.dropout,
        "mem_len": own.memory or None,
        # With bi_data, transformers would reverse half of every batch, in inference too.
        "bi_data": False,
        "clamp_len": own.clamp or -1,
        "same_length": False,
        "pad_token_id": PAD,
        "bos_token_id": START,
        "eos_token_id": END,
        "tie_word_embeddings": True,
    }
    return config, exported(spread(rules(own.head_count), own.layers), model.state_dict())


def from_huggingface(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], int, Tensors]:
    """Settings, vocabulary and tensors of an `XLNet`.

    Raises:
        ArtifactError: config.json has unsupported values, or tensors are missing, surplus or misshapen.
    """
    reader = Reader(config, DEFAULTS)
    width, heads, clamp = reader.number("d_model"), reader.number("n_head"), reader["clamp_len"]
    reader.require("d_head", None, width // heads)
    reader.require("ff_activation", "gelu")
    reader.require("attn_type", "bi")
    reader.require("untie_r", True)
    reader.require("same_length", False)
    reader.require("layer_norm_eps", 1e-12)
    reader.require("tie_word_embeddings", True)
    settings = {
        "width": width,
        "layers": reader.number("n_layer"),
        "heads": heads,
        "feedforward": reader.number("d_inner"),
        "memory": reader["mem_len"] or 0,
        "clamp": clamp if isinstance(clamp, int) and clamp > 0 else 0,
        "backward_rows": reader["bi_data"],
        "dropout": reader["dropout"],
        "dropout_attention": reader["dropout"],
    }
    vocabulary = reader.number("vocab_size")
    reader.check()
    named = normalised(tensors, prefix="transformer.", tied={"lm_loss.weight": "transformer.word_embedding.weight"})
    return (
        settings,
        vocabulary,
        restored("xlnet", settings, vocabulary, spread(rules(heads), settings["layers"]), named),
    )


CONVERTER = Converter(to_huggingface, from_huggingface)
