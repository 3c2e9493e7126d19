"""Llama <-> `LlamaForCausalLM` with tied embeddings, with or without the head.

The published class may share the keys and values of several heads; they are repeated here, and an exported model has
them for each head. Its output bias is exported as GPT's.
"""

from collections.abc import Mapping
from typing import Any, Final

from torch import Tensor

from components.core.errors import ArtifactError
from components.interchange.huggingface import Converter, Restored
from components.interchange.huggingface.gpt import OUTPUT_BIAS, refuse_unpublished
from components.interchange.huggingface.rules import (
    PARTS,
    Keys,
    Reader,
    Rule,
    Tensors,
    exported,
    normalised,
    packed,
    plain,
    restored,
)
from components.models.llama import Llama

KEYS: Final = Keys(
    numbers={
        "vocabulary": ("vocab_size", 32000),
        "width": ("hidden_size", 4096),
        "layers": ("num_hidden_layers", 32),
        "heads": ("num_attention_heads", 32),
        "positions": ("max_position_embeddings", 2048),
        "feedforward": ("intermediate_size", 11008),
    },
    values={
        # Not in the published class.
        "dropout": ("resid_pdrop", 0.0),
        "dropout_attention": ("attention_dropout", 0.0),
        "norm_eps": ("rms_norm_eps", 1e-6),
        "base": ("rope_theta", 10_000.0),
    },
    activation=("hidden_act", "silu"),
    only="silu",
    fixed={"tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False},
)
_LAYER: Final = "model.layers.{layer}"
RULES: Final[list[Rule]] = [
    plain("token", "model.embed_tokens.weight"),
    plain("blocks.{layer}.attention_norm.weight", f"{_LAYER}.input_layernorm.weight"),
    packed(
        "blocks.{layer}.attention.query_key_value.weight",
        *(f"{_LAYER}.self_attn.{part[0]}_proj.weight" for part in PARTS),
    ),
    plain("blocks.{layer}.attention.output.weight", f"{_LAYER}.self_attn.o_proj.weight"),
    plain("blocks.{layer}.norm.weight", f"{_LAYER}.post_attention_layernorm.weight"),
    packed("blocks.{layer}.expand.weight", f"{_LAYER}.mlp.gate_proj.weight", f"{_LAYER}.mlp.up_proj.weight"),
    plain("blocks.{layer}.contract.weight", f"{_LAYER}.mlp.down_proj.weight"),
    plain("final_norm.weight", "model.norm.weight"),
    plain("bias", OUTPUT_BIAS),
]


def to_huggingface(model: Llama) -> tuple[dict[str, Any], Tensors]:
    refuse_unpublished(model)
    config = KEYS.write(model.config, kind="llama", architecture="LlamaForCausalLM")
    return config | {"num_key_value_heads": model.config.head_count}, exported(RULES, model, model.config.layers)


def from_huggingface(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Restored:
    # transformers writes the angles in one object from version 5 on.
    angles = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if (form := angles.get("rope_type", angles.get("type", "default"))) != "default":
        raise ArtifactError(f"config.json: rope_type is {form!r}, only 'default' is supported")
    reader = Reader({**config, **{key: value for key, value in angles.items() if key == "rope_theta"}}, KEYS)
    settings = reader.read()
    width, heads = settings["width"], settings["heads"]
    reader.require("head_dim", None, width // heads)
    groups = config.get("num_key_value_heads") or heads
    if width % heads or heads % groups:
        sizes = f"hidden_size {width}, num_attention_heads {heads} and num_key_value_heads {groups}"
        reader.problems.append(f"{sizes} are no multiples of one another")
    reader.check()
    times, size = heads // groups, width // heads
    shared = tuple(f".{part[0]}_proj.weight" for part in PARTS[1:])
    spread = {
        name: tensor.unflatten(0, (-1, size)).repeat_interleave(times, 0).flatten(0, 1)
        if name.endswith(shared) and not len(tensor) % size
        else tensor
        for name, tensor in tensors.items()
    }
    settings["output_bias"] = OUTPUT_BIAS in tensors
    named = normalised(
        spread, prefix="model.", copies={"lm_head.weight": RULES[0].theirs[0]}, ignored=("rotary_emb.inv_freq",)
    )
    return restored("llama", settings, RULES, named)


CONVERTER = Converter(to_huggingface, from_huggingface)
