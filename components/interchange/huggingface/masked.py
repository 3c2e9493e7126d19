"""BERT, RoBERTa and ALBERT <-> `BertForPreTraining`, `RobertaForMaskedLM` and `AlbertForPreTraining`.

Files without heads, or with the head of masked pieces only, can also be imported. DistilBERT becomes a BERT whose
embeddings of segments are zero; XLM-RoBERTa and CamemBERT are RoBERTa with a unigram tokenizer. In transformers,
RoBERTa's positions start at the padding id + 1, so the first rows of the position table are unused, and the embedding
of the single segment is added to every position. Here, it is part of the position embeddings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from components.interchange.huggingface import Converter, Restored
from components.interchange.huggingface.rules import (
    Keys,
    Reader,
    Rule,
    Tensors,
    blocks,
    converter,
    exported,
    module,
    normalised,
    plain,
    restored,
    settings_of,
)
from components.models.roberta import RoBERTa
from components.tokenization.special import PAD

#: Keys of all families with BERT's encoder, with the defaults of BertConfig.
_BERT_KEYS: Final = Keys(
    numbers={
        "vocabulary": ("vocab_size", 30522),
        "width": ("hidden_size", 768),
        "layers": ("num_hidden_layers", 12),
        "heads": ("num_attention_heads", 12),
        "positions": ("max_position_embeddings", 512),
        "feedforward": ("intermediate_size", 3072),
    },
    values={
        "dropout": ("hidden_dropout_prob", 0.1),
        "dropout_attention": ("attention_probs_dropout_prob", 0.1),
        "norm_eps": ("layer_norm_eps", 1e-12),
    },
    activation=("hidden_act", "gelu"),
    fixed={"type_vocab_size": 2, "tie_word_embeddings": True},
    required={"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False},
)
_DISTIL_KEYS: Final = Keys(
    numbers={
        "vocabulary": ("vocab_size", 30522),
        "width": ("dim", 768),
        "layers": ("n_layers", 6),
        "heads": ("n_heads", 12),
        "positions": ("max_position_embeddings", 512),
        "feedforward": ("hidden_dim", 3072),
    },
    values={"dropout": ("dropout", 0.1), "dropout_attention": ("attention_dropout", 0.1)},
    activation=("activation", "gelu"),
    fixed={"tie_word_embeddings": True},
)
_ROBERTA_KEYS: Final = replace(
    _BERT_KEYS,
    numbers={**_BERT_KEYS.numbers, "vocabulary": ("vocab_size", 50265)},
    fixed={**_BERT_KEYS.fixed, "type_vocab_size": 1},
    only="gelu",
)
_ALBERT_KEYS: Final = replace(
    _BERT_KEYS,
    numbers={
        "vocabulary": ("vocab_size", 30000),
        "embedding": ("embedding_size", 128),
        "width": ("hidden_size", 4096),
        "layers": ("num_hidden_layers", 12),
        "heads": ("num_attention_heads", 64),
        "positions": ("max_position_embeddings", 512),
        "feedforward": ("intermediate_size", 16384),
    },
    values={
        "dropout": ("hidden_dropout_prob", 0.0),
        "dropout_attention": ("attention_probs_dropout_prob", 0.0),
        "norm_eps": ("layer_norm_eps", 1e-12),
    },
    activation=("hidden_act", "gelu_new"),
    fixed={**_BERT_KEYS.fixed, "num_hidden_groups": 1, "inner_group_num": 1},
)
#: Buffers in files of older versions.
_BUFFERS: Final = ("position_ids", "token_type_ids")
#: Some files of RoBERTa have a pooler, which is not pretrained.
_POOLER: Final = ("pooler.dense.weight", "pooler.dense.bias")


_OUTPUT: Final = ("output.dense", "output.LayerNorm")


def _embeddings(prefix: str) -> list[Rule]:
    # The names of these tables are the same in all three families.
    return [
        plain("token", f"{prefix}embeddings.word_embeddings.weight"),
        *module("embedding_norm", f"{prefix}embeddings.LayerNorm"),
    ]


def _body(prefix: str, *attention: str, **parts: Any) -> list[Rule]:
    names = attention or ("attention.self.{}", "attention.output.dense", "attention.output.LayerNorm")
    return [
        *_embeddings(prefix),
        *blocks(f"{prefix}encoder.layer.{{layer}}", *names, "intermediate.dense", *_OUTPUT, **parts),
    ]


def _head(transform: str, norm: str, bias: str) -> list[Rule]:
    return [
        *module("transform", transform, part="predictions"),
        *module("transform_norm", norm, part="predictions"),
        plain("bias", bias, part="predictions"),
    ]


_BERT_RULES: Final[Sequence[Rule]] = (
    *_body("bert."),
    plain("position", "bert.embeddings.position_embeddings.weight"),
    plain("segment", "bert.embeddings.token_type_embeddings.weight"),
    *module("pooler", "bert.pooler.dense", part="pooler"),
    *_head("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"),
    *module("next_sentence", "cls.seq_relationship", part="next sentence"),
)
_ALBERT_RULES: Final[Sequence[Rule]] = (
    *_embeddings("albert."),
    plain("position", "albert.embeddings.position_embeddings.weight"),
    plain("segment", "albert.embeddings.token_type_embeddings.weight"),
    *module("project", "albert.encoder.embedding_hidden_mapping_in"),
    *blocks(
        "albert.encoder.albert_layer_groups.0.albert_layers.0", "attention.{}", "attention.dense",
        "attention.LayerNorm", "ffn", "ffn_output", "full_layer_layer_norm", ours="block",
    ),
    *module("pooler", "albert.pooler", part="pooler"),
    *_head("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
    *module("sentence_order", "sop_classifier.classifier", part="sentence order"),
)  # fmt: skip
_DISTIL_RULES: Final[Sequence[Rule]] = (
    *_embeddings("distilbert."),
    plain("position", "distilbert.embeddings.position_embeddings.weight"),
    *blocks(
        "distilbert.transformer.layer.{layer}", "attention.{}_lin", "attention.out_lin", "sa_layer_norm", "ffn.lin1",
        "ffn.lin2", "output_layer_norm", parts="qkv",
    ),
    *_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
    # No file of the class has them.
    *module("pooler", "pooler.dense", part="pooler"),
    *module("next_sentence", "seq_relationship", part="next sentence"),
)  # fmt: skip


def _roberta_rules(unused: int) -> Sequence[Rule]:
    """The rules for a file whose first `unused` position rows are unused."""
    positions = Rule(
        "position",
        ("roberta.embeddings.position_embeddings.weight", "roberta.embeddings.token_type_embeddings.weight"),
        lambda table: (torch.cat([table.new_zeros(unused, table.shape[1]), table]), table.new_zeros(1, table.shape[1])),
        lambda table, segment: table[unused:] + segment,
    )
    return *_body("roberta."), positions, *_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")


def _names(prefix: str, head: str, *further: str) -> dict[str, Any]:
    """The arguments of `normalised`; the output layer is tied to the embeddings."""
    copies = {f"{head}.decoder.weight": f"{prefix}embeddings.word_embeddings.weight"}
    copies[f"{head}.decoder.bias"] = f"{head}.bias"
    return {"prefix": prefix, "copies": copies, "ignored": (*_BUFFERS, *further)}


def _from_bert(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Restored:
    if config.get("model_type") != "distilbert":
        return _BERT.from_huggingface(config, tensors)
    result = _DISTIL.from_huggingface(config, tensors)
    result.tensors["segment"] = torch.zeros(2, result.settings["width"])
    return result


def _to_roberta(model: RoBERTa) -> tuple[dict[str, Any], Tensors]:
    positions = model.config.positions + PAD + 1
    config = _ROBERTA_KEYS.write(model.config, kind="roberta", architecture="RobertaForMaskedLM", positions=positions)
    return config, exported(_roberta_rules(PAD + 1), model, model.config.layers)


def _from_roberta(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Restored:
    reader = Reader({"pad_token_id": 1, **config}, _ROBERTA_KEYS)
    settings, padding = reader.read(), reader["pad_token_id"]
    unused = padding + 1 if isinstance(padding, int) else 0
    if not 0 < unused < settings["positions"]:
        reader.problems.append(f"pad_token_id is {padding!r}, which leaves no positions")
    reader.check()
    settings["positions"] -= unused
    named = normalised(tensors, **_names("roberta.", "lm_head", *_POOLER))
    return restored("roberta", settings, _roberta_rules(unused), named)


_MPNET_RULES: Final[Sequence[Rule]] = (
    *_body("mpnet.", "attention.attn.{}", "attention.attn.o", "attention.LayerNorm", parts="qkv"),
    # The class starts at position 2, whatever the id of its padding.
    Rule("position", ("mpnet.embeddings.position_embeddings.weight",), restore=lambda table: table[2:],
         export=lambda table: (torch.cat([table[:2], table]),)),
    plain("distance", "mpnet.encoder.relative_attention_bias.weight"),
    *_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
)  # fmt: skip


#: The class has this id of the padding, whatever the settings.
_PADDING: Final = 1
_MPNET_KEYS: Final = replace(
    _BERT_KEYS,
    fixed={"relative_attention_num_buckets": 32, "tie_word_embeddings": True},
    required={},
    written={**_BERT_KEYS.written, "pad_token_id": _PADDING},
)


def _to_mpnet(model: RoBERTa) -> tuple[dict[str, Any], Tensors]:
    positions = model.config.positions + 2
    config = _MPNET_KEYS.write(model.config, kind="mpnet", architecture="MPNetForMaskedLM", positions=positions)
    tensors = exported(_MPNET_RULES, model, model.config.layers)
    for name in ("mpnet.embeddings.word_embeddings.weight", "lm_head.bias"):
        tensors[name][[PAD, _PADDING]] = tensors[name][[_PADDING, PAD]]
    return config, tensors


def _from_mpnet(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Restored:
    settings = settings_of(config, _MPNET_KEYS)
    settings["positions"] -= 2
    named = normalised(tensors, **_names("mpnet.", "lm_head", *_POOLER))
    return restored("mpnet", settings, _MPNET_RULES, named)


_BERT = converter(
    "bert", _BERT_KEYS, _BERT_RULES, architecture="BertForPreTraining", **_names("bert.", "cls.predictions")
)
_DISTIL = converter(
    "bert", _DISTIL_KEYS, _DISTIL_RULES, architecture="", prefix="distilbert.", ignored=_BUFFERS,
    copies={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
)  # fmt: skip
BERT_CONVERTER = Converter(_BERT.to_huggingface, _from_bert)
MPNET_CONVERTER = Converter(_to_mpnet, _from_mpnet, _PADDING)
ROBERTA_CONVERTER = Converter(_to_roberta, _from_roberta)
ALBERT_CONVERTER = converter(
    "albert", _ALBERT_KEYS, _ALBERT_RULES, architecture="AlbertForPreTraining", **_names("albert.", "predictions")
)
