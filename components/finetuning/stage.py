"""Stage `finetune`: every label budget and seed of one (task, family, start).

The runs are independent and are distributed over single-threaded processes, one per core. Their state is under
`cluster.storage`: after a kill, the stage computes only what is missing, with the same weights and predictions
as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from components.artifacts import read_manifest, writing
from components.errors import ConfigError
from components.finetuning.execution import TrainedRun, clear, train_all
from components.finetuning.frozen import reading
from components.finetuning.packing import MODEL, ON_FROZEN
from components.finetuning.runs import GroupSpec, below
from components.finetuning.soft_labels import KIND as SOFT_LABELS
from components.finetuning.specs import Distillation, RunSpec, build, device
from components.finetuning.ways import ways_of
from components.finetuning.words import Mixed, with_words
from components.models import family as family_named
from components.models.encoder import KIND as ENCODER
from components.models.encoder import TOKENIZER, architecture_of, family_of
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings, Way
from components.settings.names import Start
from components.settings.section import Section
from components.settings.systems import FROZEN
from components.task_models.classifier import load_classifier, write_files
from components.task_models.inputs import share_cut
from components.task_models.kinds import find_task
from components.tasks.budgets import ALL
from components.tasks.data import Split
from components.tasks.examples import TaskFacts, read_facts, read_split
from components.tasks.kinds import scoring_for
from components.tasks.members import save_members
from components.tasks.results import KIND, SERVED, RunResult, write_results
from components.tokenization import load_tokenizer
from components.training.checkpoint import fingerprint
from components.training.precision import Precision, choose, product_size
from components.unlabelled.texts import KIND as UNLABELLED


class FinetuneJob(Section):
    """Inputs of the stage.

    Attributes:
        family: block of `pretrain` that the encoder comes from.
        start: initialisation of the encoder.
        examples: output directory of the stage `examples`.
        encoder: encoder directory.
        settings: `finetune.<family>`.
        unlabelled: output directory of the stage `unlabelled`, read if the settings ask for it.
        words: output directory of the stage `unlabelled`, whose texts the stage `baseline` reads; words models read the
            same texts.
        code: digest of the code and libraries that the stage can reach; part of the keys of checkpoints and features.
    """

    task: str
    family: str
    start: Start | Literal["task-adapted"]
    examples: Path
    encoder: Path
    output: Path
    settings: FinetuneSettings
    unlabelled: Path | None = None
    words: Path | None = None
    code: str = ""
    cluster: ClusterSettings = ClusterSettings()

    @property
    def system(self) -> str:
        """Name of the system in results."""
        return f"{self.family}-{self.start}"


def finetune(job: FinetuneJob) -> Path:
    """Train a model for every budget and seed in the ways of its settings; write predictions, records, and the model of
    the largest budget.

    The output directory holds the files of `components.tasks.results`, `classifier/` (the average over the seeds of the
    largest budget; see `components.task_models.classifier`) and metrics.json. With `frozen: true` and if fine-tuning
    has changed an encoder, `classifier-frozen/` holds the heads on the frozen encoder, likewise.

    Raises:
        ArtifactError: examples or encoder are incomplete, altered, or of another family.
        ConfigError: the settings do not suit the encoder.
        TrainingError: the loss is not finite, or there is no space for a checkpoint.
    """
    return train_and_write(job, own_ways(job))


def own_ways(job: FinetuneJob) -> dict[Way, FinetuneSettings]:
    """Way to learn -> settings of its runs (`ways_of`), for the start of a job.

    Raises:
        ConfigError: the job names no text without labels, which its settings use.
    """
    settings = for_start(job.settings, trained=is_trained(job.encoder))
    if settings.unlabelled is not None and job.unlabelled is None:
        raise ConfigError(f"finetune.{job.family}.unlabelled: the job names no directory with texts without labels")
    return ways_of(settings, find_task(read_facts(job.examples).kind))


def is_trained(encoder: Path) -> bool:
    """Whether the weights of an encoder directory are trained, not random."""
    return bool(read_manifest(encoder, kind=ENCODER).facts.get("trained", True))


def train_and_write(
    job: FinetuneJob, ways: Mapping[Way, FinetuneSettings], *, distillation: Distillation | None = None
) -> Path:
    """Train in several ways, keep the best one of each budget and seed, and write the output of `finetune`.

    Args:
        job: of the task.
        ways: way to learn -> settings of its runs.
        distillation: of the way `distil`.
    """
    facts = read_facts(job.examples)
    specs = {
        way: [GroupSpec((spec,), key=spec.key) for spec in specs_of(job, changed, distillation=distillation)]
        for way, changed in ways.items()
    }
    trained_runs = train_all(
        specs,
        title=f"finetune {job.task} {job.system}",
        names=["dev"],
        selection=facts.selection,
        cluster=job.cluster,
    )
    with writing(job.output, kind=KIND) as draft:
        draft.facts |= write_member(draft.path, trained_runs, 0, job=job, start=job.start)
        draft.facts["encoder"] = read_manifest(job.encoder, kind=ENCODER).digest
    clear(trained_runs, cluster=job.cluster)
    return job.output


def write_member(
    directory: Path, runs: Sequence[TrainedRun], member: int, *, job: FinetuneJob, start: str
) -> dict[str, Any]:
    """Write the results and the classifiers of one member of finished runs.

    Args:
        directory: where to write.
        runs: the finished runs.
        member: index of the member.
        job: of the member's task.
        start: name of the initialisation in results.

    Returns:
        Facts of the manifest.
    """
    facts, system = read_facts(job.examples), f"{job.family}-{start}"
    named = ("dev", "test") if facts.selection == "dev" else ("test",)
    splits = {name: read_split(job.examples, name) for name in named}
    ordered = sorted(runs, key=lambda run: _place(run, member))
    mixed = [_with_words(run, member) for run in ordered]
    results = list(_results(ordered, mixed, member, system=system, family=job.family, start=start))
    budget = ordered[-1].spec.members[member].budget
    largest = [pair for pair in zip(ordered, mixed, strict=True) if pair[0].spec.members[member].budget == budget]
    parts = {system: "classifier"}
    if any(result.start.endswith(FROZEN) for result in results):
        # Fine-tuning that brought nothing has left the same models.
        same = not any(run.result(member)[1]["best_step"] or words.part for run, words in largest)
        parts[f"{system}{FROZEN}"] = "classifier" if same else "classifier-frozen"
    for part in dict.fromkeys(parts.values()):
        frozen = part != "classifier"
        save_members(
            directory / part,
            [partial(_write_model, run=run, words=words, member=member, frozen=frozen) for run, words in largest],
            facts={
                "task": job.task,
                "start": f"{start}{FROZEN}" if frozen else start,
                "budget": budget,
                "seeds": [run.spec.seed for run, _ in largest],
                "precision": largest[0][0].spec.members[member].precision,
            },
        )
    if len(largest) > 1 and not scoring_for(facts.kind, facts.labels).averages:
        first = (budget, largest[0][0].spec.seed)
        results = [
            _with_served(result, directory / parts[result.system], splits["test"])
            if (result.record["budget"], result.record["seed"]) == first
            else result
            for result in results
        ]
    records = write_results(directory, results, splits=splits, labels=facts.labels)
    return {
        "task": job.task,
        "system": system,
        "family": job.family,
        "start": start,
        "precision": largest[0][0].spec.members[member].precision,
        "cut": cut_of(largest[0][0].spec.members[member]),
        "selection": facts.selection,
        "examples": facts.digests,
        "runs": len(records),
    }


def cut_of(spec: RunSpec) -> float:
    """Share of the texts of train that are longer than what the encoder reads."""
    task = find_task(read_facts(spec.examples).kind)
    rows = read_split(spec.examples, "train").fields
    model = architecture_of(spec.encoder)
    return share_cut(rows, load_tokenizer(spec.encoder / TOKENIZER), model, spec.settings, task=task)


def _place(run: TrainedRun, member: int) -> tuple[bool, int, int]:
    budget = run.spec.members[member].budget
    return budget == ALL, budget, run.spec.seed


def _with_words(run: TrainedRun, member: int) -> Mixed:
    tensors, record = run.result(member)
    return with_words(run.spec.members[member], run.answers(member, tensors), record)


def _results(
    runs: Sequence[TrainedRun], mixed: Sequence[Mixed], member: int, *, system: str, family: str, start: str
) -> Iterator[RunResult]:
    for run, words in zip(runs, mixed, strict=True):
        tensors, record = run.result(member)
        yield RunResult(system, family, start, record | words.record, words.answers)
        if f"{ON_FROZEN}test" in tensors:
            answers = run.frozen_answers(member, tensors)
            first = record | {"curve": record["curve"][:1], "best_step": 0, "best_epoch": 0.0, "steps": 0, "tokens": 0}
            first |= {"chosen": 0} if "chosen" in record else {}
            first.pop("selected", None)
            yield RunResult(f"{system}{FROZEN}", family, f"{start}{FROZEN}", first, answers)


def _with_served(result: RunResult, directory: Path, test: Split) -> RunResult:
    """A result with the answers of the stored average."""
    served = load_classifier(directory).on(device()).answer(test.fields)
    return replace(result, answers={**result.answers, SERVED: served})


def inputs_of(
    settings: FinetuneSettings, facts: TaskFacts, *, encoder: str, code: str, unlabelled: Path | None = None
) -> dict[str, Any]:
    """The inputs of a run except budget and seed; the key of its checkpoints is their fingerprint.

    Raises:
        ArtifactError: the settings use text without labels, and the output of the stage `unlabelled` is incomplete.
    """
    read = unlabelled is not None and settings.unlabelled is not None
    return {
        # Words are combined with the finished run.
        "settings": settings.model_dump(mode="json", exclude={"training": {"checkpoint_seconds"}, "words": True}),
        "encoder": encoder,
        "examples": facts.digests,
        "label_texts": facts.label_texts,
        "kind": facts.kind,
        "selection": [facts.selection, facts.folds],
        "unlabelled": read_manifest(unlabelled, kind=UNLABELLED).digest if read and unlabelled else None,
        "code": code,
    }


def _write_model(directory: Path, *, run: TrainedRun, words: Mixed, member: int, frozen: bool) -> None:
    """Write the files of a finished run's model, or of its head on the frozen encoder. Weights that the run has not
    stored are those before training."""
    spec, (tensors, record) = run.spec.members[member], run.result(member)
    tensors, record = words.weights or tensors, record | words.record
    if frozen:
        tensors = below(ON_FROZEN, run.result(member)[0])
    classifier, _ = build(spec)
    classifier.load_state_dict(classifier.state_dict() | below(MODEL, tensors))
    # The head of the best weights may have been fitted to features, in float32.
    fitted = frozen or record["best_step"] == 0 or spec.settings.method in ("features", "contrastive")
    write_files(
        directory,
        classifier,
        family=family_of(spec.encoder),
        tokenizer=spec.encoder / "tokenizer",
        precision=spec.precision,
        head_precision="float32" if fitted else None,
        words=None if frozen else words.part,
    )


def for_start(settings: FinetuneSettings, *, trained: bool) -> FinetuneSettings:
    """The settings of a run; those of `scratch` take precedence if the encoder's weights are random."""
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


