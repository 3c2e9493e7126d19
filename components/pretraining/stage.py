"""The stages `pretrain` and `scratch`: encoder directories with learned and with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from pydantic import Field

from components.artifacts import writing
from components.config import ClusterSettings, LanguageModelTraining, Section
from components.models.encoder import KIND, build_model, save_encoder
from components.tokenization import load_tokenizer
from components.training.counters import counter_seed
from components.training.encoders import count_parameters, train_encoder, write_encoder, write_json
from components.training.language_model import LanguageModelRun


class PretrainJob(Section):
    """What pretraining reads and writes.

    Attributes:
        name: of the block in `pretrain`, for progress lines and checkpoints; the family's without it.
        family, preset, model: the model; `model` holds keys of the family's config class, over those of the preset.
        tokens: token shards of the general corpus.
        tokenizer: the tokenizer that made them.
        output: encoder directory.
        cluster: where it runs; changes nothing in what is learned.
    """

    name: str = ""
    family: str
    preset: str | None = None
    model: dict[str, Any] = Field(default_factory=dict)
    tokens: Path
    tokenizer: Path
    output: Path
    training: LanguageModelTraining
    seed: int = 0
    cluster: ClusterSettings = ClusterSettings()


class ScratchJob(Section):
    """The random encoder that stands beside the trained ones: the same model for the same pieces.

    Attributes:
        family, preset, model: as in `PretrainJob`.
        tokenizer: the tokenizer that downstream texts are encoded with.
        output: encoder directory with the fact `trained: false`.
    """

    family: str
    preset: str | None = None
    model: dict[str, Any] = Field(default_factory=dict)
    tokenizer: Path
    output: Path
    seed: int = 0


def pretrain(job: PretrainJob) -> Path:
    """Train a language model from random weights; returns the encoder directory.

    A run that was killed goes on from its last checkpoint.

    Raises:
        ArtifactError: an input is incomplete or was made with another tokenizer.
        ConfigError: sizes of the model that do not exist.
        TrainingError: the loss is no longer finite, no space for a checkpoint, workers that keep dying.
    """
    run = LanguageModelRun(
        name=f"pretrain {job.name or job.family}",
        family=job.family,
        preset=job.preset,
        model=job.model,
        tokens=job.tokens.absolute(),
        tokenizer=job.tokenizer.absolute(),
        training=job.training,
        seed=job.seed,
    )
    trained = train_encoder(run, settings=job.cluster)
    with writing(job.output, kind=KIND) as draft:
        write_encoder(draft, trained, run=run)
    trained.checkpoints.clear()
    return job.output


def scratch(job: ScratchJob) -> Path:
    """Write an encoder with random weights; returns its directory.

    Fine-tuning sees `trained: false` and draws weights of its own for each of its seeds.

    Raises:
        ArtifactError: the tokenizer is incomplete.
        ConfigError: sizes of the model that do not exist.
    """
    tokenizer = load_tokenizer(job.tokenizer)
    torch.manual_seed(counter_seed(job.seed, "weights"))
    model = build_model(
        job.family,
        vocabulary=tokenizer.vocab_size,
        preset=job.preset,
        settings=job.model,
        tokenizer=tokenizer.kind,
    )
    with writing(job.output, kind=KIND) as draft:
        save_encoder(draft.path, family=job.family, model=model, tokenizer=job.tokenizer)
        write_json(draft.path / "metrics.json", {"parameters": count_parameters(model), "tokens": 0})
        draft.facts |= {
            "trained": False,
            "family": job.family,
            "tokenizer": tokenizer.fingerprint(),
            "seed": job.seed,
        }
    return job.output
