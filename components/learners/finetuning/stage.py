"""Stage `finetune`: every label budget and seed of one (task, family, start), in single-threaded processes, one per
core. After a kill, the stage computes only what is missing, with the same weights and predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from components.core.artifacts import read_manifest, writing
from components.data.tasks.budgets import ALL
from components.data.tasks.calibration import calibrated, labels_of, tempered
from components.data.tasks.data import Answer, Split, Target, mean_answers
from components.data.tasks.examples import read_facts, read_split, run_folds
from components.data.tasks.members import save_members
from components.data.tasks.results import KIND, SERVED, RunResult, write_results
from components.learners.abstention import abstention_facts, write_domain
from components.learners.base import per_row
from components.learners.finetuning.attempts import ways_of
from components.learners.finetuning.crossvalidation import uncalibrated
from components.learners.finetuning.execution import TrainedRun, clear, train_all
from components.learners.finetuning.frozen import features
from components.learners.finetuning.packing import MODEL
from components.learners.finetuning.runs import GroupSpec, below
from components.learners.finetuning.soft_labels import KIND as SOFT_LABELS
from components.learners.finetuning.specs import Distillation, RunSpec, all_training_rows, build, encode, rows_of
from components.learners.finetuning.words import at_chosen, with_words
from components.learners.task_models.classifier import (
    AveragedClassifier,
    TextClassifier,
    load_classifier,
    write_files,
)
from components.learners.task_models.features import head_answers, read_by_head
from components.learners.task_models.heads import CalibratedHead
from components.learners.task_models.inputs import share_cut
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel, answers
from components.learners.ways import way_of
from components.models import family as family_named
from components.models.encoder import KIND as ENCODER
from components.models.encoder import TOKENIZER, architecture_of, family_of
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings, ReadingSettings, Way
from components.settings.section import Section, Start
from components.settings.systems import FROZEN
from components.tokenization import Tokenizer, load_tokenizer
from components.training.checkpoint import fingerprint
from components.training.precision import choose, first_device, product_size

#: Targets of rows, and answers of a model that has not learned from them.
HeldOut = tuple[Sequence[Target], Sequence[Answer]]


class FinetuneJob(Section):
    """Inputs of the stage.

    Attributes:
        family: block of `pretrain` that the encoder comes from.
        start: initialisation of the encoder.
        examples: output directory of the stage `examples`.
        settings: `finetune.<family>`.
        words: output of the stage `unlabelled`, whose texts words models read, as in the stage `baseline`.
        baselines: output of the stage `baseline`, whose words models are combined with the encoder; None: none are.
        code: digest of the code and libraries that the stage can reach; part of the keys of checkpoints and features.
    """

    task: str
    family: str
    start: Start | Literal["task-adapted"]
    examples: Path
    encoder: Path
    output: Path
    settings: FinetuneSettings
    words: Path | None = None
    baselines: Path | None = None
    code: str = ""
    cluster: ClusterSettings = ClusterSettings()

    @property
    def system(self) -> str:
        return f"{self.family}-{self.start}"


def finetune(job: FinetuneJob) -> Path:
    """Train a model for every budget and seed in the ways of its settings; write predictions, records, and the model of
    the largest budget.

    The output directory holds the files of `components.data.tasks.results`, `classifier/` (the average over the seeds
    of the largest budget; see `components.learners.task_models.classifier`) and metrics.json. With `frozen: true`,
    `classifier-frozen/` holds the heads on the frozen encoder, as with `method: features`.

    Raises:
        ArtifactError: examples or encoder are incomplete, altered, or of another family.
        ConfigError: the settings do not suit the encoder.
        TrainingError: the loss is not finite, or there is no space for a checkpoint.
        OutOfTimeError: no way ends in time, and the kind of task has words models.
    """
    return train_and_write(job, own_ways(job))


def own_ways(job: FinetuneJob) -> dict[Way, FinetuneSettings]:
    """Way to learn -> settings of its runs (`ways_of`), for the start of a job."""
    settings = for_start(job.settings, trained=is_trained(job.encoder))
    return ways_of(settings, find_task(read_facts(job.examples).kind))


def is_trained(encoder: Path) -> bool:
    """Whether the weights of an encoder directory are trained, not random."""
    return bool(read_manifest(encoder, kind=ENCODER).facts.get("trained", True))


def train_and_write(
    job: FinetuneJob, ways: Mapping[Way, FinetuneSettings], *, distillation: Distillation | None = None
) -> Path:
    """Train in several ways, keep the best one of each budget and seed, and write the output of `finetune`."""
    first = next(iter(ways.values()))
    systems: dict[str, Mapping[Way, FinetuneSettings]] = {job.start: ways}
    if first.frozen:
        systems[f"{job.start}{FROZEN}"] = {"features": first.model_copy(update={"method": "features", "words": "none"})}
    trained_runs: dict[str, list[TrainedRun]] = {}
    for start, of_system in systems.items():
        specs = {
            way: [GroupSpec((spec,), key=spec.key) for spec in specs_of(job, changed, distillation=distillation)]
            for way, changed in of_system.items()
        }
        title = f"finetune {job.task} {job.family}-{start}"
        trained_runs[start] = train_all(specs, title=title, cluster=job.cluster)
    with writing(job.output, kind=KIND) as draft:
        draft.facts |= write_member(draft.path, trained_runs, 0, job=job)
    clear([run for runs in trained_runs.values() for run in runs], cluster=job.cluster)
    return job.output


def write_member(
    directory: Path, runs: Mapping[str, Sequence[TrainedRun]], member: int, *, job: FinetuneJob
) -> dict[str, Any]:
    """Write the results and classifiers of one member of finished runs; returns the facts of the manifest. `runs`: by
    the start in results, that of the job first, then that of the head on the frozen encoder if it is a system."""
    facts = read_facts(job.examples)
    named = ("dev", "test") if facts.selection == "dev" else ("test",)
    splits = {name: read_split(job.examples, name) for name in named}
    results = []
    for start, of_start in runs.items():
        outputs = sorted((_Output(run, member) for run in of_start), key=_Output.order)
        largest = [output for output in outputs if output.spec.budget == outputs[-1].spec.budget]
        part = directory / f"classifier{FROZEN if start.endswith(FROZEN) else ''}"
        temperature = _write_classifier(part, largest, job=job, start=start)
        served = _served(part, largest, splits["test"], temperature)
        for output in outputs:
            answers = output.answers | ({SERVED: served} if served is not None and output is largest[0] else {})
            record = output.record | output.words.record
            results.append(RunResult(f"{job.family}-{start}", job.family, start, record, answers))
    records = write_results(directory, results, splits=splits, labels=facts.labels)
    train, model = read_split(job.examples, "train").fields, architecture_of(job.encoder)
    tokenizer, (start, (first, *_)) = load_tokenizer(job.encoder / TOKENIZER), next(iter(runs.items()))
    return {
        "task": job.task,
        "system": f"{job.family}-{start}",
        "encoder": read_manifest(job.encoder, kind=ENCODER).digest,
        "family": job.family,
        "start": start,
        "precision": first.spec.members[member].precision,
        "cut": share_cut(train, tokenizer, model, first.spec.settings, task=find_task(facts.kind)),
        "selection": facts.selection,
        "examples": facts.digests,
        "runs": len(records),
    }


def _served(directory: Path, outputs: Sequence[_Output], test: Split, temperature: float) -> list[Answer] | None:
    """The answers of the stored average to the test rows; None if they are the mean of the seeds' answers."""
    scoring = outputs[0].rows.scoring
    if len(outputs) == 1:
        return None
    if not scoring.averages:
        return list(load_classifier(directory).on(first_device()).answer(test.fields))
    means = mean_answers([output.answers["test"] for output in outputs])
    return None if temperature == 1 else tempered(means, temperature, exclusive=labels_of(scoring) == "exclusive")


