"""Settings of fine-tuning for an encoder and a task: the recipes of params.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from components.artifacts import read_manifest
from components.interchange.published import OUTPUT_BIASES
from components.settings.completion import IMPORTED, IMPORTED_TRAINING, TRAINED, TRAINED_TRAINING
from components.settings.finetune import FinetuneSettings
from components.tasks.data import Fields
from components.words.systems import UNSPACED

#: Lengths of texts in pieces, of which the least is used that fits nearly all texts.
LENGTHS: Final = (64, 128, 256)
#: Characters per piece at least, in languages with and without spaces, and share of the texts that are not cut.
CHARACTERS, CHARACTERS_UNSPACED, WHOLE = 3.5, 2.0, 0.95
#: Values of a matrix from which it is too large to be trained for few labels.
LARGE: Final = 40_000_000


def finetuning_of(
    encoder: Path, rows: Sequence[Fields], *, kind: str, language: str, minutes: float | None
) -> FinetuneSettings:
    """The settings for an encoder directory: those that a block of params.yaml has by default, with all ways to learn.

    Args:
        encoder: encoder directory.
        rows: inputs of the task.
        kind: of the task.
        language: of the task.
        minutes: limit of `method: auto`; None: none.
    """
    facts = read_manifest(encoder, kind="encoder").facts
    is_imported, tags = "source" in facts, kind == "tagging"
    training: dict[str, Any] = dict(IMPORTED_TRAINING if is_imported else TRAINED_TRAINING)
    settings: dict[str, Any] = dict(IMPORTED if is_imported else TRAINED) | {
        "method": "auto",
        "auto": {"minutes": minutes, **({"ways": ["features"]} if is_large(encoder) else {})},
        "max_length": length_of(rows, language=language),
        "training": training,
    }
    # A model of sentence embeddings has no output layer over the vocabulary.
    if any(name.endswith(OUTPUT_BIASES) for name in facts.get("fresh", [])) and not tags:
        settings["unit_length"] = True
    if tags:
        # With few steps, slots are learned only at a higher rate (docs/experiments-log.md).
        settings |= {"epochs": 12, "training": {**training, "rate": 4 * training["rate"]}, "words": "none"}
    return FinetuneSettings.model_validate(settings)


def is_large(encoder: Path) -> bool:
    """Whether an encoder has a table of embeddings whose training would take most of the time, as multilingual ones
    have; only heads on its features are trained then."""
    from components.models.encoder import architecture_of  # imports torch

    return max(parameter.numel() for parameter in architecture_of(encoder).parameters()) > LARGE


def length_of(rows: Sequence[Fields], *, language: str) -> int:
    """Pieces of a text that are read: enough for nearly all texts, at most the largest of `LENGTHS`."""
    characters = np.quantile([sum(map(len, fields)) for fields in rows], WHOLE)
    pieces = characters / (CHARACTERS_UNSPACED if language in UNSPACED else CHARACTERS) + 4
    return next((length for length in LENGTHS if pieces <= length), LENGTHS[-1])
