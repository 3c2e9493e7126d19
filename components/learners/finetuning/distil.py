"""Stage `distil`: a student learns the predictions of teachers (Hinton et al. 2015).

An item of a teacher labels the texts of a group of `distil` with the runs of a fine-tuned system, one for each label
budget, seed and fold. Most weights are not stored, so each run is trained again up to the point that was chosen for it.
A student's run learns from the teachers' runs of the same budget, seed and fold (`runs.read_soft_labels`). A words
model beside the encoder is left out."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from components.core.artifacts import json_of, read_manifest, writing
from components.core.errors import ArtifactError
from components.data.tasks.examples import read_facts
from components.data.tasks.results import KIND as FINETUNED
from components.data.unlabelled_texts import KIND as UNLABELLED
from components.learners.finetuning.execution import clear, execute_all
from components.learners.finetuning.fit import LABELS, SOFT_LABELS, SOFT_LABELS_FILE, FinetuneJob, Fits, pack, unpack
from components.learners.finetuning.runs import result
from components.learners.finetuning.stage import finetune, fits_of, own_ways
from components.learners.task_models.probe import HeadCandidate
from components.training.checkpoint import fingerprint


class TeachJob(FinetuneJob):
    """Inputs of a teacher: those of `finetune`, texts, and the output of `finetune`."""

    texts: Path
    finetuned: Path


def distil(job: FinetuneJob | TeachJob) -> Path:
    """Label the texts with a teacher (`teach`), or train a student (`finetune`); returns the output directory."""
    return teach(job) if isinstance(job, TeachJob) else finetune(job)


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
    texts, labelling = read_manifest(job.texts, kind=UNLABELLED), list(_labelling(job))
    labelling = labelling if texts.facts["rows"] else []
    execute_all(labelling, title=f"teach {job.task} {job.system}", cluster=job.cluster)
    tensors: dict[str, Tensor] = {}
    for (fit,) in labelling:
        tensors |= pack(fit.name, unpack(LABELS, result(fit)[0]))
    with writing(job.output, kind=SOFT_LABELS) as draft:
        save_file(tensors, draft.path / SOFT_LABELS_FILE)
        draft.facts |= {
            "teacher": job.system,
            "finetuned": finetuned.digest,
            "texts": texts.digest,
            "runs": len(labelling),
        }
    clear(labelling, cluster=job.cluster)
    return job.output


def _labelling(job: TeachJob) -> Iterator[Fits]:
    """The trainings that label the texts: the teacher's on all rows of each budget, and each fold, in the way and with
    the choices that were made without its rows."""
    ways = own_ways(job)
    fits = {(way, fit.budget, fit.seed): fit for way, each in ways.items() for fit in fits_of(job, each)}
    for record in read_records(job.finetuned, start=job.start):
        choices = [{"way": next(iter(ways))} | record, *record.get("by_fold", [])]
        shares = {each["way"]: each["share"] for each in record.get("ways", ())}
        for fold, each in enumerate(choices, start=-1):
            fit, head = fits[each["way"], record["budget"], record["seed"]], HeadCandidate.recorded(each)
            share, folds = shares.get(each["way"], 1.0), len(choices) - 1
            key = f"teach-{fingerprint(run=fit.key, head=head, stop=each['stop'], share=share, fold=fold)}"
            part: dict[str, Any] = {} if fold < 0 else {"fold": fold, "folds": folds}
            yield (replace(fit, **part, head=head, stop=each["stop"], share=share, key=key),)


def read_records(finetuned: Path, *, start: str) -> list[dict[str, Any]]:
    """The records of a system's runs, without the records of the head on its frozen encoder."""
    return [record for record in json_of(finetuned / "runs.json") if record["start"] == start]
