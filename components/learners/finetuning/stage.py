"""Stage `finetune`: every label budget and seed of one (task, family, start), in single-threaded processes, one per
core. After a kill, the stage computes only what is missing, with the same weights and predictions."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import save_file

from components.core.artifacts import read_manifest, writing
from components.core.errors import ConfigError
from components.data.tasks.calibration import calibrated, tempered
from components.data.tasks.data import Answer, Split, mean_answers
from components.data.tasks.examples import read_facts, read_split, run_folds
from components.data.tasks.results import KIND, SERVED, RunResult
from components.data.unlabelled_texts import KIND as UNLABELLED
from components.learners.abstention import HeldOut, save_classifier
from components.learners.base import per_row, write_runs
from components.learners.finetuning.execution import Trained, clear, train_all
from components.learners.finetuning.fit import FinetuneJob, Fit, build, is_trained, labels_file, pack
from components.learners.finetuning.runs import BEST, labels_of, result
from components.learners.task_models.base import refuse_distillation
from components.learners.task_models.classifier import AveragedClassifier, TextClassifier, load_classifier
from components.learners.task_models.inputs import share_cut
from components.learners.task_models.kinds import find_task
from components.learners.ways import ways_of
from components.models.encoder import KIND as ENCODER
from components.models.encoder import TOKENIZER, architecture_of, family_of
from components.settings.finetune import FinetuneSettings, Way
from components.settings.systems import FROZEN
from components.tokenization import load_tokenizer
from components.training.checkpoint import below, fingerprint
from components.training.precision import choose, first_device, product_size


def finetune(job: FinetuneJob) -> Path:
    """Train a model for every budget and seed in the ways of its settings, and keep the best one of each; write
    predictions, records, and the model of the largest budget.

    The output directory holds the files of `components.data.tasks.results`, `classifier/` (the average over the seeds
    of the largest budget; see `components.learners.task_models.classifier`) and metrics.json. With `frozen: true`,
    `classifier-frozen/` holds the heads on the frozen encoder, as with `method: features`. With teachers, the ways to
    learn without them come first, and win ties. A teacher's output has its predictions for the texts of each group of
    `distil` (`runs.read_soft_labels`).

    Raises:
        ArtifactError: examples or encoder are incomplete, altered, or of another family.
        ConfigError: the settings do not suit the encoder, or the kind of task has no predictions that a student learns.
        TrainingError: the loss is not finite, or there is no space for a checkpoint.
        OutOfTimeError: no way ends in time, and the kind of task has words models.
    """
    ways = own_ways(job)
    first = next(iter(ways.values()))
    systems: dict[str, Mapping[Way, FinetuneSettings]] = {job.start: ways}
    if job.teachers:
        ways["distil"] = first.model_copy(update={"method": "distil"})
    elif first.frozen:
        systems[f"{job.start}{FROZEN}"] = {"features": first.model_copy(update={"method": "features", "words": "none"})}
    runs, labels = dict[str, list[Trained]](), dict[str, list[Answer]]()
    every: list[tuple[Fit]] = []
    for start, of_system in systems.items():
        teacher = job if start == job.start else job.model_copy(update={"labelled": {}})
        trainings = {way: [(fit,) for fit in fits_of(teacher, each)] for way, each in of_system.items()}
        trained = train_all(trainings, title=f"finetune {job.task} {job.family}-{start}", cluster=job.cluster)
        runs[start] = [of_task for (of_task,) in trained]
        every += [fits for of_way in trainings.values() for fits in of_way]
        if start == job.start and job.labelled:
            for number, each in enumerate(runs[start]):
                of_ways = {way: fits[number][0] for way, fits in trainings.items()}
                labels |= labels_of(each.fit, each.record.get("by_fold", ()), of_ways)
    with writing(job.output, kind=KIND) as draft:
        draft.facts |= write_results_of(draft.path, runs, job=job)
        begin = 0
        for group, texts in job.labelled.items():
            end = begin + int(read_manifest(texts, kind=UNLABELLED).facts["rows"])
            tensors = [pack(name, answers[begin:end]) for name, answers in labels.items()]
            save_file(dict(ChainMap(*tensors)), draft.path / labels_file(group))
            begin = end
    clear(every, cluster=job.cluster)
    return job.output


def own_ways(job: FinetuneJob) -> dict[Way, FinetuneSettings]:
    """Way to learn -> settings of its runs (`ways_of`), for the start of a job.

    Raises:
        ConfigError: a teacher or student is of a kind without predictions that a student learns.
    """
    settings, kind = for_start(job.settings, trained=is_trained(job.encoder)), find_task(read_facts(job.examples).kind)
    for group in [*job.labelled, *[job.group] * (job.texts is not None)]:
        if problem := refuse_distillation(kind, settings):
            raise ConfigError(f"distil.{group}: {job.task}: {problem}")
    return ways_of(kind, settings)


def for_start(settings: FinetuneSettings, *, trained: bool) -> FinetuneSettings:
    """The settings of a run; the settings in `scratch` take precedence if the encoder's weights are random."""
    if trained:
        return settings
    scratch, training = settings.scratch, settings.training
    return settings.model_copy(
        update={
            "method": "finetune",
            "training": training.model_copy(update={"rate": scratch.rate or training.rate}),
            "epochs": scratch.epochs or settings.epochs,
            "head_scale": 1.0,
            "discriminative": 1.0,
            "unfreeze_epochs": 0.0,
            "frozen": False,
        }
    )


