"""GPT <-> `OpenAIGPTLMHeadModel` (post-norm) and `GPT2LMHeadModel` (pre-norm), with or without the head.

Neither class has an output bias. It is exported as an additional tensor that transformers ignores: hidden states are
equal, logits lack the bias, and an exported model can be imported without loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torch import Tensor

from components.errors import ArtifactError
from components.interchange.huggingface import Converter
from components.interchange.huggingface.rules import (
    Reader,
    Rule,
    Tensors,
    activation_name,
    exported,
    module,
    normalised,
    plain,
    restored,
    spread,
    transposed,
)
from components.models.gpt import GPT
from components.tokenization.special import END

DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "gpt2": {
        "vocab_size": 50257,
        "n_positions": 1024,
        "activation_function": "gelu_new",
        "n_inner": None,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    "openai-gpt": {"vocab_size": 40478, "n_positions": 512, "afn": "gelu"},
}
#: Defaults of both classes.
COMMON: Final = {
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "resid_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True,
}
OUTPUT_BIAS: Final = "lm_head.bias"
#: Causal masks in files of older versions.
BUFFERS: Final = (".attn.bias", ".attn.masked_bias", "position_ids")


def rules(kind: str) -> list[Rule]:
    """The rules of one of the two classes."""
    token, position = ("wte", "wpe") if kind == "gpt2" else ("tokens_embed", "positions_embed")
    layer = "transformer.h.{layer}"
    table = [
        plain("token", f"transformer.{token}.weight"),
        plain("position", f"transformer.{position}.weight"),
        *module("blocks.{layer}.attention.query_key_value", f"{layer}.attn.c_attn", rule=transposed),
        *module("blocks.{layer}.attention.output", f"{layer}.attn.c_proj", rule=transposed),
        *module("blocks.{layer}.attention_norm", f"{layer}.ln_1"),
        *module("blocks.{layer}.expand", f"{layer}.mlp.c_fc", rule=transposed),
        *module("blocks.{layer}.contract", f"{layer}.mlp.c_proj", rule=transposed),
        *module("blocks.{layer}.norm", f"{layer}.ln_2"),
        plain("bias", OUTPUT_BIAS),
    ]
    return [*table, *module("final_norm", "transformer.ln_f")] if kind == "gpt2" else table


def to_huggingface(model: GPT) -> tuple[dict[str, Any], Tensors]:
    """config.json and tensors of a model with the same hidden states.

    Raises:
        ArtifactError: the model has banded attention, tokens of a task, or an activation
            that the class does not support.
    """
    own = model.config
    if own.band:
        raise ArtifactError("banded attention (model.band) has no counterpart in Hugging Face")
    if own.task_tokens:
        raise ArtifactError(
            "the tokens of tasks (model.task_tokens) have no counterpart in Hugging Face; export the encoder "
            "from before fine-tuning"
        )
    kind = "gpt2" if own.norm == "pre" else "openai-gpt"
    activation = {"activation_function": activation_name(own.activation)}
    if kind == "openai-gpt":
        if own.activation != "gelu_tanh":
            raise ArtifactError(f"activation {own.activation!r}: Hugging Face's GPT has only 'gelu_tanh'")
        # Its "gelu" is the tanh approximation.
        activation = {"afn": "gelu"}
    config = {
        "model_type": kind,
        "architectures": ["GPT2LMHeadModel" if kind == "gpt2" else "OpenAIGPTLMHeadModel"],
        "vocab_size": own.vocabulary,
        "n_positions": own.positions,
        "n_embd": own.width,
        "n_layer": own.layers,
        "n_head": own.head_count,
        **activation,
        "resid_pdrop": own.dropout,
        "embd_pdrop": own.dropout,
        "attn_pdrop": own.dropout_attention,
        "layer_norm_epsilon": own.norm_eps,
        "bos_token_id": END,
        "eos_token_id": END,
        "tie_word_embeddings": True,
    }
    tensors = model.state_dict()
    table = [rule for rule in spread(rules(kind), own.layers) if rule.own in tensors]
    return config, exported(table, tensors)


def from_huggingface(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> tuple[dict[str, Any], int, Tensors]:
    """Settings, vocabulary and tensors of a `GPT`.

    Raises:
        ArtifactError: config.json has unsupported values, or tensors are missing, surplus or misshapen.
    """
    kind = config.get("model_type", "gpt2")
    if kind not in DEFAULTS:
        raise ArtifactError(
            f"config.json: model_type is {kind!r}, only {' or '.join(map(repr, DEFAULTS))} is supported"
        )
    reader = Reader(config, COMMON | DEFAULTS[kind])
    activation = "gelu_tanh"
    width = reader.number("n_embd")
    if kind == "gpt2":
        activation = reader.activation("activation_function")
        reader.require("n_inner", None, 4 * width)
        reader.require("scale_attn_weights", True)
        reader.require("scale_attn_by_inverse_layer_idx", False)
        reader.require("add_cross_attention", False)
    else:
        reader.require("afn", "gelu")
    reader.require("tie_word_embeddings", True)
    settings = {
        "width": width,
        "layers": reader.number("n_layer"),
        "heads": reader.number("n_head"),
        "positions": reader.number("n_positions"),
        "dropout": reader["resid_pdrop"],
        "dropout_attention": reader["attn_pdrop"],
        "activation": activation,
        "norm_eps": reader["layer_norm_epsilon"],
        "norm": "pre" if kind == "gpt2" else "post",
        "output_bias": OUTPUT_BIAS in tensors,
    }
    vocabulary = reader.number("vocab_size")
    reader.check()
    table = rules(kind)
    named = normalised(tensors, prefix="transformer.", tied={"lm_head.weight": table[0].theirs[0]}, ignored=BUFFERS)
    return settings, vocabulary, restored("gpt", settings, vocabulary, spread(table, settings["layers"]), named)


CONVERTER = Converter(to_huggingface, from_huggingface)