def _write_classifier(directory: Path, outputs: Sequence[_Output], *, job: FinetuneJob, start: str) -> float:
    """Write the average of the runs, with its own temperature or threshold; returns the temperature."""
    kind, spec = read_facts(job.examples).kind, outputs[0].spec
    temperature, held_out = _averaged(outputs)
    threshold = _threshold(outputs) if len(outputs) > 1 else None
    average = {"temperature": temperature} if temperature != 1 else {}
    save_members(
        directory,
        [output.write for output in outputs],
        facts={
            "task": job.task,
            "start": start,
            "budget": spec.budget,
            "seeds": [output.spec.seed for output in outputs],
            "precision": spec.precision,
            **abstention_facts(kind, held_out),
        },
        beside=partial(write_domain, kind=kind, rows=outputs[0].rows.whole),
        average=average if threshold is None else {"threshold": threshold},
    )
    return temperature


def _threshold(outputs: Sequence[_Output]) -> float | None:
    """The threshold of the average of runs, by the rows that choices are made on; None: its head has none, or the runs
    have fewer than two such rows in common. Out of fold there is no average: a row has the mean scores of its members,
    and the span of the member that is the surest."""
    spec, rows = outputs[0].spec, outputs[0].rows
    head = find_task(read_facts(spec.examples).kind).head(spec.settings, 1, rows.labels)
    if not isinstance(head, CalibratedHead):
        return None
    if rows.folds is None:
        members = [TextClassifier(*output.classifier(), spec.precision) for output in outputs]
        average = AveragedClassifier(members).on(first_device())
        head = average.decoder
        assert isinstance(head, CalibratedHead)
        head.calibrate(lambda: average.answer(rows.dev.fields), per_row(rows.scoring, rows.dev))
        return head.calibration
    common = reduce(np.intersect1d, [output.rows.drawn for output in outputs])
    if len(common) < 2:
        return None
    of_members = np.stack([output.uncalibrated(common) for output in outputs])
    surest = (of_members[..., 2] - of_members[..., 3]).argmax(0)
    raw = of_members.mean(0)
    raw[:, :2] = of_members[surest, np.arange(len(common)), :2]
    head.calibrate(lambda: list(raw), per_row(rows.scoring, rows.whole.take(common)))
    return head.calibration


