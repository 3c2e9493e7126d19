"""What a fine-tuning run is told, and what every part of it begins with: its model, its rows, its encoded texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from components.models.base import LanguageModel
from components.models.encoder import build_model, load_encoder
from components.settings.finetune import FinetuneSettings
from components.task_models.base import Encoded
from components.task_models.kinds import find_task
from components.task_models.model import TaskModel
from components.tasks.budgets import sample_rows
from components.tasks.data import Fields, Split
from components.tasks.examples import TaskFacts, read_facts, strata_of
from components.tokenization import Tokenizer
from components.training.precision import Precision
from components.training.rng import counter_seed


@dataclass(frozen=True)
class RunSpec:
    """Everything that a run depends on; plain values, to be sent to another process.

    Attributes:
        examples: output directory of the stage `examples`.
        encoder: encoder directory.
        settings: `finetune.<family>`, with what differs from scratch already in place.
        budget: rows a stratum, -1 for all.
        trained: whether the encoder's weights are those of its directory; else they are drawn by the seed.
        storage: `cluster.storage`.
        key: of this run's checkpoints.
        tables: `cluster.features`.
        features: names the frozen encoder's features; runs with the same weights have the same.
    """

    examples: Path
    encoder: Path
    settings: FinetuneSettings
    budget: int
    seed: int
    precision: Precision
    trained: bool
    storage: str
    key: str
    tables: Path
    features: str


def device() -> torch.device:
    """The first GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def build(spec: RunSpec) -> tuple[TaskModel, Tokenizer]:
    """The model before anything is learned, and the tokenizer."""
    encoder, tokenizer = load_initial_encoder(spec)
    return with_head(spec, encoder), tokenizer


def load_initial_encoder(spec: RunSpec) -> tuple[LanguageModel, Tokenizer]:
    """The encoder's weights as stored, or fresh ones of the run's seed where it is untrained; and its tokenizer."""
    loaded = load_encoder(spec.encoder)
    encoder = loaded.model
    if not loaded.trained:
        torch.manual_seed(counter_seed(spec.seed, "encoder"))
        sizes = encoder.config.model_dump(mode="json", exclude={"vocabulary"})
        encoder = build_model(loaded.family, vocabulary=encoder.config.vocabulary, settings=sizes)
        encoder.bind(loaded.tokenizer)
    encoder.set_dropout(spec.settings.dropout)
    return encoder, loaded.tokenizer


def with_head(spec: RunSpec, encoder: LanguageModel) -> TaskModel:
    """The encoder with the task's head on top, whose weights are the seed's own."""
    facts = read_facts(spec.examples)
    torch.manual_seed(counter_seed(spec.seed, "head"))
    model = TaskModel(encoder, task=find_task(facts.kind), settings=spec.settings, labels=facts.labels)
    # One mode for all parts: the loop switches a model that is not in training mode, and looks at its top only.
    return model.to(device()).eval()


def encode(spec: RunSpec, model: TaskModel, tokenizer: Tokenizer, rows: Sequence[Fields]) -> list[Encoded]:
    """Rows as the encoder reads them."""
    return find_task(read_facts(spec.examples).kind).encode(rows, tokenizer, model.encoder, spec.settings)


def training_rows(spec: RunSpec, train: Split) -> tuple[NDArray[np.int64], dict[int, int]]:
    """The run's rows of the train split, and the strata of which there are too few (see `draw`)."""
    return sample_rows(strata_of(train, read_facts(spec.examples).kind), spec.budget, seed=spec.seed)


def all_training_rows(spec: RunSpec, train: Split, facts: TaskFacts) -> NDArray[np.int64]:
    """The rows, ascending, that any run with the same encoder weights learns from: those of all budgets, and of all
    seeds where the seed does not draw the weights."""
    strata = strata_of(train, facts.kind)
    seeds = facts.seeds if spec.trained else [spec.seed]
    return np.unique(
        np.concatenate([sample_rows(strata, budget, seed=seed)[0] for budget in facts.budgets for seed in seeds])
    )
