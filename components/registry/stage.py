"""The stage `register`: register every model of a run as a version in MLflow.

DVC never caches this stage, because it acts on the registry. It is idempotent: a model whose content digest is already
registered is skipped.

registered.json holds `schema`, `tracking` (address), `git_commit`, `git_dirty`, `dvc_lock`; `data`, path -> digest of
the data that the run has read; `models`, a list of {name, version, digest, kind, family, start, task, system, parent,
directory}; `challengers`, task -> {name, version, digest, system, metric, budget, dev_score}: the system with the best
score of selection at the largest label budget, of equal ones the cheapest: words, then a frozen encoder, then a
fine-tuned one; and `candidates`, task -> the best system of each of these three, in this order, with the same fields.
"""

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas

from components.core.artifacts import flatten, read_json, write_atomic
from components.data.tasks.kinds import find_kind
from components.learners.loading import load_model
from components.registry.candidates import (
    Candidate,
    Content,
    Key,
    RegisterJob,
    candidates,
    describe_model,
    describe_version,
    model_content,
    write_bundle,
)
from components.registry.drift.measurements import REFERENCE, record_reference
from components.registry.lineage import Lineage, provenance, read_lineage
from components.registry.reading import PROVENANCE
from components.registry.runs import artifact_of, read_dev_score, read_leakage
from components.registry.tracking import Record, Version, connect

REGISTERED = "registered.json"
#: Prefix of metrics of a recipe: means over the runs of its seeds, whose average is registered.
MEAN = "mean_over_seeds"
SCHEMA = 1


def register(job: RegisterJob) -> Path:
    """Register every model; write registered.json."""
    models = {each.key: (each, model_content(each.model, kind=each.kind)) for each in candidates(job)}
    registry = connect(job.registry)
    lineage = read_lineage(job.project, out=job.out, data=job.data)
    versions: dict[Key, Version] = {}
    for key, (candidate, content) in models.items():
        if (version := registry.find(candidate.name, digest=content.digest)) is not None:
            versions[key] = version
            print(f"{version.label}: already registered", flush=True)
            continue
        parent = versions.get(candidate.parent) if candidate.parent is not None else None
        teachers = [
            version
            for other, version in versions.items()
            if other[2] == candidate.task and models[other][0].system in candidate.teachers
        ]
        record = _record(job, lineage, candidate, content, parent, teachers)
        form = None
        if candidate.kind == "classifier":
            config = read_json(content.directory / "config.json", made_by="the stage finetune")
            form = find_kind(config["kind"]).io
        # On the disk of the outputs, so that the bundle is made of links.
        with tempfile.TemporaryDirectory(prefix=".register-", dir=job.out) as draft:
            versions[key] = registry.record(candidate.name, write_bundle(content, Path(draft) / "bundle"), form, record)
        print(f"{versions[key].label}: registered", flush=True)
    ranked = {task: _ranked(job, task, models, versions) for task in job.tasks}
    # Among equal scores `max` finds the first, which is the cheapest.
    challengers = {task: max(best, key=lambda entry: float(entry["dev_score"])) for task, best in ranked.items()}
    for key, version in versions.items():
        candidate, _ = models[key]
        # Of the versions that are promoted automatically, frozen encoders as first champions apart. `headstart drift`
        # measures the reference of another version.
        if candidate.is_words or (candidate.task and candidate.system == challengers[candidate.task]["system"]):
            examples = job.out / "examples" / str(candidate.task)
            if registry.attached(version, REFERENCE) is None and examples.is_dir():
                record_reference(registry, version, load_model(candidate.model), examples=examples)
    listing = {
        "schema": SCHEMA,
        "tracking": registry.address,
        "git_commit": lineage.commit,
        "git_dirty": lineage.dirty,
        "dvc_lock": lineage.lock,
        "data": lineage.data,
        "models": [
            {"name": version.name, "version": version.number, "digest": version.digest}
            | {key: getattr(candidate, key) for key in ("kind", "family", "start", "task", "system")}
            | {"parent": version.tags.get("parent") or None, "directory": candidate.directory.as_posix()}
            for (candidate, _), version in zip(models.values(), versions.values(), strict=True)
        ],
        "challengers": challengers,
        "candidates": ranked,
    }
    path = job.out / "registry" / REGISTERED
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(listing, indent=1) + "\n")
    return path


