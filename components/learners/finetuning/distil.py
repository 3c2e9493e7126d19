"""Stage `distil`: a student learns the predictions of teachers (Hinton et al. 2015).

An item of a teacher labels the texts of a group of `distil` with the runs of a fine-tuned system, one for each label
budget, seed and fold. Most weights are not stored, so each run is trained again up to the point that was chosen for it.
A student's run learns from the teachers' runs of the same budget, seed and fold. A words model beside the encoder is
left out."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from components.core.artifacts import json_of, read_manifest, writing
from components.core.errors import ArtifactError, ConfigError
from components.data.tasks.examples import read_facts
from components.data.tasks.results import KIND as FINETUNED
from components.data.unlabelled_texts import KIND as UNLABELLED
from components.learners.finetuning.execution import clear, execute_all
from components.learners.finetuning.fit import LABELS, FinetuneJob, Fits, pack, unpack
from components.learners.finetuning.runs import result
from components.learners.finetuning.soft_labels import FILE, name_of
from components.learners.finetuning.soft_labels import KIND as SOFT_LABELS
from components.learners.finetuning.stage import fits_of, own_ways, train_and_write
from components.learners.task_models.base import refuse_distillation
from components.learners.task_models.kinds import find_task
from components.learners.task_models.probe import HeadCandidate
from components.settings.finetune import DistilSettings
from components.training.checkpoint import fingerprint


class TeachJob(FinetuneJob):
    """Inputs of a teacher: a group of `distil`, its settings and texts, and the output of `finetune`."""

    group: str
    distil: DistilSettings
    texts: Path
    finetuned: Path


class DistilJob(FinetuneJob):
    """Inputs of a student.

    Attributes:
        student: system that the student is without teachers.
        texts: texts without labels of the group.
        taught: folder with the predictions of the teachers.
    """

    group: str
    distil: DistilSettings
    student: str
    texts: Path
    taught: Path


def teach(job: TeachJob) -> Path:
    """Write the predictions of a teacher for the texts of a group; returns the output directory.

    Raises:
        ArtifactError: an input is incomplete, altered, or belongs to another version of the task's data.
        ConfigError: the kind of task has no predictions that a student learns.
        TrainingError: the loss is not finite, or there is no space for a checkpoint.
    """
    facts, finetuned = read_facts(job.examples), read_manifest(job.finetuned, kind=FINETUNED)
    if finetuned.facts["examples"] != facts.digests:
        raise ArtifactError(f"{job.finetuned}: made from another version of the task's data; run the stage again")
    _refuse(job)
    texts = read_manifest(job.texts, kind=UNLABELLED)
    labelling = list(_labelling(job, texts=texts.digest)) if texts.facts["rows"] else []
    execute_all(labelling, title=f"teach {job.task} {job.system}", cluster=job.cluster)
    tensors: dict[str, Tensor] = {}
    for fits in labelling:
        tensors |= pack(name_of(fits[0]), unpack(LABELS, result(fits, 0)[0]))
    with writing(job.output, kind=SOFT_LABELS) as draft:
        save_file(tensors, draft.path / FILE)
        draft.facts |= {
            "teacher": job.system,
            "finetuned": finetuned.digest,
            "texts": texts.digest,
            "runs": len(labelling),
        }
    clear(labelling, cluster=job.cluster)
    return job.output


def distil(job: TeachJob | DistilJob) -> Path:
    """Label the texts with a teacher (`teach`), or train a student for every budget and seed; returns the output
    directory, which has the files of `finetune` for a student.

    The student's own ways to learn, without teachers, are candidates, and win ties.

    Raises:
        As `teach`.
    """
    if isinstance(job, TeachJob):
        return teach(job)
    _refuse(job)
    teachers = [job.taught.absolute() / teacher / FILE for teacher in job.distil.teachers]
    ways = {way: settings.model_copy(update={"frozen": False}) for way, settings in own_ways(job).items()}
    ways["distil"] = next(iter(ways.values())).model_copy(update={"method": "distil"})
    return train_and_write(job, ways, texts=job.texts.absolute(), teachers=teachers)


def _refuse(job: TeachJob | DistilJob) -> None:
    problem = refuse_distillation(find_task(read_facts(job.examples).kind), job.settings)
    if problem is not None:
        raise ConfigError(f"distil.{job.group}: {job.task}: {problem}")


def _labelling(job: TeachJob, *, texts: str) -> Iterator[Fits]:
    """The trainings that label the texts: the teacher's on all rows of each budget, and each fold, in the way and with
    the choices that were made without its rows."""
    fits = {
        way: {(fit.budget, fit.seed): fit for fit in fits_of(job, settings)} for way, settings in own_ways(job).items()
    }
    first = next(iter(fits))
    for record in read_records(job.finetuned, start=job.start):
        choices = [{"way": first} | record, *record.get("by_fold", [])]
        shortened = {each["way"]: each["epochs"] for each in record.get("ways", ()) if "epochs" in each}
        for fold, each in enumerate(choices, start=-1):
            fit, head = fits[each["way"]][record["budget"], record["seed"]], HeadCandidate.recorded(each)
            epochs = shortened.get(each["way"])
            fit = fit if epochs is None else fit.shortened(epochs)
            key = fingerprint(run=fit.key, texts=texts, head=head, stop=each["stop"], epochs=epochs)
            part = {"fold": None, "folds": 0} if fold < 0 else {"fold": fold, "folds": len(choices) - 1}
            yield (
                replace(
                    fit,
                    **part,
                    head=head,
                    stop=each["stop"],
                    texts=job.texts.absolute(),
                    key=f"teach-{key}-{'all' if fold < 0 else f'fold{fold}'}",
                ),
            )


def read_records(finetuned: Path, *, start: str) -> list[dict[str, Any]]:
    """The records of a system's runs, without the records of the head on its frozen encoder."""
    records = json_of(finetuned / "runs.json")
    return [record for record in records if record["start"] == start]
