"""Settings of fine-tuning for an encoder and a task: the recipes of params.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from components.artifacts import read_manifest
from components.interchange.published import OUTPUT_BIASES
from components.onboarding.lengths import WHOLE, length_for
from components.settings.completion import IMPORTED, IMPORTED_TRAINING, TRAINED, TRAINED_TRAINING
from components.settings.finetune import FinetuneSettings
from components.tasks.data import Fields


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
        "auto": {"minutes": minutes, **({"ways": ["features"]} if _is_large(encoder) else {})},
        "max_length": length_for(_characters(rows), language=language),
        "training": training,
    }
    # A model of sentence embeddings has no output layer over the vocabulary.
    if any(name.endswith(OUTPUT_BIASES) for name in facts.get("fresh", [])) and not tags:
        settings["unit_length"] = True
    if tags:
        # With few steps, slots are learned only at a higher rate (docs/experiments-log.md).
        settings |= {"epochs": 12, "training": {**training, "rate": 4 * training["rate"]}, "words": "none"}
    return FinetuneSettings.model_validate(settings)


def _is_large(encoder: Path) -> bool:
    from components.models.encoder import architecture_of, has_large_table  # imports torch

    return has_large_table(architecture_of(encoder))


def _characters(rows: Sequence[Fields]) -> float:
    """Characters of a row, the texts of a pair joined by a space; few rows have more."""
    return float(np.quantile([len(" ".join(fields)) for fields in rows], WHOLE))
