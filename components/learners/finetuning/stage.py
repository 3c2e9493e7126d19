"""Stage `finetune`: every label budget and seed of one (task, family, start), in single-threaded processes, one per
core. After a kill, the stage computes only what is missing, with the same weights and predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from components.core.artifacts import read_manifest, writing
from components.data.tasks.budgets import ALL
from components.data.tasks.calibration import calibrated, labels_of, tempered
from components.data.tasks.data import Answer, Labels, Split, Target, mean_answers
from components.data.tasks.examples import read_facts, read_split, run_folds
from components.data.tasks.kinds import scoring_for
from components.data.tasks.members import save_members
from components.data.tasks.results import KIND, OUT_OF_FOLD, SERVED, RunResult, write_results
from components.learners.abstention import abstention_facts, write_domain
from components.learners.finetuning.attempts import ways_of
from components.learners.finetuning.crossvalidation import uncalibrated
from components.learners.finetuning.execution import TrainedRun, clear, train_all
from components.learners.finetuning.features import head_answers, read_by_head
from components.learners.finetuning.frozen import features
from components.learners.finetuning.member import per_row
from components.learners.finetuning.packing import MODEL, ON_FROZEN
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
from components.learners.task_models.heads import CalibratedHead
from components.learners.task_models.inputs import share_cut
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel, answers
from components.learners.ways import way_of
from components.learners.ways.base import Way as LearningWay
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
    of the largest budget; see `components.learners.task_models.classifier`) and metrics.json. With `frozen: true` and
    if fine-tuning has changed an encoder, `classifier-frozen/` holds the heads on the frozen encoder, likewise.

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
    facts = read_facts(job.examples)
    specs = {
        way: [GroupSpec((spec,), key=spec.key) for spec in specs_of(job, changed, distillation=distillation)]
        for way, changed in ways.items()
    }
    trained_runs = train_all(
        specs, title=f"finetune {job.task} {job.system}", names=["dev"], selection=facts.selection, cluster=job.cluster
    )
    with writing(job.output, kind=KIND) as draft:
        draft.facts |= write_member(draft.path, trained_runs, 0, job=job, start=job.start)
    clear(trained_runs, cluster=job.cluster)
    return job.output


def write_member(
    directory: Path, runs: Sequence[TrainedRun], member: int, *, job: FinetuneJob, start: str
) -> dict[str, Any]:
    """Write the results and classifiers of one member of finished runs; returns the facts of the manifest."""
    facts, system = read_facts(job.examples), f"{job.family}-{start}"
    named = ("dev", "test") if facts.selection == "dev" else ("test",)
    splits = {name: read_split(job.examples, name) for name in named}
    outputs = [_Output(run, member) for run in runs]
    outputs.sort(key=lambda output: (output.spec.budget == ALL, output.spec.budget, output.spec.seed))
    results = [result for output in outputs for result in output.results(job.family, start)]
    largest = [output for output in outputs if output.spec.budget == outputs[-1].spec.budget]
    spec = largest[0].spec
    parts = {result.system: "classifier" for result in results}
    # Fine-tuning that brought nothing has left the same models.
    if any(output.record["best_step"] or output.words.part for output in largest):
        parts |= {name: "classifier-frozen" for name in parts if name.endswith(FROZEN)}
    scoring = scoring_for(facts.kind, facts.labels)
    temperatures = {
        part: _write_classifier(directory / part, largest, job=job, start=start)
        for part in dict.fromkeys(parts.values())
    }
    for number, result in enumerate(results):
        part, of_seeds = parts[result.system], [each for each in results if each.system == result.system]
        if len(largest) == 1 or (result.record["budget"], result.record["seed"]) != (spec.budget, spec.seed):
            continue
        if not scoring.averages:
            # The answers of the stored average.
            stored = load_classifier(directory / part).on(first_device())
            served = stored.answer(splits["test"].fields)
        elif temperatures[part] != 1:
            means = mean_answers([each.answers["test"] for each in of_seeds if each.record["budget"] == spec.budget])
            served = tempered(means, temperatures[part], exclusive=labels_of(scoring) == "exclusive")
        else:
            continue
        results[number] = replace(result, answers={**result.answers, SERVED: served})
    records = write_results(directory, results, splits=splits, labels=facts.labels)
    train, model = read_split(job.examples, "train").fields, architecture_of(job.encoder)
    tokenizer = load_tokenizer(job.encoder / TOKENIZER)
    return {
        "task": job.task,
        "system": system,
        "encoder": read_manifest(job.encoder, kind=ENCODER).digest,
        "family": job.family,
        "start": start,
        "precision": spec.precision,
        "cut": share_cut(train, tokenizer, model, spec.settings, task=find_task(facts.kind)),
        "selection": facts.selection,
        "examples": facts.digests,
        "runs": len(records),
    }


def _write_classifier(directory: Path, outputs: Sequence[_Output], *, job: FinetuneJob, start: str) -> float:
    """Write the average of the runs, with its own temperature or threshold; returns the temperature."""
    kind, spec, frozen = read_facts(job.examples).kind, outputs[0].spec, directory.name.endswith(FROZEN)
    temperature, held_out = _averaged(outputs, frozen=frozen)
    threshold = _threshold(outputs, frozen=frozen) if len(outputs) > 1 else None
    average = {"temperature": temperature} if temperature != 1 else {}
    save_members(
        directory,
        [partial(output.write, frozen=frozen) for output in outputs],
        facts={
            "task": job.task,
            "start": f"{start}{FROZEN}" if frozen else start,
            "budget": spec.budget,
            "seeds": [output.spec.seed for output in outputs],
            "precision": spec.precision,
            **abstention_facts(kind, held_out),
        },
        beside=partial(write_domain, kind=kind, rows=read_split(job.examples, "train")),
        average=average if threshold is None else {"threshold": threshold},
    )
    return temperature


def _threshold(outputs: Sequence[_Output], *, frozen: bool) -> float | None:
    """The threshold of the average of runs, by the rows that choices are made on; None: its head has none, or the runs
    have fewer than two such rows in common. Out of fold there is no average: a row has the mean scores of its members,
    and the span of the member that is the surest."""
    spec = outputs[0].spec
    facts = read_facts(spec.examples)
    head, scoring = find_task(facts.kind).head(spec.settings, 1, facts.labels), scoring_for(facts.kind, facts.labels)
    if not isinstance(head, CalibratedHead):
        return None
    if facts.selection == "dev":
        rows = read_split(spec.examples, "dev")
        members = [TextClassifier(*output.classifier(frozen=frozen), spec.precision) for output in outputs]
        average = AveragedClassifier(members).on(first_device())
        head = average.decoder
        assert isinstance(head, CalibratedHead)
        head.calibrate(lambda: average.answer(rows.fields), per_row(scoring, rows))
        return head.calibration
    common = reduce(np.intersect1d, [output.learned for output in outputs])
    if len(common) < 2:
        return None
    of_members = np.stack([output.uncalibrated(common, frozen=frozen) for output in outputs])
    surest = (of_members[..., 2] - of_members[..., 3]).argmax(0)
    raw = of_members.mean(0)
    raw[:, :2] = of_members[surest, np.arange(len(common)), :2]
    head.calibrate(lambda: list(raw), per_row(scoring, read_split(spec.examples, "train").take(common)))
    return head.calibration


def _averaged(
    outputs: Sequence[_Output], *, frozen: bool
) -> tuple[float, list[tuple[Sequence[Target], Sequence[Answer]]]]:
    """The temperature of the average of runs, and the rows that it has not learned from with its answers: each member's
    own answer out of fold, or, where it has read nothing that belongs to the row, of its final model. The answers to
    the rows of a fold are at the temperature of the other folds. Kinds without probabilities of labels have each
    member's rows and answers."""
    spec = outputs[0].spec
    facts = read_facts(spec.examples)
    scoring = scoring_for(facts.kind, facts.labels)
    if len(outputs) == 1 or not labels_of(scoring):
        return 1.0, [output.held_out(frozen=frozen) for output in outputs]
    folds = None
    if facts.selection == "dev":
        rows = read_split(spec.examples, "dev")
        of_members = [list(output.held_out(frozen=frozen)[1]) for output in outputs]
    else:
        whole = read_split(spec.examples, "train")
        union = np.unique(np.concatenate([output.learned for output in outputs]))
        by_row = [output.answers_to(union, frozen=frozen) for output in outputs]
        kept = np.asarray([row for row in union.tolist() if all(row in each for each in by_row)], dtype=np.int64)
        if len(kept) < 2:
            return 1.0, [output.held_out(frozen=frozen) for output in outputs]
        rows, folds = whole.take(kept), run_folds(facts, whole, kept, seed=spec.seed)
        of_members = [[each[row] for row in kept.tolist()] for each in by_row]
    temperature, held_out = calibrated(scoring, rows.targets, mean_answers(of_members), folds=folds)
    return temperature, [(rows.targets, held_out)]


