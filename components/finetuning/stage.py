"""Stage `finetune`: every label budget and seed of one (task, family, start).

The runs are independent of each other: they go to as many single-threaded processes as there are cores. What they have
reached lies under `cluster.storage`; whatever is killed, the next start does only what is missing, and ends with the
same weights and predictions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch

import components
from components.artifacts import read_manifest, writing
from components.cluster import map_parallel
from components.finetuning.features import trim
from components.finetuning.frozen import compute_all, reading
from components.finetuning.runs import ALONE, execute, finished, unpack
from components.finetuning.specs import RunSpec, build, device
from components.models.encoder import KIND as ENCODER
from components.models.encoder import architecture_of, family_of
from components.progress import Progress
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings
from components.settings.names import FROZEN, Start
from components.settings.section import Section
from components.task_models.classifier import save_classifier
from components.tasks.budgets import budget_name
from components.tasks.examples import TaskFacts, read_facts, read_split
from components.tasks.results import KIND, RunResult, best_score, write_results
from components.training.checkpoint import CheckpointStore, code_digest, fingerprint
from components.training.precision import Precision, choose, product_size


class FinetuneJob(Section):
    """What the stage is told.

    Attributes:
        family: name of the block in `pretrain` that the encoder comes from.
        examples: output directory of the stage `examples`.
        encoder: encoder directory of this start.
        settings: `finetune.<family>`.
    """

    task: str
    family: str
    start: Start | Literal["task-adapted"]
    examples: Path
    encoder: Path
    output: Path
    settings: FinetuneSettings
    cluster: ClusterSettings = ClusterSettings()

    @property
    def system(self) -> str:
        """Name of the system in results."""
        return f"{self.family}-{self.start}"


def finetune(job: FinetuneJob) -> Path:
    """Train a model for every budget and seed; write their answers, records, and the best one.

    The output directory holds what `components.tasks.results` describes, `classifier/` (largest budget, best seed
    on dev; see `components.task_models.classifier`) and metrics.json.

    Raises:
        ArtifactError: examples or encoder are incomplete, altered, or of another family.
        ConfigError: the settings do not suit the encoder.
        TrainingError: a loss that is not finite, no space for a checkpoint.
    """
    facts = read_facts(job.examples)
    encoder = read_manifest(job.encoder, kind=ENCODER)
    trained = bool(encoder.facts.get("trained", True))
    settings = for_start(job.settings, trained=trained)
    inputs = inputs_of(settings, facts, encoder=encoder.digest)
    precision = precision_of(job)
    specs = list(_specs(job, facts, settings, inputs, precision, trained=trained))
    left = [spec for spec in specs if not finished(spec)]
    compute_all(left, cluster=job.cluster)
    with Progress(
        f"finetune {job.task} {job.system}", total=len(specs), unit="run", done=len(specs) - len(left)
    ) as bar:
        for _, record in map_parallel(execute, left, settings=job.cluster):
            score = {f"dev_{record['score']}": round(best_score(record), 4)}
            bar.advance(1, labels=budget_name(record["budget"]), **score)
    splits = {name: read_split(job.examples, name) for name in ("dev", "test")}
    with writing(job.output, kind=KIND) as draft:
        records = write_results(draft.path, _results(job, specs), splits=splits, labels=facts.labels)
        chosen = _best(specs, records)
        stored = CheckpointStore(chosen.storage, key=chosen.key).latest()
        assert stored is not None
        write_classifier(draft.path / "classifier", chosen, stored.tensors, task=job.task, start=job.start)
        draft.facts |= {
            "task": job.task,
            "system": job.system,
            "family": job.family,
            "start": job.start,
            "precision": precision,
            "encoder": encoder.digest,
            "examples": facts.digests,
            "runs": len(records),
        }
    for spec in specs:
        CheckpointStore(spec.storage, key=spec.key).clear()
    trim(Path(job.cluster.features), gigabytes=job.cluster.features_gigabytes)
    return job.output


def inputs_of(settings: FinetuneSettings, facts: TaskFacts, *, encoder: str) -> dict[str, Any]:
    """All that decides what a run learns, besides its budget and seed: what its checkpoints are keyed by."""
    return {
        "settings": settings.model_dump(mode="json", exclude={"training": {"checkpoint_seconds"}}),
        "encoder": encoder,
        "examples": facts.digests,
        "kind": facts.kind,
        "code": _code(),
    }


def write_classifier(
    directory: Path, spec: RunSpec, tensors: dict[str, torch.Tensor], *, task: str, start: str
) -> None:
    """Write the classifier that a finished run ended with; `tensors` holds its weights under `model.`."""
    classifier, _ = build(spec)
    prefix = "model."
    weights = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    classifier.load_state_dict(weights)
    facts = read_facts(spec.examples)
    save_classifier(
        directory,
        classifier=classifier,
        family=family_of(spec.encoder),
        settings=spec.settings,
        kind=facts.kind,
        labels=facts.labels,
        tokenizer=spec.encoder / "tokenizer",
        facts={
            "task": task,
            "start": start,
            "budget": spec.budget,
            "seed": spec.seed,
            "precision": spec.precision,
        },
        precision=spec.precision,
    )


def for_start(settings: FinetuneSettings, *, trained: bool) -> FinetuneSettings:
    """The settings with `scratch` in place where the encoder's weights are random."""
    if trained:
        return settings
    scratch = settings.scratch
    training = settings.training
    if scratch.rate is not None:
        training = training.model_copy(update={"rate": scratch.rate})
    return settings.model_copy(
        update={
            "method": scratch.method,
            "training": training,
            "epochs": scratch.epochs or settings.epochs,
            "head_scale": scratch.head_scale,
            "discriminative": scratch.discriminative,
            "unfreeze_epochs": scratch.unfreeze_epochs,
            "frozen": False,
        }
    )


