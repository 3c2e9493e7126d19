"""Families of language models: the table of what can be pretrained, adapted and fine-tuned."""

from typing import Any

from components.core.errors import ConfigError, nearest
from components.core.tables import LazyTable
from components.models.base import ModelFamily

__all__ = ["FAMILIES", "family"]

#: Family -> "module:attribute" of its `ModelFamily`; everything else about a family is in its module.
FAMILIES: LazyTable[ModelFamily[Any]] = LazyTable(
    {
        "ulmfit": "components.models.ulmfit:FAMILY",
        "bert": "components.models.bert:FAMILY",
        "flair": "components.models.flair:FAMILY",
        "elmo": "components.models.elmo:FAMILY",
        "gpt": "components.models.gpt:FAMILY",
        "llama": "components.models.llama:FAMILY",
        "roberta": "components.models.roberta:FAMILY",
        "mpnet": "components.models.mpnet:FAMILY",
        "modernbert": "components.models.modernbert:FAMILY",
        "albert": "components.models.albert:FAMILY",
        "word2vec": "components.models.word2vec:FAMILY",
        "glove": "components.models.glove:FAMILY",
        "fasttext": "components.models.fasttext:FAMILY",
        "cove": "components.models.cove:FAMILY",
        "transformer": "components.models.transformer:FAMILY",
        "transformer-xl": "components.models.transformer_xl:FAMILY",
        "xlnet": "components.models.xlnet:FAMILY",
    }
)


def family(name: str) -> ModelFamily[Any]:
    """The family of that name.

    Raises:
        ConfigError: there is no such family; the message suggests the nearest name.
    """
    if name not in FAMILIES:
        raise ConfigError(f"unknown family {name!r}{nearest(name, FAMILIES)}")
    return FAMILIES[name]
