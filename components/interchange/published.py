"""A converted published model of any format."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from components.core.errors import ConfigError, nearest
from components.models.base import LanguageModel
from components.tokenization import Tokenizer

#: Output bias of pieces without a counterpart.
NEVER: Final = -50.0
#: Suffixes of the names of the output bias in published files.
OUTPUT_BIASES: Final = ("predictions.bias", "lm_head.bias", "lm_loss.bias", "vocab_projector.bias")


@dataclass(frozen=True)
class Imported:
    """The result of an import.

    Attributes:
        model: embedding rows in the order of the tokenizer's pieces.
        fresh: names of tensors that the source lacks; they are initialised as in a new model.
    """

    family: str
    model: LanguageModel
    tokenizer: Tokenizer
    digest: str
    log: list[str]
    fresh: list[str] = field(default_factory=list)

    @property
    def learned_output(self) -> bool:
        """Whether the source has an output layer over the vocabulary; embedding models lack it."""
        return not any(name.endswith(OUTPUT_BIASES) for name in self.fresh)


def unfit(family: str, source: Path, takers: tuple[str, ...]) -> ConfigError:
    """The error for a family that does not support a source."""
    return ConfigError(f"{source}: not supported by the family {family!r}{nearest(family, takers)}")
