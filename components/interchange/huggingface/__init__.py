"""Weights and settings in the names of Hugging Face's folders, both ways; nothing of theirs is imported.

Each family has a module with

    to_huggingface(model) -> (config, tensors)
    from_huggingface(config, tensors) -> (settings, vocabulary, our tensors)

of plain dicts: `config` is what stands in their config.json, `settings` are keyword arguments of the family's config
class without `vocabulary`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from torch import Tensor

from components.errors import ArtifactError, nearest
from components.interchange.huggingface import albert, bert, gpt, roberta, xlnet

__all__ = ["CONVERTERS", "MODEL_TYPES", "Converter", "family_of"]


class Converter(Protocol):
    """What a module of a family offers."""

    def to_huggingface(self, model: Any) -> tuple[dict[str, Any], dict[str, Tensor]]: ...

    def from_huggingface(
        self, config: Mapping[str, Any], tensors: Mapping[str, Tensor]
    ) -> tuple[dict[str, Any], int, dict[str, Tensor]]: ...


#: Family -> module.
CONVERTERS: Final[dict[str, Converter]] = {
    "bert": bert,
    "roberta": roberta,
    "albert": albert,
    "gpt": gpt,
    "xlnet": xlnet,
}
#: Their `model_type` -> family.
MODEL_TYPES: Final[dict[str, str]] = {
    "bert": "bert",
    "roberta": "roberta",
    "albert": "albert",
    "gpt2": "gpt",
    "openai-gpt": "gpt",
    "xlnet": "xlnet",
}


def family_of(config: Mapping[str, Any]) -> str:
    """The family that takes models of this config.json.

    Raises:
        ArtifactError: none does, or the file says nothing of a type.
    """
    kind = config.get("model_type")
    if kind not in MODEL_TYPES:
        raise ArtifactError(f"config.json: no family takes model_type {kind!r}{nearest(str(kind), MODEL_TYPES)}")
    return MODEL_TYPES[kind]
