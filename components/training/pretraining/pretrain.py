"""The stages `pretrain` and `scratch`: encoder directories with trained and with random weights."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from pydantic import Field

from components.core.artifacts import write_json, writing
from components.core.errors import ConfigError
from components.models import family as family_named
from components.models.encoder import KIND, build_model, count_parameters, save_encoder, with_trained_positions
from components.settings.cluster import ClusterSettings
from components.settings.section import VECTORS, Section
from components.settings.training import LanguageModelTraining
from components.tokenization import load_tokenizer
from components.training.pretraining.language_model import LanguageModelRun, before_training, vectors_ready
from components.training.pretraining.launch import train_encoder, write_encoder
from components.training.rng import counter_seed

if TYPE_CHECKING:
    from components.interchange.published import Imported


class ModelJob(Section):
    """The model of a job, and its output.

    Attributes:
        name: of the block in `pretrain`, for progress lines and checkpoints; default: the family.
        family, preset, model: the model; `model` holds keys of the family's config class, which override the preset.
        source, digest: a published model, and its expected SHA-256; `model` then has dropout rates and penalties only.
        vectors, vectors_digest: a file of word vectors, and its expected SHA-256. It fills the static channel, or the
            embedding table of a model without one starts from it.
    """

    name: str = ""
    family: str
    preset: str | None = None
    model: dict[str, Any] = Field(default_factory=dict)
    source: Path | None = None
    digest: str | None = None
    vectors: Path | None = None
    vectors_digest: str | None = None
    output: Path
    seed: int = 0


class PretrainJob(ModelJob):
    """Inputs and output of pretraining; `tokens` and `tokenizer` are None if the model is imported."""

    tokens: Path | None
    tokenizer: Path | None
    training: LanguageModelTraining
    code: str = ""
    cluster: ClusterSettings = ClusterSettings()


class ScratchJob(ModelJob):
    """Inputs and output of the models without language modelling: the same architecture and vocabulary.

    Attributes:
        tokenizer: directory of the tokenizer of downstream texts; None: the tokenizer of the published model.
        pretraining: of the same model; only the windows matter: they limit its positions.
        tokens, training: token shards of the text of the word vectors, and settings of the language model on it; None:
            the model has no word vectors.
        start: `scratch`: all weights but the static channel are random, new ones for each seed of fine-tuning;
            `vectors`: the language model before its first step.
    """

    tokenizer: Path | None
    pretraining: LanguageModelTraining | None = None
    tokens: Path | None = None
    training: LanguageModelTraining | None = None
    start: Literal["scratch", "vectors"] = "scratch"


def pretrain(job: PretrainJob) -> Path:
    """Train a language model from random weights, resuming an interrupted run, or import a published one; returns the
    encoder directory.

    Raises:
        ArtifactError: an input is incomplete or belongs to another tokenizer; the source has another digest.
        ConfigError: invalid sizes of the model, or word vectors for a model without a table of pieces.
        TrainingError: the loss is not finite, no space for a checkpoint, or workers died repeatedly.
    """
    if job.source is not None:
        from components.interchange.importing import write_imported

        imported = _published(job, job.source)
        corpus = load_tokenizer(job.tokenizer) if job.tokenizer is not None else None
        if corpus and not imported.learned_output and corpus.fingerprint() == imported.tokenizer.fingerprint():
            # The source has no trained output layer; without the bias, adaptation would first learn the frequencies.
            imported.model.set_output_bias(torch.from_numpy(corpus.log_frequencies()))
        with writing(job.output, kind=KIND) as draft:
            write_imported(imported, source=job.source, draft=draft)
        return job.output
    if job.tokens is None or job.tokenizer is None:
        raise ConfigError(f"pretrain {job.name or job.family}: there is no text to train on; set data.general")
    training = published_training(job.training, family=job.family, preset=job.preset)
    run = LanguageModelRun(
        name=f"pretrain {job.name or job.family}",
        family=job.family,
        preset=job.preset,
        model=with_trained_positions(job.model, family=job.family, preset=job.preset, training=training),
        tokens=job.tokens.absolute(),
        tokenizer=job.tokenizer.absolute(),
        vectors_file=job.vectors,
        vectors_digest=job.vectors_digest,
        training=training,
        seed=job.seed,
        code=job.code,
    )
    trained = train_encoder(run, settings=job.cluster)
    with writing(job.output, kind=KIND) as draft:
        write_encoder(draft, trained, run=run)
    trained.checkpoints.clear()
    return job.output


def published_training(training: LanguageModelTraining, *, family: str, preset: str | None) -> LanguageModelTraining:
    """The settings with the published values of a preset, for keys that the settings do not set."""
    published = family_named(family).training.get(preset or "", {})
    return training.model_copy(
        update={key: value for key, value in published.items() if key not in training.model_fields_set}
    )


def scratch(job: ScratchJob) -> Path:
    """Write an encoder without a step of language modelling; returns its directory. The manifest of random weights has
    the fact `trained: false`, so fine-tuning samples new ones for each of its seeds.

    Raises:
        ArtifactError: the tokenizer or the tokens are incomplete.
        ConfigError: invalid sizes of the model.
    """
    settings, imported = job.model, None
    if job.source is not None:
        imported = _published(job, job.source)
        settings = imported.model.config.model_dump(exclude={"vocabulary"})
    elif job.pretraining is not None:
        settings = with_trained_positions(settings, family=job.family, preset=job.preset, training=job.pretraining)
    if job.tokenizer is not None:
        tokenizer = load_tokenizer(job.tokenizer)
    elif imported is not None:
        tokenizer = imported.tokenizer
    else:
        raise ConfigError(f"scratch {job.family}: there is no text to learn a vocabulary from; set data.general")
    torch.manual_seed(counter_seed(job.seed, "weights"))
    model = build_model(
        job.family, vocabulary=tokenizer.vocab_size, preset=job.preset, settings=settings, tokenizer=tokenizer.kind
    )
    metrics: dict[str, float] = {"parameters": count_parameters(model), "tokens": 0}
    facts: dict[str, Any] = {
        "trained": job.start == VECTORS,
        "family": job.family,
        "tokenizer": tokenizer.fingerprint(),
        "seed": job.seed,
    }
    if job.start == VECTORS:
        model.set_output_bias(torch.from_numpy(tokenizer.log_frequencies()))
    if job.tokens is not None and job.tokenizer is not None and job.training is not None:
        random = {} if job.start == VECTORS else {"vectors": False}
        run = LanguageModelRun(
            name=f"scratch {job.name}",
            family=job.family,
            tokens=job.tokens,
            tokenizer=job.tokenizer,
            vectors_file=job.vectors,
            vectors_digest=job.vectors_digest,
            training=job.training.model_copy(update=random),
            seed=job.seed,
        )
        with vectors_ready(run, model) as vectors:
            before_training(run.model_copy(update={"vectors": vectors and vectors.ready}), model)
        if vectors is not None:
            metrics |= vectors.matched.numbers()
            facts["vectors"] = vectors.digest
    with tempfile.TemporaryDirectory() as folder, writing(job.output, kind=KIND) as draft:
        directory = job.tokenizer or Path(folder) / "tokenizer"
        if job.tokenizer is None:
            tokenizer.save(directory)
        save_encoder(draft.path, family=job.family, model=model, tokenizer=directory)
        write_json(draft.path / "metrics.json", metrics)
        draft.facts |= facts
    return job.output


def _published(job: PretrainJob | ScratchJob, source: Path) -> Imported:
    from components.interchange.importing import read_published

    imported = read_published(source, family=job.family, digest=job.digest, settings=job.model)
    if job.tokenizer is None:
        return imported
    kind = load_tokenizer(job.tokenizer).kind
    if imported.tokenizer.kind != kind:
        raise ConfigError(
            f"{source}: its tokenizer is of kind {imported.tokenizer.kind!r}; set the tokenizer of {job.family} to "
            f"this kind instead of {kind!r}, so that the domain corpus is tokenized in the same way"
        )
    return imported