class _Output:
    """What a finished run has brought for one member, combined with words."""

    def __init__(self, run: TrainedRun, member: int) -> None:
        self.run, self.member, self.spec = run, member, run.spec.members[member]
        tensors, self.record = run.result(member)
        self.temperature, answers = self._calibrated(run.answers(member, tensors))
        self.record |= self._scores(answers) if self.temperature != 1 else {}
        self.words = with_words(self.spec, answers, self.record)
        #: Answers of the head on the frozen encoder.
        self.frozen = run.answers(member, tensors, prefix=ON_FROZEN) if f"{ON_FROZEN}test" in tensors else {}
        self.frozen_temperature, self.frozen = self._calibrated(self.frozen)

    @cached_property
    def learned(self) -> NDArray[np.int64]:
        """Indices, ascending, of the rows of the run's budget in the train split."""
        return rows_of(replace(self.spec, fold=None), read_split(self.spec.examples, "train")).learned

    def answers_to(self, rows: NDArray[np.int64], *, frozen: bool) -> dict[int, Answer]:
        """Row of train -> an answer that has not learned from it: of the run's own rows those out of fold, of others
        those of the final model. Rows of which it has read a copy, or another row of the group, have none."""
        whole, held = read_split(self.spec.examples, "train"), self.held_out(frozen=frozen)[1]
        result = dict(zip(self.learned.tolist(), held, strict=True))
        read = whole.belonging(self.learned)
        others = [row for row in rows.tolist() if row not in result and whole.digests[row] not in read]
        if not others:
            return result
        spec, (classifier, tokenizer), fields = self.spec, self.classifier(frozen=frozen), whole.take(others).fields
        if spec.trained and self._reads_frozen(frozen=frozen):
            numbers = all_training_rows(spec, whole, read_facts(spec.examples))
            table = features(spec, "train").take(np.searchsorted(numbers, np.asarray(others)))
            raw = head_answers(classifier.head, read_by_head(classifier, table))
        else:
            encoded = encode(spec, classifier, tokenizer, fields)
            raw = answers(classifier.to(first_device()), encoded, precision=spec.precision)
        raw = tempered(raw, self._stored_temperature(frozen=frozen), exclusive=classifier.task.kind != "multilabel")
        part = None if frozen else self.words.part
        return result | dict(zip(others, raw if part is None else part.combined(fields, raw), strict=True))

    def _reads_frozen(self, *, frozen: bool) -> bool:
        """Whether the encoder is as it was before training."""
        return frozen or (self.record | self.words.record)["best_step"] == 0 or not self._way.trains_encoder

    def _stored_temperature(self, *, frozen: bool) -> float:
        return self.frozen_temperature if frozen else 1.0 if self.words.weights else self.temperature

    @property
    def _way(self) -> LearningWay:
        return way_of(self.spec.settings)

    def uncalibrated(self, rows: NDArray[np.int64], *, frozen: bool) -> NDArray[np.float32]:
        """The answers to some of the run's rows out of fold, before the head was calibrated."""
        stop = 0 if frozen else self.run.selections[self.member].chosen.stop
        answers = uncalibrated(self.run.spec, self.member, stop=stop)
        return np.stack(answers)[np.searchsorted(self.learned, rows)]

    def classifier(self, *, frozen: bool) -> tuple[TaskModel, Tokenizer]:
        """The model of the run, or its head on the frozen encoder."""
        # The weights of all runs together may exceed memory.
        tensors = self.run.result(self.member)[0]
        tensors = below(ON_FROZEN, tensors) if frozen else self.words.weights or tensors
        classifier, tokenizer = build(self.spec)
        classifier.load_state_dict(classifier.state_dict() | below(MODEL, tensors))
        return classifier.eval(), tokenizer

    @cached_property
    def _judged(self) -> tuple[str, Split, Labels | None]:
        facts = read_facts(self.spec.examples)
        if facts.selection == "dev":
            return "dev", read_split(self.spec.examples, "dev"), None
        whole = read_split(self.spec.examples, "train")
        return OUT_OF_FOLD, whole.take(self.learned), run_folds(facts, whole, self.learned, seed=self.spec.seed)

    def _scores(self, answers: Mapping[str, list[Answer]]) -> dict[str, Any]:
        """Entries of the record: the scores of calibrated answers."""
        facts, (name, rows, _) = read_facts(self.spec.examples), self._judged
        scores = scoring_for(facts.kind, facts.labels).score(rows.fields, rows.targets, answers[name])
        return at_chosen(self.record, scores) if name == "dev" else {"selected": scores}

    def _calibrated(self, answers: dict[str, list[Answer]]) -> tuple[float, dict[str, list[Answer]]]:
        """The temperature that is fitted on the rows that choices are made on, and all answers at this temperature."""
        facts = read_facts(self.spec.examples)
        scoring, (name, rows, folds) = scoring_for(facts.kind, facts.labels), self._judged
        if not answers or not (labels := labels_of(scoring)):
            return 1.0, answers
        temperature, judged = calibrated(scoring, rows.targets, answers[name], folds=folds)
        test = tempered(answers["test"], temperature, exclusive=labels == "exclusive")
        return temperature, {name: judged, "test": test}

    def results(self, family: str, start: str) -> Iterator[RunResult]:
        """The results of the model, and of its head on the frozen encoder if it is a system."""
        record = self.record
        yield RunResult(f"{family}-{start}", family, start, record | self.words.record, self.words.answers)
        if self.frozen:
            first = record | {"curve": record["curve"][:1], "best_step": 0, "best_epoch": 0.0, "steps": 0, "tokens": 0}
            first |= {"chosen": 0} if "chosen" in record else {}
            first.pop("selected", None)
            yield RunResult(f"{family}-{start}{FROZEN}", family, f"{start}{FROZEN}", first, self.frozen)

    def held_out(self, *, frozen: bool) -> tuple[Sequence[Target], Sequence[Answer]]:
        """Targets of the rows that choices are made on, and the answers of the model or its frozen form."""
        name, rows, _ = self._judged
        return rows.targets, (self.frozen if frozen else self.words.answers)[name]

    def write(self, directory: Path, *, frozen: bool) -> None:
        """Write the files of the model, or of its head on the frozen encoder."""
        # The head of the best weights may have been fitted to features, in float32.
        fitted = self._reads_frozen(frozen=frozen) or self._way.refits_head
        write_files(
            directory,
            self.classifier(frozen=frozen)[0],
            family=family_of(self.spec.encoder),
            tokenizer=self.spec.encoder / "tokenizer",
            precision=self.spec.precision,
            head_precision="float32" if fitted else None,
            temperature=self._stored_temperature(frozen=frozen),
            words=None if frozen else self.words.part,
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
        "settings": settings.model_dump(mode="json", exclude={"words"}),  # combined with the finished run
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