def fits_of(
    job: FinetuneJob, settings: FinetuneSettings, runs: Iterable[tuple[int, int]] | None = None
) -> Iterator[Fit]:
    """The trainings of label budgets (rows per stratum; -1 for all) and seeds; None: all of the task, the longest
    first."""
    facts, cluster = read_facts(job.examples), job.cluster
    # By the architecture without the vocabulary, so that all starts of a family have the same precision.
    size = product_size(architecture_of(job.encoder))
    precision = choose(job.settings.training.precision, device=first_device(), size=size)
    storage = cluster.storage if "://" in cluster.storage else str(Path(cluster.storage).absolute())
    places = cluster.model_copy(update={"storage": storage, "features": str(Path(cluster.features).absolute())})
    paths: dict[str, Any] = {name: value.absolute() for name, value in job if isinstance(value, Path)}
    for name in ("labelled", "teachers"):
        paths[name] = {key: path.absolute() for key, path in getattr(job, name).items()}
    placed = job.model_copy(update=paths | {"settings": settings, "cluster": places})
    inputs: dict[str, Any] = {
        "version": 2,  # of the content of a checkpoint
        "settings": settings.model_dump(mode="json", exclude={"frozen", "words"}),  # of the finished training
        "encoder": read_manifest(job.encoder, kind=ENCODER).digest,
        "examples": facts.digests,
        "label_texts": facts.label_texts,
        "kind": facts.kind,
        "selection": [facts.selection, facts.folds],
        "code": job.code,
        "precision": precision,
        "texts": [
            read_manifest(texts, kind=UNLABELLED).digest for texts in [*job.labelled.values(), job.texts] if texts
        ],
        "teachers": [
            read_manifest(folder, kind=KIND).files.get(labels_file(job.group)) for folder in job.teachers.values()
        ],
    }
    for budget, seed in runs or [(budget, seed) for budget in reversed(facts.budgets) for seed in facts.seeds]:
        yield Fit(placed, budget, seed, precision, f"finetune-{fingerprint(**inputs, budget=budget, seed=seed)}")


# -- results and stored models ---------------------------------------------------------------------------------------


def write_results_of(directory: Path, runs: Mapping[str, Sequence[Trained]], *, job: FinetuneJob) -> dict[str, Any]:
    """Write the results and classifiers of a task's finished trainings; returns the facts of the manifest. `runs`: by
    the start in results, that of the job first, then that of the head on the frozen encoder if it is a system."""
    results, test = list[RunResult](), read_split(job.examples, "test")
    for start, of_start in runs.items():
        # The budget of all rows is -1, and the largest.
        outputs = sorted(of_start, key=lambda each: (each.fit.budget < 0, each.fit.budget, each.fit.seed))
        largest = [output for output in outputs if output.fit.budget == outputs[-1].fit.budget]
        part = directory / f"classifier{FROZEN if start.endswith(FROZEN) else ''}"
        temperature = _write_classifier(part, largest, facts={"task": job.task, "start": start})
        served = _served(part, largest, test, temperature)
        for output in outputs:
            answers = output.answers | ({SERVED: served} if served is not None and output is largest[0] else {})
            results.append(RunResult(f"{job.family}-{start}", job.family, start, output.record, answers))
    train, model = read_split(job.examples, "train").fields, architecture_of(job.encoder)
    tokenizer, (start, (first, *_)) = load_tokenizer(job.encoder / TOKENIZER), next(iter(runs.items()))
    return write_runs(directory, job.examples, results, system=f"{job.family}-{start}") | {
        "encoder": read_manifest(job.encoder, kind=ENCODER).digest,
        "family": job.family,
        "start": start,
        "precision": first.fit.precision,
        "cut": share_cut(train, tokenizer, model, first.fit.settings, task=first.fit.task),
    }


def _served(directory: Path, outputs: Sequence[Trained], test: Split, temperature: float) -> list[Answer] | None:
    """The answers of the stored average to the test rows; None if they are the mean of the seeds' answers."""
    scoring = outputs[0].fit.rows().scoring
    if len(outputs) == 1:
        return None
    if not scoring.averages:
        return list(load_classifier(directory).on(first_device()).answer(test.fields))
    means = mean_answers([output.answers["test"] for output in outputs])
    return None if temperature == 1 else tempered(means, temperature, exclusive=scoring.shares == "exclusive")


