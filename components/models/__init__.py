"""Language-model families: the table of what can be pretrained, adapted and fine-tuned."""

from __future__ import annotations

from typing import Any

from components.errors import ConfigError, nearest
from components.models import (
    albert,
    bert,
    cove,
    elmo,
    fasttext,
    flair,
    glove,
    gpt,
    roberta,
    transformer_xl,
    ulmfit,
    word2vec,
    xlnet,
)
from components.models.base import ModelFamily

__all__ = ["FAMILIES", "family"]

#: One line a family; its file says everything else.
FAMILIES: dict[str, ModelFamily[Any]] = {
    member.name: member
    for member in (
        ulmfit.FAMILY,
        bert.FAMILY,
        flair.FAMILY,
        elmo.FAMILY,
        gpt.FAMILY,
        roberta.FAMILY,
        albert.FAMILY,
        word2vec.FAMILY,
        glove.FAMILY,
        fasttext.FAMILY,
        cove.FAMILY,
        transformer_xl.FAMILY,
        xlnet.FAMILY,
    )
}


def family(name: str) -> ModelFamily[Any]:
    """The family of that name.

    Raises:
        ConfigError: there is none; names the nearest.
    """
    if name not in FAMILIES:
        raise ConfigError(f"unknown family {name!r}{nearest(name, FAMILIES)}")
    return FAMILIES[name]
