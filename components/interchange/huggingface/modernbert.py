"""ModernBERT <-> `ModernBertForMaskedLM`, with or without the head.

Files of transformers from version 5 on list the kind of each layer (`layer_types`) and its angles (`rope_parameters`);
older ones, and our exports, have a period and two bases.
"""

from collections.abc import Mapping
from typing import Any, Final

from components.core.errors import ArtifactError
from components.interchange.huggingface.rules import Keys, Rule, converter, plain
from components.tokenization.special import END, PAD, START

_PERIOD: Final = "global_attn_every_n_layers"
#: Kind of layer -> the key of its base in older files.
_KINDS: Final = {"full_attention": "global_rope_theta", "sliding_attention": "local_rope_theta"}
KEYS: Final = Keys(
    numbers={
        "vocabulary": ("vocab_size", 50368),
        "width": ("hidden_size", 768),
        "layers": ("num_hidden_layers", 22),
        "heads": ("num_attention_heads", 12),
        "positions": ("max_position_embeddings", 8192),
        "feedforward": ("intermediate_size", 1152),
        "every": (_PERIOD, 3),
        "window": ("local_attention", 128),
    },
    values={
        "dropout": ("embedding_dropout", 0.0),
        "dropout_attention": ("attention_dropout", 0.0),
        "norm_eps": ("norm_eps", 1e-5),
        "base": (_KINDS["full_attention"], 160_000.0),
        "base_local": (_KINDS["sliding_attention"], 10_000.0),
    },
    activation=("hidden_activation", "gelu"),
    only="gelu",
    fixed={"classifier_activation": "gelu", "tie_word_embeddings": True, "decoder_bias": True}
    | dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), False),
    required={"rope_scaling": None},
    written={"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END, "cls_token_id": START,
             "sep_token_id": END},
)  # fmt: skip
_LAYER: Final = "model.layers.{layer}"
RULES: Final[list[Rule]] = [
    plain("token", "model.embeddings.tok_embeddings.weight"),
    plain("embedding_norm.weight", "model.embeddings.norm.weight"),
    plain("blocks.{layer}.attention_norm.weight", f"{_LAYER}.attn_norm.weight"),
    plain("blocks.{layer}.attention.query_key_value.weight", f"{_LAYER}.attn.Wqkv.weight"),
    plain("blocks.{layer}.attention.output.weight", f"{_LAYER}.attn.Wo.weight"),
    plain("blocks.{layer}.norm.weight", f"{_LAYER}.mlp_norm.weight"),
    plain("blocks.{layer}.expand.weight", f"{_LAYER}.mlp.Wi.weight"),
    plain("blocks.{layer}.contract.weight", f"{_LAYER}.mlp.Wo.weight"),
    plain("final_norm.weight", "model.final_norm.weight"),
    plain("transform.weight", "head.dense.weight", part="predictions"),
    plain("transform_norm.weight", "head.norm.weight", part="predictions"),
    plain("bias", "decoder.bias", part="predictions"),
]


def _older(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with the keys of older files."""
    older = dict(config)
    whole, local = _KINDS
    if kinds := config.get("layer_types"):
        period = kinds.index(whole, 1) if whole in kinds[1:] else len(kinds)
        if kinds != [local if layer % period else whole for layer in range(len(kinds))]:
            raise ArtifactError("config.json: layer_types do not repeat; only a global layer in every n is supported")
        older[_PERIOD] = period
    for kind, key in _KINDS.items():
        rotation = (config.get("rope_parameters") or {}).get(kind) or {}
        if (form := rotation.get("rope_type", "default")) != "default":
            raise ArtifactError(f"config.json: rope_type is {form!r}, only 'default' is supported")
        if "rope_theta" in rotation:
            older[key] = rotation["rope_theta"]
    return older


CONVERTER = converter(
    "modernbert", KEYS, RULES, architecture="ModernBertForMaskedLM", older=_older, prefix="model.",
    copies={"decoder.weight": RULES[0].theirs[0]},
)  # fmt: skip