def _write_classifier(directory: Path, outputs: Sequence[Trained], *, facts: Mapping[str, Any]) -> float:
    """Write the average of the trainings, with its own temperature or threshold; returns the temperature."""
    fit, (temperature, held_out) = outputs[0].fit, _averaged(outputs)
    threshold = _threshold(outputs) if len(outputs) > 1 else None
    average = {"temperature": temperature} if temperature != 1 else {}
    save_classifier(
        directory,
        [partial(_write, output) for output in outputs],
        kind=fit.facts.kind,
        rows=fit.rows().whole,
        held_out=held_out,
        facts={
            **facts,
            "budget": fit.budget,
            "seeds": [output.fit.seed for output in outputs],
            "precision": fit.precision,
        },
        average=average if threshold is None else {"threshold": threshold},
    )
    return temperature


def _threshold(outputs: Sequence[Trained]) -> float | None:
    """The threshold of the average, by the rows that choices are made on; None: its head has none, or the trainings
    have fewer than two such rows in common. Out of fold there is no average: a row has the mean scores of its members,
    and the span of the member that is the surest."""
    fit, rows = outputs[0].fit, outputs[0].fit.rows()
    head = fit.task.head(fit.settings, 1, rows.labels)
    if head.calibration is None:
        return None
    if rows.folds is None:
        average = AveragedClassifier(list(map(_classifier, outputs))).on(first_device())
        average.decoder.decides = False
        average.decoder.calibrate(average.answer(rows.dev.fields), per_row(rows.scoring, rows.dev))
        return average.decoder.calibration
    drawn = [output.fit.rows().drawn for output in outputs]
    common = reduce(np.intersect1d, drawn)
    if len(common) < 2:
        return None
    of_members = np.stack(
        [np.stack(output.raw)[np.searchsorted(of, common)] for output, of in zip(outputs, drawn, strict=True)]
    )
    surest = (of_members[..., 2] - of_members[..., 3]).argmax(0)
    raw = of_members.mean(0)
    raw[:, :2] = of_members[surest, np.arange(len(common)), :2]
    head.calibrate(list(raw), per_row(rows.scoring, rows.whole.take(common)))
    return head.calibration


def _averaged(outputs: Sequence[Trained]) -> tuple[float, list[HeldOut]]:
    """The temperature of the average, and the rows that it has not learned from with its answers: each member's own
    answer out of fold, or, where it has read nothing that belongs to the row, of its final model. The answers to the
    rows of a fold are at the temperature of the other folds. Kinds without probabilities of labels have each member's
    rows and answers."""
    of_seeds = [output.fit.rows() for output in outputs]
    rows, (name, _) = of_seeds[0], of_seeds[0].judged
    judged = [output.answers[name] for output in outputs]
    alone: list[HeldOut] = [(each.judged[1].targets, given) for each, given in zip(of_seeds, judged, strict=True)]
    if len(outputs) == 1 or not rows.scoring.shares:
        return 1.0, alone
    folds, targets = None, rows.dev.targets
    if rows.folds is not None:
        union = {row for each in of_seeds for row in each.drawn.tolist()}
        by_row = [_answers_to(union, output) for output in outputs]
        kept = sorted(set(by_row[0]).intersection(*by_row[1:]))
        if len(kept) < 2:
            return 1.0, alone
        targets = [rows.whole.targets[row] for row in kept]
        folds = run_folds(outputs[0].fit.facts, rows.whole, np.asarray(kept), seed=outputs[0].fit.seed)
        judged = [[each[row] for row in kept] for each in by_row]
    temperature, held_out = calibrated(rows.scoring, targets, mean_answers(judged), folds=folds)
    return temperature, [(targets, held_out)]


def _answers_to(wanted: set[int], trained: Trained) -> dict[int, Answer]:
    """Row of train -> an answer that has not learned from it: of the training's own rows those out of fold, of others
    those of the final model. Rows of which it has read a copy, or another row of the group, have none."""
    rows = trained.fit.rows()
    result = dict(zip(rows.drawn.tolist(), trained.answers[rows.judged[0]], strict=True))
    read = rows.whole.belonging(rows.drawn)
    others = [row for row in sorted(wanted - result.keys()) if rows.whole.digests[row] not in read]
    if others:
        answers = _classifier(trained).on(first_device()).answer(rows.whole.take(others).fields)
        result |= zip(others, answers, strict=True)
    return result


def _classifier(trained: Trained) -> TextClassifier:
    """The finished model of a training, as it is stored."""
    # The weights of all trainings together may exceed memory.
    (tensors, _), (model, tokenizer) = result(trained.fit), build(trained.fit)
    model.load_state_dict(below(BEST, tensors), strict=False)
    return TextClassifier(model.eval(), tokenizer, trained.fit.precision, trained.temperature, words=trained.part)


def _write(trained: Trained, directory: Path) -> None:
    encoder = trained.fit.job.encoder
    _classifier(trained).write(directory, family=family_of(encoder), tokenizer=encoder / TOKENIZER)
