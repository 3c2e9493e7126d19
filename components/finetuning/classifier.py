"""Classifiers as directories: what fine-tuning hands over to the registry and to whoever labels texts.

config.json         {task kind, settings of the head, number of features}
labels.json         names of the labels by number
head.safetensors    weights above the encoder
encoder/            an encoder directory: config.json, model.safetensors, tokenizer/
manifest.json       digests of all files (components.artifacts)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import nn

from components.artifacts import read_manifest, writing
from components.config import FinetuneSettings
from components.errors import ArtifactError
from components.finetuning.model import Classifier, probabilities
from components.finetuning.tasks import find_task
from components.finetuning.tasks.base import Task
from components.models.encoder import load_encoder, load_weights, save_encoder, save_weights
from components.tokenization import Tokenizer

KIND = "classifier"


@dataclass(frozen=True)
class TextClassifier:
    """A classifier that labels texts.

    Attributes:
        labels: C names.
    """

    labels: Sequence[str]
    model: Classifier
    tokenizer: Tokenizer
    task: Task
    max_length: int

    def predict(self, texts: Sequence[str], batch_size: int = 64) -> NDArray[np.float32]:
        """Probabilities (N, C) of texts, rows sum to 1; at most `batch_size` texts are tokenized at a time."""
        found = [np.zeros((0, len(self.labels)), dtype=np.float32)]
        for start in range(0, len(texts), batch_size):
            part = texts[start : start + batch_size]
            pieces = self.task.encode(part, self.tokenizer, self.model.encoder, self.max_length)
            found.append(probabilities(self.model, pieces))
        return np.concatenate(found)


class _AboveEncoder(nn.Module):
    """The parts of a classifier that are not its encoder, under the names they are stored by."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.features = classifier.features
        self.head = classifier.head


def save_classifier(
    directory: Path,
    *,
    classifier: Classifier,
    family: str,
    settings: FinetuneSettings,
    kind: str,
    labels: list[str],
    tokenizer: Path,
    facts: dict[str, Any],
) -> None:
    """Write a classifier as a directory of its own (it may lie in another one that is being written).

    Args:
        tokenizer: the encoder's tokenizer directory; it is copied.
        facts: into the manifest.
    """
    limit = classifier.encoder.max_tokens
    config = {
        "kind": kind,
        # How often a checkpoint was written says nothing of the classifier.
        "settings": settings.model_dump(mode="json", exclude={"training": {"checkpoint_seconds"}}),
        "max_length": settings.max_length if limit is None else min(limit, settings.max_length),
    }
    with writing(directory, kind=KIND) as draft:
        (draft.path / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
        (draft.path / "labels.json").write_text(json.dumps(labels, ensure_ascii=False, indent=1) + "\n")
        save_weights(draft.path / "head.safetensors", _AboveEncoder(classifier))
        save_encoder(draft.path / "encoder", family=family, model=classifier.encoder, tokenizer=tokenizer)
        draft.facts |= facts


def load_classifier(directory: Path) -> TextClassifier:
    """Read a classifier back; every file is compared with its digest.

    Raises:
        ArtifactError: the directory is incomplete or altered, its tokenizer is not the one that it was trained with,
            or its weights do not fit its config.
    """
    directory = Path(directory)
    read_manifest(directory, kind=KIND, verify=True)
    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        labels = json.loads((directory / "labels.json").read_text(encoding="utf-8"))
        settings = FinetuneSettings.model_validate(config["settings"])
        kind, max_length = config["kind"], int(config["max_length"])
    except (OSError, ValueError, KeyError, ValidationError) as error:
        raise ArtifactError(f"{directory}: not a classifier of this version ({error}); fine-tune again") from error
    encoder = load_encoder(directory / "encoder", part=True)
    task = find_task(kind)
    classifier = Classifier(encoder.model, settings=settings, outputs=len(labels), head=task.head)
    load_weights(directory / "head.safetensors", _AboveEncoder(classifier))
    return TextClassifier(labels, classifier.eval(), encoder.tokenizer, task, max_length)
