"""Weights carried over to other implementations."""

from __future__ import annotations

import torch
import transformers

from components.models.bert import BERT


def copy_to_transformers(model: BERT) -> transformers.BertForPreTraining:
    """`transformers`' BERT with the weights of ours."""
    config = model.config
    peer = transformers.BertForPreTraining(
        transformers.BertConfig(
            vocab_size=config.vocabulary,
            hidden_size=config.width,
            num_hidden_layers=config.layers,
            num_attention_heads=config.head_count,
            intermediate_size=4 * config.width,
            max_position_embeddings=config.positions,
            hidden_dropout_prob=config.dropout,
            attention_probs_dropout_prob=config.dropout_attention,
            hidden_act="gelu",
        )
    )
    own = model.state_dict()
    names = {
        "token": "bert.embeddings.word_embeddings.weight",
        "position": "bert.embeddings.position_embeddings.weight",
        "segment": "bert.embeddings.token_type_embeddings.weight",
        "embedding_norm": "bert.embeddings.LayerNorm",
        "transform": "cls.predictions.transform.dense",
        "transform_norm": "cls.predictions.transform.LayerNorm",
        "bias": "cls.predictions.bias",
        "pooler": "bert.pooler.dense",
        "next_sentence": "cls.seq_relationship",
        "attention.output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "expand": "intermediate.dense",
        "contract": "output.dense",
        "norm": "output.LayerNorm",
    }
    moved = {}
    for name, value in own.items():
        prefix, rest = "", name
        if name.startswith("blocks."):
            _, layer, rest = name.split(".", 2)
            prefix = f"bert.encoder.layer.{layer}."
        stem, _, kind = rest.rpartition(".")
        if stem == "attention.query_key_value":
            for part, chunk in zip(("query", "key", "value"), value.chunk(3), strict=True):
                moved[f"{prefix}attention.self.{part}.{kind}"] = chunk
        elif rest in names:
            moved[names[rest]] = value
        else:
            moved[f"{prefix}{names[stem]}.{kind}"] = value
    # The output layer is tied to the table; its bias stands twice.
    moved["cls.predictions.decoder.weight"] = moved["bert.embeddings.word_embeddings.weight"]
    moved["cls.predictions.decoder.bias"] = moved["cls.predictions.bias"]
    missing, surplus = peer.load_state_dict(moved, strict=False)
    assert not surplus
    assert all(name.endswith("position_ids") for name in missing)
    return peer.to(torch.float32)