def _averaged(outputs: Sequence[_Output]) -> tuple[float, list[HeldOut]]:
    """The temperature of the average of runs, and the rows that it has not learned from with its answers: each member's
    own answer out of fold, or, where it has read nothing that belongs to the row, of its final model. The answers to
    the rows of a fold are at the temperature of the other folds. Kinds without probabilities of labels have each
    member's rows and answers."""
    spec, rows = outputs[0].spec, outputs[0].rows
    alone: list[HeldOut] = [(output.rows.judged[1].targets, output.judged) for output in outputs]
    if len(outputs) == 1 or not labels_of(rows.scoring):
        return 1.0, alone
    folds, targets, of_members = None, rows.dev.targets, [output.judged for output in outputs]
    if rows.folds is not None:
        union = np.unique(np.concatenate([output.rows.drawn for output in outputs]))
        by_row = [output.answers_to(union) for output in outputs]
        kept = np.asarray([row for row in union.tolist() if all(row in each for each in by_row)], dtype=np.int64)
        if len(kept) < 2:
            return 1.0, alone
        targets = [rows.whole.targets[row] for row in kept]
        folds = run_folds(read_facts(spec.examples), rows.whole, kept, seed=spec.seed)
        of_members = [[each[row] for row in kept.tolist()] for each in by_row]
    temperature, held_out = calibrated(rows.scoring, targets, mean_answers(of_members), folds=folds)
    return temperature, [(targets, held_out)]


