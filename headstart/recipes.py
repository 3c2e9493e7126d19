"""Settings of fine-tuning for an encoder and a task: the recipes of params.yaml."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from components.core.artifacts import read_manifest
from components.data.tasks.data import Fields
from components.interchange.published import OUTPUT_BIASES
from components.settings.completion import IMPORTED, IMPORTED_TRAINING, TRAINED, TRAINED_TRAINING
from components.settings.finetune import FinetuneSettings


def finetuning_of(encoder: Path, rows: Sequence[Fields], *, kind: str, minutes: float | None) -> FinetuneSettings:
    """The settings for an encoder directory: those that a block of params.yaml has by default, with all ways to learn.

    Args:
        encoder: encoder directory.
        rows: inputs of the task.
        kind: of the task.
        minutes: limit of `method: auto`; None: none.
    """
    facts = read_manifest(encoder, kind="encoder").facts
    is_imported, tags = "source" in facts, kind == "tagging"
    training: dict[str, Any] = dict(IMPORTED_TRAINING if is_imported else TRAINED_TRAINING)
    settings: dict[str, Any] = dict(IMPORTED if is_imported else TRAINED) | {
        "method": "auto",
        "auto": {"minutes": minutes, **({"ways": ["features"]} if _is_large(encoder) else {})},
        "training": training,
    }
    if is_sentence_encoder(encoder) and not tags:
        settings["unit_length"] = True
    if tags:
        # With few steps, slots are learned only at a higher rate.
        settings |= {"epochs": 12, "training": {**training, "rate": 4 * training["rate"]}, "words": "none"}
    chosen = FinetuneSettings.model_validate(settings)
    return chosen.model_copy(update=_reading(encoder, rows, chosen, kind=kind))


def is_sentence_encoder(encoder: Path) -> bool:
    """Whether an encoder directory holds a model of sentence embeddings: it has no output layer over the vocabulary."""
    return any(name.endswith(OUTPUT_BIASES) for name in read_manifest(encoder).facts.get("fresh", []))


def _is_large(encoder: Path) -> bool:
    from components.models.encoder import architecture_of, has_large_table  # imports torch

    return has_large_table(architecture_of(encoder))


def _reading(encoder: Path, rows: Sequence[Fields], settings: FinetuneSettings, *, kind: str) -> dict[str, int | None]:
    from components.learners.task_models.extent import reading_of
    from components.learners.task_models.inputs import sizes_of
    from components.learners.task_models.kinds import find_task
    from components.models.encoder import TOKENIZER, architecture_of  # imports torch
    from components.tokenization import load_tokenizer

    model, task = architecture_of(encoder), find_task(kind)
    sizes = sizes_of(rows, load_tokenizer(encoder / TOKENIZER), model, settings, task=task)
    collected = reading_of(sizes, single=task.single, most=model.max_tokens)
    return {"max_length": collected.max_length, "chunk": collected.chunk}