def precision_of(job: FinetuneJob) -> Precision:
    """The precision of all runs of a family on a task.

    It depends on the architecture without the vocabulary, which all starts of a family share, so that compared systems
    have the same precision.
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
    """The inputs of one task in a run.

    Args:
        job: of the task.
        settings: of the run (`for_start`).
        inputs: `inputs_of` these settings.
        budget: rows per stratum; -1 for all.
        seed: of the run.
        precision: of the run.
        trained: whether the encoder's weights are trained, not random.
    """
    shared = {**inputs, "precision": precision}
    # Random encoders differ from seed to seed, and so do their features.
    features = fingerprint(
        encoder=inputs["encoder"],
        weights=None if trained else seed,
        kind=inputs["kind"],
        reading=reading(settings),
        task_tokens=settings.own_task_tokens and family_named(family_of(job.encoder)).task_tokens,
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
        unlabelled=job.unlabelled.absolute() if inputs["unlabelled"] and job.unlabelled else None,
        code=inputs["code"],
        words=None if job.words is None else job.words.absolute(),
    )


def specs_of(
    job: FinetuneJob, settings: FinetuneSettings, *, distillation: Distillation | None = None
) -> Iterator[RunSpec]:
    """The runs of every budget and seed, the longest first, so that no core is idle while the last run finishes.

    Args:
        job: of the task.
        settings: of the runs.
        distillation: of runs with method `distil`; the others have none.
    """
    facts, encoder = read_facts(job.examples), read_manifest(job.encoder, kind=ENCODER).digest
    distillation = distillation if settings.method == "distil" else None
    inputs = inputs_of(settings, facts, encoder=encoder, unlabelled=job.unlabelled, code=job.code)
    if distillation is not None:
        inputs["distillation"] = [
            distillation.settings.model_dump(mode="json"),
            *(read_manifest(file.parent, kind=SOFT_LABELS).digest for file in distillation.teachers),
        ]
    precision, trained = precision_of(job), is_trained(job.encoder)
    for budget in reversed(facts.budgets):
        for seed in facts.seeds:
            spec = spec_of(job, settings, inputs, budget, seed, precision, trained=trained)
            yield replace(spec, distillation=distillation)
