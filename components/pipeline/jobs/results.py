"""Jobs of the stages that cover a whole run: identity, report, registration, promotion."""

from collections.abc import Mapping
from pathlib import Path

from components.pipeline.jobs import PARALLEL, WHOLE, Arguments, out
from components.pipeline.jobs.tasks import starts_of, students_of
from components.settings.params import Params
from components.settings.section import Section


def identity(params: Params) -> dict[str, Arguments]:
    """Settings, code and libraries of every stage, as digests."""
    return {WHOLE: {"params": params, "output": out(params, "identity")}}


def report(params: Params) -> dict[str, Arguments]:
    """Writes one HTML page with all figures, and its numbers as JSON."""
    return {
        WHOLE: {
            "out": Path(params.run.out),
            "families": params.run.families,
            "tasks": params.run.tasks,
            "starts": params.run.starts,
            "corpora": list(params.corpora),
            "adapt_task": list(params.adapt_task),
            "parents": _parents(params),
            "students": _students(params),
            "decision": out(params, "registry", "decision.json"),
            "data": _data(params),
            "output": out(params, "report"),
        }
    }


def register(params: Params) -> dict[str, Arguments]:
    """Registers every model as a version in MLflow."""
    sections: dict[str, Mapping[str, Section]] = {
        "pretrain": params.pretrain,
        "static": params.static,
        "adapt": params.adapt,
        "finetune": params.finetune,
    }
    return {
        WHOLE: {
            "registry": params.registry,
            "out": Path(params.run.out),
            "families": params.run.families,
            "tasks": params.run.tasks,
            "starts": params.run.starts,
            "further": {task: starts_of(params, task)[len(params.run.starts) :] for task in params.run.tasks},
            "students": _students(params),
            "parameters": {
                section: {family: settings.model_dump(mode="json") for family, settings in families.items()}
                for section, families in sections.items()
            },
            "parents": _parents(params),
            "metric": params.promote.metric,
            "data": _data(params),
        }
    }


def promote(params: Params) -> dict[str, Arguments]:
    """Moves the alias champion, or keeps it, with reasons."""
    return {
        WHOLE: {
            "registry": params.registry,
            "rule": params.promote,
            "examples": {task: out(params, "examples", task) for task in params.run.tasks},
            "out": Path(params.run.out),
        }
    }


def read_by_register(params: Params) -> list[Path]:
    """What the stage `register` depends on."""
    encoders = [out(params, "encoder")] if params.run.families else []
    return [*encoders, *(out(params, name) for name in ("examples", "finetuned", "evaluation", "leakage"))]


def read_by_promote(params: Params) -> list[Path]:
    """What the stage `promote` depends on."""
    names = ("registry/registered.json", "evaluation", "leakage", "finetuned", "examples")
    return [out(params, name) for name in names]


def read_by_report(params: Params) -> list[Path]:
    """What the stage `report` depends on."""
    corpora = [out(params, "corpus")] if params.corpora else []
    names = ("metrics", "curves", "checks", "registry/decision.json")
    return [*read_by_register(params), *corpora, *(out(params, name) for name in names)]


def _parents(params: Params) -> dict[str, list[str]]:
    """Computed blocks of the run, and those that they are computed from -> the blocks that they are computed from."""
    names = [*params.run.families, *(entry for name in params.run.families for entry in params.origins(name))]
    collected = {name: params.block(name) for name in names}
    return {name: list(block.parents) for name, block in collected.items() if block is not None and block.parents}


def _students(params: Params) -> dict[str, list[str]]:
    return {str(student): params.distil[student.group].teachers for student in students_of(params)}


def _data(params: Params) -> dict[str, Path]:
    """Output (relative to the run's folder) of each stage that reads raw data -> path of the data."""
    corpora = {
        f"corpus/{corpus}": source.path
        for corpus, source in params.corpora.items()
        if getattr(params.data, corpus) is not None
    }
    corpora |= {
        f"domain-texts/unlabelled-{number}": source.path for number, source in enumerate(params.data.unlabelled)
    }
    parallel = {f"corpus/{corpus}-{PARALLEL}": source.path for corpus, source in params.data.parallel.items()}
    tasks = {f"examples/{task}": params.data.tasks[task].path for task in params.run.tasks}
    return {name: Path(path) for name, path in (corpora | parallel | tasks).items()}
