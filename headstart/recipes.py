"""Settings of fine-tuning for an encoder and a task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from components.artifacts import read_manifest
from components.interchange.published import OUTPUT_BIASES
from components.settings.finetune import FinetuneSettings
from components.tasks.data import Fields

#: Lengths of texts in pieces, of which the least is used that fits nearly all texts.
LENGTHS: Final = (64, 128, 256)
#: Characters per piece at least, and share of the texts that are not cut.
CHARACTERS, WHOLE = 3.5, 0.95
#: Values of a matrix from which it is too large to be trained for few labels.
LARGE: Final = 40_000_000
#: Penalties of heads on embeddings of length 1, and on hidden states.
OF_EMBEDDINGS, OF_STATES = [0.3, 1.0, 3.0, 10.0, 30.0, 100.0], [1.0, 10.0, 100.0, 1000.0]


def finetuning_of(encoder: Path, rows: Sequence[Fields], *, kind: str, minutes: float | None) -> FinetuneSettings:
    """The settings for an encoder directory.

    A model of sentence embeddings, which has no output layer over the vocabulary, is read as it was trained: the mean
    of its last layer, scaled to length 1, each text of a pair by itself.

    Args:
        encoder: encoder directory.
        rows: inputs of the task.
        kind: of the task.
        minutes: limit of `method: auto`; None: none.
    """
    facts = read_manifest(encoder, kind="encoder").facts
    embeds = any(name.endswith(OUTPUT_BIASES) for name in facts.get("fresh", []))
    tags = kind == "tagging"
    settings: dict[str, Any] = {
        "method": "auto",
        "auto": {"minutes": minutes, **({"ways": ["features"]} if is_large(encoder) else {})},
        "layers": "last" if embeds else "all",
        "pooling": "mean",
        "unit_length": embeds and not tags,
        "pairs": "apart" if embeds else "auto",
        "head_penalties": OF_EMBEDDINGS if embeds else OF_STATES,
        "discriminative": 1.2,
        "unfreeze_epochs": 0,
        "epochs": 12 if tags else 4,
        "min_steps": 60,
        "evaluations": 3,
        "max_length": length_of(rows),
        # With few steps, slots are learned only at a higher rate.
        "training": {"rate": 0.0002 if tags else 0.00005, "schedule": "slanted_triangular", "batch_size": 16},
    }
    return FinetuneSettings.model_validate(settings)


def is_large(encoder: Path) -> bool:
    """Whether an encoder has a table of embeddings whose training would take most of the time, as multilingual ones
    have; only heads on its features are trained then."""
    from components.models.encoder import architecture_of  # imports torch

    return max(parameter.numel() for parameter in architecture_of(encoder).parameters()) > LARGE


def length_of(rows: Sequence[Fields]) -> int:
    """Pieces of a text that are read: enough for nearly all texts, at most the largest of `LENGTHS`."""
    characters = np.quantile([sum(map(len, fields)) for fields in rows], WHOLE)
    return next((length for length in LENGTHS if characters / CHARACTERS + 4 <= length), LENGTHS[-1])
