"""A published model in our terms, whatever it came as."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from components.errors import ConfigError, nearest
from components.models.base import LanguageModel
from components.tokenization import Tokenizer

#: Ends of the names that the bias over the vocabulary has in published files.
OUTPUT_BIASES: Final = ("predictions.bias", "lm_head.bias", "lm_loss.bias")


@dataclass(frozen=True)
class Imported:
    """What importing makes of a source.

    Attributes:
        family: name in `FAMILIES`.
        model: rows in the order of the tokenizer's pieces.
        tokenizer: ours, with the published segmentation.
        digest: SHA-256 of everything that was read.
        log: what was mapped to what, one fact a line.
        fresh: tensors that the source does not hold; they are as in a new model.
    """

    family: str
    model: LanguageModel
    tokenizer: Tokenizer
    digest: str
    log: list[str]
    fresh: list[str] = field(default_factory=list)

    @property
    def learned_output(self) -> bool:
        """Whether the source holds the layer that predicts pieces; models made to embed texts come without it."""
        return not any(name.endswith(OUTPUT_BIASES) for name in self.fresh)


def unfit(family: str, source: Path, takers: tuple[str, ...]) -> ConfigError:
    """The error for a family that does not take this kind of source."""
    return ConfigError(f"{source}: the family {family!r} does not take it{nearest(family, takers)}")