def _record(
    job: RegisterJob,
    lineage: Lineage,
    candidate: Candidate,
    content: Content,
    parent: Version | None,
    teachers: Sequence[Version],
) -> Record:
    directory = candidate.directory
    return Record(
        run_name=(directory if candidate.cost == 2 else candidate.model).relative_to(job.out).as_posix(),
        metrics=_metrics(job, candidate),
        parameters=dict(flatten(job.parameters.get(candidate.section, {}).get(candidate.family, {}))),
        curves=_curves(directory / "curve.csv"),
        datasets=lineage.datasets(directory),
        tags={
            "digest": content.digest,
            "kind": candidate.kind,
            "family": candidate.family,
            "start": candidate.start,
            "task": candidate.task or "",
            "system": candidate.system,
            "parent": parent.label if parent is not None else "",
            "parent_digest": parent.digest if parent is not None else "",
            **_teacher_tags(job, candidate, teachers),
            **lineage.tags(directory),
        },
        documents={PROVENANCE: provenance(lineage, out=job.out, output=directory, parent=parent, teachers=teachers)},
        description=describe_version(
            candidate,
            out=job.out,
            facts=content.facts,
            data=lineage.data_of(directory),
            parent=parent,
            teachers=teachers,
        ),
        about=describe_model(candidate, alias=job.registry.alias),
    )


def _teacher_tags(job: RegisterJob, candidate: Candidate, teachers: Sequence[Version]) -> dict[str, str]:
    """Tags of a student: the versions, systems and digests of its teachers, and the imported models among these."""
    if not candidate.teachers:
        return {}
    blocks = dict.fromkeys(version.tags["family"] for version in teachers)
    names = [name for block in blocks for name in (block, *job.parents.get(block, []))]
    sources = [job.parameters["pretrain"].get(name, {}) for name in dict.fromkeys(names)]
    return {
        "teacher": ", ".join(version.label for version in teachers),
        "teacher_system": ", ".join(candidate.teachers),
        "teacher_digest": ", ".join(version.digest for version in teachers),
        "teacher_source": ", ".join(f"{each['source']} {each['digest']}" for each in sources if each.get("source")),
    }


def _metrics(job: RegisterJob, candidate: Candidate) -> dict[str, float]:
    """Scores of the artifact on test (`test.`), its score of selection (`dev.`), means of its system's runs (MEAN), and
    leaks."""
    metrics = _numbers(read_json(candidate.directory / "metrics.json", made_by="its stage", missing_ok=True))
    if candidate.task is None:
        return metrics
    evaluation, prefix = job.out / "evaluation" / candidate.task, f"{candidate.system}."
    # The file may hold several systems.
    metrics = {key: value for key, value in metrics.items() if key.startswith(prefix)}
    dev = read_dev_score(candidate.directory / "runs.json", system=candidate.system, metric=job.metric)
    evaluated = _numbers(read_json(evaluation / "metrics.json", made_by="the stage evaluate", missing_ok=True))
    tested = {key: value for key, value in evaluated.items() if key.startswith(prefix)}
    metrics |= {f"test.{key.removeprefix(prefix)}": value for key, value in tested.items()}
    metrics = {f"{MEAN}.{key}": value for key, value in metrics.items()} | {f"dev.{dev.metric}": dev.score}
    content = read_json(evaluation / "evaluation.json", made_by="the stage evaluate", missing_ok=True)
    scores = artifact_of(content, candidate.system).get("scores", {})
    copies = read_leakage(job.out, candidate.task, candidate.system)
    metrics |= {f"test.{name}": float(score["mean"]) for name, score in scores.items()}
    return metrics | {f"leakage.test.{kind}": float(copies[kind]) for kind in ("exact", "near") if kind in copies}


def _ranked(
    job: RegisterJob, task: str, models: Mapping[Key, tuple[Candidate, Content]], versions: Mapping[Key, Version]
) -> list[dict[str, Any]]:
    """The task's system with the best score of selection of each class of cost, the cheapest first."""
    best: dict[int, dict[str, Any]] = {}
    for key, (candidate, _) in models.items():
        if candidate.task != task:
            continue
        dev = read_dev_score(candidate.directory / "runs.json", system=candidate.system, metric=job.metric)
        if candidate.cost not in best or dev.score > best[candidate.cost]["dev_score"]:
            entry = {"system": candidate.system, "metric": dev.metric, "budget": dev.budget, "dev_score": dev.score}
            version = versions[key]
            identity = {"name": version.name, "version": version.number, "digest": version.digest}
            best[candidate.cost] = identity | entry
    return [best[cost] for cost in sorted(best)]


def _numbers(value: Mapping[str, Any]) -> dict[str, float]:
    return {key: float(leaf) for key, leaf in flatten(value) if isinstance(leaf, (int, float)) and math.isfinite(leaf)}


def _curves(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Columns of curve.csv, without empty cells: name -> (step, value) pairs."""
    if not path.is_file():
        return {}
    table = pandas.read_csv(path, index_col=0).apply(pandas.to_numeric, errors="coerce")
    points = {name: [(int(step), value) for step, value in table[name].items()] for name in table}
    points = {name: [point for point in column if math.isfinite(point[1])] for name, column in points.items()}
    return {f"curve.{name}": column for name, column in points.items() if column}
