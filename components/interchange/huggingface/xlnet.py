"""XLNet <-> `XLNetLMHeadModel`; files of the bare `XLNetModel` can also be imported.

The classes of transformers use segments only if `token_type_ids` are passed. With the ids of its tokenizer, which have
a separate segment for the final [CLS], the hidden states are equal.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

from components.interchange.huggingface import Converter, Restored
from components.interchange.huggingface.rules import (
    Keys,
    Reader,
    Rule,
    Tensors,
    exported,
    module,
    normalised,
    plain,
    restored,
)
from components.models.xlnet import XLNet

_KEYS: Final = Keys(
    numbers={
        "vocabulary": ("vocab_size", 32000),
        "width": ("d_model", 1024),
        "layers": ("n_layer", 24),
        "heads": ("n_head", 16),
        "feedforward": ("d_inner", 4096),
    },
    values={
        "dropout": ("dropout", 0.1),
        "memory": ("mem_len", 512),
        "clamp": ("clamp_len", -1),
        "backward_rows": ("bi_data", False),
    },
    fixed={
        "ff_activation": "gelu",
        "attn_type": "bi",
        "untie_r": True,
        "same_length": False,
        "layer_norm_eps": 1e-12,
        "tie_word_embeddings": True,
    },
)


def rules(heads: int) -> list[Rule]:
    """The rules. Projections have the shape (inputs, heads, head width), the output projection is not transposed."""
    layer, attention = "transformer.layer.{layer}", "transformer.layer.{layer}.rel_attn"

    def projection(ours: str, *theirs: str) -> Rule:
        return Rule(
            f"blocks.{{layer}}.attention.{ours}.weight",
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
    ours = model.config
    config = _KEYS.write(
        ours,
        kind="xlnet",
        architecture="XLNetLMHeadModel",
        memory=ours.memory or None,
        clamp=ours.clamp or -1,
        # With bi_data, transformers would reverse half of every batch, in inference too.
        backward_rows=False,
    )
    return config, exported(rules(ours.head_count), model, ours.layers)


def from_huggingface(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Restored:
    reader = Reader(config, _KEYS)
    settings = reader.read()
    clamp, heads = settings["clamp"], settings["heads"]
    reader.require("d_head", None, settings["width"] // heads)
    reader.check()
    settings |= {
        "memory": settings["memory"] or 0,
        "clamp": clamp if isinstance(clamp, int) and clamp > 0 else 0,
        "dropout_attention": settings["dropout"],
    }
    named = normalised(tensors, prefix="transformer.", copies={"lm_loss.weight": "transformer.word_embedding.weight"})
    return restored("xlnet", settings, rules(heads), named)


CONVERTER = Converter(to_huggingface, from_huggingface)