def _code() -> str:
    root = Path(str(components.__file__)).parent
    return code_digest(*(root / package for package in ("finetuning", "models", "task_models", "tasks", "training")))


def precision_of(job: FinetuneJob) -> Precision:
    """The precision of all runs of a family on a task.

    All starts of a family have the same architecture, and the size of the vocabulary has no influence, so that systems
    which are compared are computed alike.
    """
    size = product_size(architecture_of(job.encoder))
    return choose(job.settings.training.precision, device=device(), size=size)


def spec_of(
    job: FinetuneJob,
    settings: FinetuneSettings,
    inputs: dict[str, Any],
    budget: int,
    seed: int,
    precision: Precision,
    *,
    trained: bool,
) -> RunSpec:
    shared = {**inputs, "precision": precision}
    # Random encoders differ from seed to seed, and so do their features.
    features = fingerprint(
        encoder=inputs["encoder"],
        weights=None if trained else seed,
        kind=inputs["kind"],
        reading=reading(settings),
        precision=precision,
        code=inputs["code"],
    )
    return RunSpec(
        examples=job.examples.absolute(),
        encoder=job.encoder.absolute(),
        settings=settings,
        budget=budget,
        seed=seed,
        precision=precision,
        trained=trained,
        storage=job.cluster.storage if "://" in job.cluster.storage else str(Path(job.cluster.storage).absolute()),
        key=f"finetune-{fingerprint(**shared, budget=budget, seed=seed)}",
        tables=Path(job.cluster.features).absolute(),
        features=features,
    )


def _specs(
    job: FinetuneJob,
    facts: TaskFacts,
    settings: FinetuneSettings,
    inputs: dict[str, Any],
    precision: Precision,
    *,
    trained: bool,
) -> Iterator[RunSpec]:
    """The longest runs first, so that no core waits for one at the end."""
    for budget in reversed(facts.budgets):
        for seed in facts.seeds:
            yield spec_of(job, settings, inputs, budget, seed, precision, trained=trained)


def _results(job: FinetuneJob, specs: list[RunSpec]) -> Iterator[RunResult]:
    for spec in sorted(specs, key=lambda spec: (spec.budget < 0, spec.budget, spec.seed)):
        stored = CheckpointStore(spec.storage, key=spec.key).latest()
        assert stored is not None
        record = stored.numbers["record"]
        tuned = {name: unpack(name, stored.tensors) for name in ("dev", "test")}
        yield RunResult(job.system, job.family, job.start, record, tuned)
        if f"{ALONE}test" in stored.tensors:
            alone = {name: unpack(f"{ALONE}{name}", stored.tensors) for name in ("dev", "test")}
            first = record | {"curve": record["curve"][:1], "best_step": 0, "best_epoch": 0.0, "steps": 0, "tokens": 0}
            yield RunResult(f"{job.system}{FROZEN}", job.family, f"{job.start}{FROZEN}", first, alone)


def _best(specs: list[RunSpec], records: list[dict[str, Any]]) -> RunSpec:
    """The run whose classifier is served: the largest budget, its best seed on dev."""
    largest = specs[0].budget
    scores = {
        record["seed"]: best_score(record)
        for record in records
        if record["budget"] == largest and not record["start"].endswith(FROZEN)
    }
    return max((spec for spec in specs if spec.budget == largest), key=lambda spec: scores[spec.seed])
