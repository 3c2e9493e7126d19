"""The stages in pipeline order, and how params.yaml becomes the frozen job of each.

A stage is a function of one job that returns the directory it wrote. Its items are what dvc.yaml calls `${key}`:
`general`, `general-wordpiece`, `ulmfit`, `aws-type-ulmfit-adapted`. Modules are imported when their stage runs: none
pays for another's libraries.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.artifacts import write_atomic
from components.config import TASK_ADAPTED, WITH, Params, PublishedVocabulary, Section
from components.errors import ConfigError, nearest
from components.task_source import SPLITS

CORPORA = ("general", "domain")
#: `pretrain.<family>.tokenizer` of those that learn from pairs, and the end of the pairs' names.
PARALLEL = "parallel"
#: The item of a stage that has only one.
WHOLE = ""
Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Stage:
    """One line of the table.

    Attributes:
        module: where the job's class and the function are.
        job: name of the job's class; its fields are the arguments.
        function: job -> path of what it wrote.
        items: settings -> item -> the job's arguments.
    """

    module: str
    job: str
    function: str
    items: Callable[[Params], Mapping[str, Arguments]]

    def run(self, arguments: Arguments) -> Path:
        """Make the job and run it."""
        module = importlib.import_module(self.module)
        written: Path = getattr(module, self.function)(getattr(module, self.job)(**arguments))
        return written


def _ingest(params: Params) -> dict[str, Arguments]:
    return {
        corpus: {
            "name": corpus,
            "source": getattr(params.data, corpus),
            "settings": params.ingest,
            "output": _out(params, "corpus", corpus),
        }
        for corpus in CORPORA
    }


def _ingest_parallel(params: Params) -> dict[str, Arguments]:
    return {
        corpus: {
            "name": f"{corpus} pairs",
            "source": source,
            "settings": params.ingest,
            "output": _out(params, "corpus", f"{corpus}-{PARALLEL}"),
        }
        for corpus, source in params.data.parallel.items()
    }


def _tokenizer(params: Params) -> dict[str, Arguments]:
    return {
        f"{corpus}-{kind}": {
            "corpus": _out(params, "corpus", corpus),
            "output": _out(params, "tokenizer", f"{corpus}-{kind}"),
            "kind": kind,
            "settings": params.tokenizer,
        }
        for corpus in CORPORA
        for kind in params.tokenizer.kinds
    }


def _tokenizer_parallel(params: Params) -> dict[str, Arguments]:
    return {
        corpus: {
            "corpus": _out(params, "corpus", corpus),
            "pairs": _out(params, "corpus", f"{corpus}-{PARALLEL}"),
            "output": _out(params, "tokenizer", f"{corpus}-{PARALLEL}"),
            "kind": params.tokenizer.parallel,
            "settings": params.tokenizer,
        }
        for corpus in params.data.parallel
    }


def _tokenize(params: Params) -> dict[str, Arguments]:
    return {
        f"{corpus}-{kind}": {
            "corpus": _out(params, "corpus", corpus),
            "tokenizer": _out(params, "tokenizer", f"{_vocabulary(params, corpus)}-{kind}"),
            "output": _out(params, "tokens", f"{corpus}-{kind}"),
        }
        for corpus in CORPORA
        for kind in params.tokenizer.kinds
    }


def _tokenize_parallel(params: Params) -> dict[str, Arguments]:
    return {
        corpus: {
            "corpus": _out(params, "corpus", f"{corpus}-{PARALLEL}"),
            "tokenizer": _out(params, "tokenizer", f"{_vocabulary(params, corpus)}-{PARALLEL}"),
            "output": _out(params, "tokens", f"{corpus}-{PARALLEL}"),
        }
        for corpus in params.data.parallel
    }


def _vocabulary(params: Params, corpus: str) -> str:
    """The corpus whose vocabulary a corpus is cut by."""
    return params.tokenizer.domain_vocabulary if corpus == "domain" else corpus


def _pretrain(params: Params) -> dict[str, Arguments]:
    return {
        name: {
            "name": name,
            "family": settings.family or name,
            "tokens": _out(params, "tokens", f"general-{settings.tokenizer}"),
            "tokenizer": _out(params, "tokenizer", f"general-{settings.tokenizer}"),
            "output": _out(params, "encoder", name, "pretrained"),
            "preset": settings.preset,
            "model": settings.model,
            "source": settings.source,
            "digest": settings.digest,
            "training": settings.training,
            "seed": params.run.seed,
            "cluster": params.cluster,
        }
        for name, settings in params.pretrain.items()
    }


def _adapt(params: Params) -> dict[str, Arguments]:
    return {
        name: {
            "name": name,
            "family": params.pretrain[name].family or name,
            "pretrained": _out(params, "encoder", name, "pretrained"),
            "tokens": _out(params, "tokens", f"domain-{kind}"),
            "tokenizer": _out(params, "tokenizer", f"{params.tokenizer.domain_vocabulary}-{kind}"),
            "general_tokens": _out(params, "tokens", f"general-{kind}"),
            "general_corpus": _out(params, "corpus", "general-parallel" if kind == PARALLEL else "general"),
            "output": _out(params, "encoder", name, "adapted"),
            "training": settings.training,
            "seed": params.run.seed,
            "cluster": params.cluster,
        }
        for name, settings in params.adapt.items()
        if (kind := params.pretrain[name].tokenizer)
    }


def _task_tokens(params: Params) -> dict[str, Arguments]:
    return {
        f"{task}-{kind}": {
            "examples": _out(params, "examples", task),
            "tokenizer": _out(params, "tokenizer", f"{params.tokenizer.domain_vocabulary}-{kind}"),
            "output": _out(params, "task-tokens", task, kind),
        }
        for task in params.adapt_task
        for kind in params.tokenizer.kinds
    }


def _adapt_task(params: Params) -> dict[str, Arguments]:
    found: dict[str, Arguments] = {}
    for task, settings in params.adapt_task.items():
        changes = settings.model_dump(exclude={"epochs"}, exclude_none=True)
        for name in params.run.families:
            adapted = _adapt(params)[name]
            kind = params.pretrain[name].tokenizer
            found[f"{task}-{name}"] = {
                **adapted,
                "name": f"{name} {task}",
                "pretrained": adapted["output"],
                "tokens": _out(params, "task-tokens", task, kind),
                "output": _out(params, "encoder", name, f"{TASK_ADAPTED}-{task}"),
                "training": adapted["training"].model_copy(update=changes),
                "epochs": settings.epochs,
            }
    return found


def _scratch(params: Params) -> dict[str, Arguments]:
    return {
        name: {
            "family": settings.family or name,
            "tokenizer": _out(params, "tokenizer", f"{params.tokenizer.domain_vocabulary}-{settings.tokenizer}"),
            "output": _out(params, "encoder", name, "scratch"),
            "preset": settings.preset,
            "model": settings.model,
            "source": settings.source,
            "digest": settings.digest,
            "seed": params.run.seed,
        }
        for name, settings in params.pretrain.items()
    }


def _examples(params: Params) -> dict[str, Arguments]:
    return {
        task: {"task": task, "source": source, "output": _out(params, "examples", task)}
        for task, source in params.data.tasks.items()
    }


def _finetune(params: Params) -> dict[str, Arguments]:
    return {
        f"{task}-{family}-{start}": {
            "task": task,
            "family": family,
            "start": start,
            "examples": _out(params, "examples", task),
            "encoder": _out(params, "encoder", family, start),
            "output": _out(params, "finetuned", task, f"{family}-{start}"),
            "settings": params.finetune[family],
            "cluster": params.cluster,
        }
        for task in params.run.tasks
        for family in params.run.families
        for start in params.run.starts
    }


def _finetune_task_adapted(params: Params) -> dict[str, Arguments]:
    return {
        f"{task}-{family}": {
            "task": task,
            "family": family,
            "start": TASK_ADAPTED,
            "examples": _out(params, "examples", task),
            "encoder": _out(params, "encoder", family, f"{TASK_ADAPTED}-{task}"),
            "output": _out(params, "finetuned", task, f"{family}-{TASK_ADAPTED}"),
            "settings": params.finetune[family],
            "cluster": params.cluster,
        }
        for task in params.adapt_task
        for family in params.run.families
    }


def _together(params: Params) -> dict[str, Arguments]:
    return {
        f"{group}-{family}-{start}": {
            "group": group,
            "family": family,
            "start": start,
            "examples": {task: _out(params, "examples", task) for task in settings.tasks},
            "encoder": _out(params, "encoder", family, start),
            "output": _out(params, "together", group, f"{family}-{start}"),
            "settings": params.finetune[family],
            "temperature": settings.temperature,
            "cluster": params.cluster,
        }
        for group, settings in params.together.items()
        for family in params.run.families
        for start in params.run.starts
    }


def _share(params: Params) -> dict[str, Arguments]:
    return {
        f"{task}-{group}-{family}-{start}": {
            "task": task,
            "together": _out(params, "together", group, f"{family}-{start}"),
            "output": _out(params, "finetuned", task, f"{family}-{start}{WITH}{group}"),
        }
        for task in params.run.tasks
        for group in params.together
        for family in params.run.families
        for start in params.run.starts
    }


def _starts(params: Params, task: str) -> list[str]:
    """The starts that a task has systems of: those of all tasks, and its own."""
    own = [TASK_ADAPTED] if task in params.adapt_task else []
    groups = [group for group, settings in params.together.items() if task in settings.tasks]
    return [*params.run.starts, *own, *(f"{start}{WITH}{group}" for group in groups for start in params.run.starts)]


def _baseline(params: Params) -> dict[str, Arguments]:
    return {
        task: {
            "examples": _out(params, "examples", task),
            "output": _out(params, "finetuned", task, "baselines"),
        }
        for task in params.run.tasks
    }


def _evaluate(params: Params) -> dict[str, Arguments]:
    return {
        task: {
            "examples": _out(params, "examples", task),
            "finetuned": _out(params, "finetuned", task),
            "output": _out(params, "evaluation", task),
            "families": params.run.families,
            "starts": _starts(params, task),
            "settings": params.evaluate,
        }
        for task in params.run.tasks
    }


def _report(params: Params) -> dict[str, Arguments]:
    return {
        WHOLE: {
            "out": Path(params.run.out),
            "families": params.run.families,
            "tasks": params.run.tasks,
            "starts": params.run.starts,
            "output": _out(params, "report"),
        }
    }


def _register(params: Params) -> dict[str, Arguments]:
    sections: dict[str, Mapping[str, Section]] = {
        "pretrain": params.pretrain,
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
            "further": {task: _starts(params, task)[len(params.run.starts) :] for task in params.run.tasks},
            "parameters": {
                section: {family: settings.model_dump(mode="json") for family, settings in families.items()}
                for section, families in sections.items()
            },
            "metric": params.promote.metric,
        }
    }


def _promote(params: Params) -> dict[str, Arguments]:
    return {
        WHOLE: {
            "registry": params.registry,
            "rule": params.promote,
            "examples": {task: _out(params, "examples", task) for task in params.run.tasks},
            "out": Path(params.run.out),
            "seed": params.run.seed,
        }
    }


def _out(params: Params, *parts: str) -> Path:
    return Path(params.run.out, *parts)


STAGES: dict[str, Stage] = {
    "ingest": Stage("components.ingestion.stage", "IngestJob", "ingest", _ingest),
    "ingest-parallel": Stage("components.ingestion.stage", "IngestJob", "ingest", _ingest_parallel),
    "tokenizer": Stage("components.tokenization.train", "TokenizerJob", "train_tokenizer", _tokenizer),
    "tokenizer-parallel": Stage(
        "components.tokenization.train", "TokenizerJob", "train_tokenizer", _tokenizer_parallel
    ),
    "tokenize": Stage("components.tokenization.tokenize", "TokenizeJob", "tokenize", _tokenize),
    "tokenize-parallel": Stage("components.tokenization.tokenize", "TokenizeJob", "tokenize", _tokenize_parallel),
    "pretrain": Stage("components.pretraining.stage", "PretrainJob", "pretrain", _pretrain),
    "adapt": Stage("components.adaptation.stage", "AdaptJob", "adapt", _adapt),
    "task-tokens": Stage("components.tokenization.task_text", "TaskTokensJob", "task_tokens", _task_tokens),
    "adapt-task": Stage("components.adaptation.stage", "AdaptJob", "adapt", _adapt_task),
    "scratch": Stage("components.pretraining.stage", "ScratchJob", "scratch", _scratch),
    "examples": Stage("components.finetuning.examples", "ExamplesJob", "examples", _examples),
    "finetune": Stage("components.finetuning.stage", "FinetuneJob", "finetune", _finetune),
    "finetune-task-adapted": Stage("components.finetuning.stage", "FinetuneJob", "finetune", _finetune_task_adapted),
    "together": Stage("components.finetuning.together", "TogetherJob", "together", _together),
    "share": Stage("components.finetuning.together", "ShareJob", "share", _share),
    "baseline": Stage("components.finetuning.baseline", "BaselineJob", "baseline", _baseline),
    "evaluate": Stage("components.evaluation.stage", "EvaluateJob", "evaluate", _evaluate),
    "report": Stage("components.reporting.stage", "ReportJob", "report", _report),
    "register": Stage("components.registry.stage", "RegisterJob", "register", _register),
    "promote": Stage("components.registry.promote", "PromoteJob", "promote", _promote),
}


def run_stage(name: str, params: Params, *, item: str = WHOLE) -> Path:
    """Run one stage for one item and lay its numbers where dvc.yaml declares them.

    DVC takes no metrics file inside another output, so `metrics.json` and `curve.csv` (or `learning_curve.csv`) of a
    stage's directory are copied to `metrics/<stage>/<item>.json` and `curves/<stage>/<item>.csv` below the run's
    folder.

    Raises:
        ConfigError: there is no such stage or item.
    """
    if name not in STAGES:
        raise ConfigError(f"unknown stage {name!r}{nearest(name, STAGES)}")
    items = STAGES[name].items(params)
    if item not in items:
        if WHOLE in items:
            raise ConfigError(f"stage {name} has no items; found {item!r}")
        raise ConfigError(f"stage {name}: unknown item {item!r}{nearest(item, items)}")
    written = STAGES[name].run(items[item])
    for file, folder in (("metrics.json", "metrics"), ("curve.csv", "curves"), ("learning_curve.csv", "curves")):
        if (source := written / file).is_file():
            target = _out(params, folder, name, (item or name) + source.suffix)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, source.read_bytes())
    return written


def check_params(params: Params) -> None:
    """What `load_params` cannot see: model sizes that a family refuses, kinds of task, folders that do not exist.

    Raises:
        ConfigError: lists every problem.
    """
    import torch

    from components.errors import HeadstartError
    from components.finetuning.tasks import find_task
    from components.importing.stage import source_digest
    from components.importing.vocabularies import published_tokenizer
    from components.models import FAMILIES
    from components.models.encoder import build_model
    from components.scoring import deciding

    problems: list[str] = []
    for name, settings in params.pretrain.items():
        family = settings.family or name
        try:
            with torch.device("meta"):
                build_model(
                    family,
                    vocabulary=1000,
                    preset=settings.preset,
                    settings=settings.model,
                    tokenizer=params.tokenizer.parallel if settings.tokenizer == PARALLEL else settings.tokenizer,
                )
        except ConfigError as error:
            problems.append(f"pretrain.{name}: {str(error).removeprefix(f'{family}: ')}")
        if family in FAMILIES and (FAMILIES[family].objective == "translation") != (settings.tokenizer == PARALLEL):
            needed = "text, not from pairs" if settings.tokenizer == PARALLEL else "pairs; set it to parallel"
            problems.append(f"pretrain.{name}.tokenizer: {settings.tokenizer} does not fit; it learns from {needed}")
        if settings.source is None:
            continue
        if settings.preset or settings.model:
            problems.append(f"pretrain.{name}: with a source its sizes are taken over; leave out preset and model")
        try:
            if (digest := source_digest(Path(settings.source))) != settings.digest:
                problems.append(f"pretrain.{name}.digest: {settings.digest}, but {settings.source} has {digest}")
        except HeadstartError as error:
            problems.append(f"pretrain.{name}.source: {error}")
    for kind in params.tokenizer.kinds:
        published = getattr(params.tokenizer, kind, None)
        if isinstance(published, PublishedVocabulary) and published.source is not None:
            try:
                published_tokenizer(Path(published.source), kind=kind, digest=published.digest)
            except HeadstartError as error:
                problems.append(f"tokenizer.{kind}.source: {error}")
    for name in params.run.families:
        family = params.pretrain[name].family or name
        objective = FAMILIES[family].objective if family in FAMILIES else "causal"
        if params.finetune[name].lm_weight and objective in ("static", "translation"):
            problems.append(f"finetune.{name}.lm_weight: {family} predicts no pieces of a text; set it to 0")
        if params.adapt_task and params.pretrain[name].tokenizer == PARALLEL:
            problems.append(f"adapt_task: {name} learns from pairs, and a task has none; leave it out of run.families")
        if params.together and params.finetune[name].method != "finetune":
            problems.append(f"finetune.{name}.method: tasks that learn together need finetune, an encoder that learns")
    metric = params.promote.metric
    for task in params.run.tasks:
        found = params.data.tasks[task].kind
        try:
            find_task(found, key=f"data.tasks.{task}.kind")
            if metric is not None and metric not in (known := deciding(found)):
                problems.append(f"promote.metric: {metric!r} is no score of {task} ({found}){nearest(metric, known)}")
        except ConfigError as error:
            problems.append(str(error))
    folders = {f"data.{corpus}.path": getattr(params.data, corpus).path for corpus in CORPORA}
    folders |= {f"data.parallel.{corpus}.path": source.path for corpus, source in params.data.parallel.items()}
    folders |= {f"data.tasks.{task}.path": params.data.tasks[task].path for task in params.run.tasks}
    problems += [
        f"{key}: {path} does not exist; `headstart data` makes the built-in data, or put your own files there"
        for key, path in folders.items()
        if not Path(path).exists()
    ]
    problems += [
        f"data.tasks.{task}.{split}: {path} does not exist"
        for task in params.run.tasks
        if Path((source := params.data.tasks[task]).path).exists()
        for split in SPLITS
        for file in source.files(split)
        if not (path := Path(source.path) / file.partition("#")[0]).exists()
    ]
    if problems:
        raise ConfigError(f"{len(problems)} problem(s)\n" + "\n".join(f"  {problem}" for problem in problems))
