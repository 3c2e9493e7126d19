"""GPT <-> `OpenAIGPTLMHeadModel` (post-norm) and `GPT2LMHeadModel` (pre-norm), with or without the head.

Neither class has an output bias. It is exported as an additional tensor that transformers ignores: hidden states are
equal, logits lack the bias, and an exported model can be imported without loss.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from torch import Tensor

from components.core.errors import ArtifactError
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
    transposed,
)
from components.models.gpt import GPT
from components.tokenization.special import END

_KEYS: Final = Keys(
    numbers={
        "vocabulary": ("vocab_size", 50257),
        "width": ("n_embd", 768),
        "layers": ("n_layer", 12),
        "heads": ("n_head", 12),
        "positions": ("n_positions", 1024),
    },
    values={
        "dropout": ("resid_pdrop", 0.1),
        "dropout_attention": ("attn_pdrop", 0.1),
        "norm_eps": ("layer_norm_epsilon", 1e-5),
    },
    activation=("activation_function", "gelu_new"),
    fixed={"tie_word_embeddings": True},
    required={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
    written={"bos_token_id": END, "eos_token_id": END},
)
KEYS: Final = {
    "gpt2": _KEYS,
    # Its "gelu" is the tanh approximation.
    "openai-gpt": replace(
        _KEYS,
        numbers={**_KEYS.numbers, "vocabulary": ("vocab_size", 40478), "positions": ("n_positions", 512)},
        activation=None,
        fixed={"tie_word_embeddings": True, "afn": "gelu"},
        required={},
    ),
}
OUTPUT_BIAS: Final = "lm_head.bias"
#: Causal masks in files of older versions.
BUFFERS: Final = (".attn.bias", ".attn.masked_bias", "position_ids")


def rules(kind: str) -> list[Rule]:
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


def refuse_unpublished(model: GPT) -> None:
    """Raise ArtifactError for what no published class has."""
    if model.config.band:
        raise ArtifactError("banded attention (model.band) has no counterpart in Hugging Face")
    if model.config.task_tokens:
        raise ArtifactError(
            "the tokens of tasks (model.task_tokens) have no counterpart in Hugging Face; export the encoder "
            "from before fine-tuning"
        )


def to_huggingface(model: GPT) -> tuple[dict[str, Any], Tensors]:
    ours = model.config
    refuse_unpublished(model)
    kind, name = ("gpt2", "GPT2LMHeadModel") if ours.norm == "pre" else ("openai-gpt", "OpenAIGPTLMHeadModel")
    if kind == "openai-gpt" and ours.activation != "gelu_tanh":
        raise ArtifactError(f"activation {ours.activation!r}: Hugging Face's GPT has only 'gelu_tanh'")
    config = KEYS[kind].write(ours, kind=kind, architecture=name) | {"embd_pdrop": ours.dropout}
    return config, exported(rules(kind), model, ours.layers)


def from_huggingface(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Restored:
    kind = config.get("model_type", "gpt2")
    if kind not in KEYS:
        raise ArtifactError(f"config.json: model_type is {kind!r}, only {' or '.join(map(repr, KEYS))} is supported")
    reader = Reader(config, KEYS[kind])
    settings = {"activation": "gelu_tanh", **reader.read()}
    if kind == "gpt2":
        reader.require("n_inner", None, 4 * settings["width"])
    reader.check()
    settings |= {"norm": "pre" if kind == "gpt2" else "post", "output_bias": OUTPUT_BIAS in tensors}
    table = rules(kind)
    named = normalised(tensors, prefix="transformer.", copies={"lm_head.weight": table[0].theirs[0]}, ignored=BUFFERS)
    return restored("gpt", settings, table, named)


CONVERTER = Converter(to_huggingface, from_huggingface)