class _Output:
    """What a finished run has brought for one member, combined with words."""

    def __init__(self, run: TrainedRun, member: int) -> None:
        self.run, self.member, self.spec = run, member, run.spec.members[member]
        self.rows = rows_of(replace(self.spec, fold=None, folds=0))
        tensors, self.record = run.result(member)
        scoring, (name, judged) = self.rows.scoring, self.rows.judged
        answers, self.temperature = run.answers(member, tensors), 1.0
        if labels := labels_of(scoring):
            self.temperature, of_judged = calibrated(scoring, judged.targets, answers[name], folds=self.rows.folds)
            test = tempered(answers["test"], self.temperature, exclusive=labels == "exclusive")
            answers = {name: of_judged, "test": test}
        if self.temperature != 1:
            scores = self.rows.score(answers[name])
            self.record |= at_chosen(self.record, scores) if name == "dev" else {"selected": scores}
        self.words = with_words(self.spec, answers, self.record)
        self.answers = self.words.answers

    def order(self) -> tuple[bool, int, int]:
        """Key by which the runs of a system are in order."""
        return self.spec.budget == ALL, self.spec.budget, self.spec.seed

    @property
    def judged(self) -> list[Answer]:
        """The answers to the rows that choices are made on."""
        return self.answers[self.rows.judged[0]]

    def answers_to(self, rows: NDArray[np.int64]) -> dict[int, Answer]:
        """Row of train -> an answer that has not learned from it: of the run's own rows those out of fold, of others
        those of the final model. Rows of which it has read a copy, or another row of the group, have none."""
        whole, learned = self.rows.whole, self.rows.drawn
        result = dict(zip(learned.tolist(), self.judged, strict=True))
        read = whole.belonging(learned)
        others = [row for row in rows.tolist() if row not in result and whole.digests[row] not in read]
        if not others:
            return result
        spec, (classifier, tokenizer), fields = self.spec, self.classifier(), whole.take(others).fields
        if spec.trained and self._is_frozen:
            numbers = all_training_rows(spec, whole, read_facts(spec.examples))
            table = features(spec, "train").take(np.searchsorted(numbers, np.asarray(others)))
            raw = head_answers(classifier.head, read_by_head(classifier, table))
        else:
            encoded = encode(spec, classifier, tokenizer, fields)
            raw = answers(classifier.to(first_device()), encoded, precision=spec.precision)
        raw = tempered(raw, self._stored_temperature, exclusive=classifier.task.kind != "multilabel")
        part = self.words.part
        return result | dict(zip(others, raw if part is None else part.combined(fields, raw), strict=True))

    @property
    def _is_frozen(self) -> bool:
        """Whether the encoder is as it was before training."""
        return not (self.record | self.words.record)["best_step"] or not way_of(self.spec.settings).trains_encoder

    @property
    def _stored_temperature(self) -> float:
        return 1.0 if self.words.weights else self.temperature

    def uncalibrated(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The answers to some of the run's rows out of fold, before the head was calibrated."""
        answers = uncalibrated(self.run.spec, self.member, stop=self.run.selections[self.member].chosen.stop)
        return np.stack(answers)[np.searchsorted(self.rows.drawn, rows)]

    def classifier(self) -> tuple[TaskModel, Tokenizer]:
        """The model of the run."""
        # The weights of all runs together may exceed memory.
        tensors = self.words.weights or self.run.result(self.member)[0]
        classifier, tokenizer = build(self.spec)
        classifier.load_state_dict(classifier.state_dict() | below(MODEL, tensors))
        return classifier.eval(), tokenizer

    def write(self, directory: Path) -> None:
        # The head of the best weights may have been fitted to features, in float32.
        fitted = self._is_frozen or way_of(self.spec.settings).refits_head
        write_files(
            directory,
            self.classifier()[0],
            family=family_of(self.spec.encoder),
            tokenizer=self.spec.encoder / "tokenizer",
            precision=self.spec.precision,
            head_precision="float32" if fitted else None,
            temperature=self._stored_temperature,
            words=self.words.part,
        )


def for_start(settings: FinetuneSettings, *, trained: bool) -> FinetuneSettings:
    """The settings of a run; the settings in `scratch` take precedence if the encoder's weights are random."""
    if trained:
        return settings
    scratch = settings.scratch
    training = settings.training
    if scratch.rate is not None:
        training = training.model_copy(update={"rate": scratch.rate})
    return settings.model_copy(
        update={
            "method": "finetune",
            "training": training,
            "epochs": scratch.epochs or settings.epochs,
            "head_scale": 1.0,
            "discriminative": 1.0,
            "unfreeze_epochs": 0.0,
            "frozen": False,
        }
    )


def spec_maker(
    job: FinetuneJob, settings: FinetuneSettings, *, distillation: Distillation | None = None
) -> Callable[[int, int], RunSpec]:
    """The inputs of one task in a run, as a function of label budget (rows per stratum; -1 for all) and seed."""
    facts, encoder = read_facts(job.examples), read_manifest(job.encoder, kind=ENCODER).digest
    trained, size = is_trained(job.encoder), product_size(architecture_of(job.encoder))
    # By the architecture without the vocabulary, so that all starts of a family have the same precision.
    precision = choose(job.settings.training.precision, device=first_device(), size=size)
    distillation = distillation if way_of(settings).has_teachers else None
    storage = job.cluster.storage if "://" in job.cluster.storage else str(Path(job.cluster.storage).absolute())
    inputs: dict[str, Any] = {
        "settings": settings.model_dump(mode="json", exclude={"frozen", "words"}),  # of the finished run
        "encoder": encoder,
        "examples": facts.digests,
        "label_texts": facts.label_texts,
        "kind": facts.kind,
        "selection": [facts.selection, facts.folds],
        "code": job.code,
        "precision": precision,
    }
    if distillation is not None:
        inputs["distillation"] = [
            distillation.settings.model_dump(mode="json"),
            *(read_manifest(file.parent, kind=SOFT_LABELS).digest for file in distillation.teachers),
        ]

    def spec(budget: int, seed: int) -> RunSpec:
        features = fingerprint(
            encoder=encoder,
            # Random encoders differ from seed to seed, and so do their features.
            weights=None if trained else seed,
            kind=facts.kind,
            reading=settings.model_dump(mode="json", include=set(ReadingSettings.model_fields)),
            task_tokens=settings.own_task_tokens and family_named(family_of(job.encoder)).task_tokens,
            precision=precision,
            code=job.code,
        )
        return RunSpec(
            examples=job.examples.absolute(),
            encoder=job.encoder.absolute(),
            settings=settings,
            budget=budget,
            seed=seed,
            precision=precision,
            trained=trained,
            storage=storage,
            checkpoint_seconds=job.cluster.checkpoint_seconds,
            key=f"finetune-{fingerprint(**inputs, budget=budget, seed=seed)}",
            tables=Path(job.cluster.features).absolute(),
            features=features,
            distillation=distillation,
            words=None if job.words is None else job.words.absolute(),
            baselines=None if job.baselines is None else job.baselines.absolute(),
        )

    return spec


def specs_of(
    job: FinetuneJob, settings: FinetuneSettings, *, distillation: Distillation | None = None
) -> Iterator[RunSpec]:
    """The runs of every budget and seed, the longest first, so that no core is idle while the last run finishes."""
    facts, spec = read_facts(job.examples), spec_maker(job, settings, distillation=distillation)
    for budget in reversed(facts.budgets):
        for seed in facts.seeds:
            yield spec(budget, seed)
