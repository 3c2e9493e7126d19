"""The settings of a run as arguments of each stage's jobs.

One function per stage: settings -> item -> arguments of the job. An item is what dvc.yaml calls `${key}`. The paths
that a stage reads and writes are in dvc.yaml too; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.settings.names import AFTER, TASK_ADAPTED, WITH
from components.settings.params import Params
from components.settings.section import Section
from components.settings.tokenizer import TokenizerSettings

CORPORA = ("general", "domain")
#: `pretrain.<family>.tokenizer` of families that are trained on pairs of texts; also the suffix of the directories of
#: pairs.
PARALLEL = "parallel"
#: Name of the item of a stage with a single item.
WHOLE = ""
Arguments = Mapping[str, Any]


def identity(params: Params) -> dict[str, Arguments]:
    """The single job, which reads all settings."""
    return {WHOLE: {"params": params, "output": out(params, "identity")}}


def checks(params: Params) -> dict[str, Arguments]:
    """The single job."""
    corpora = {corpus: getattr(params.data, corpus) for corpus in CORPORA}
    pairs = {f"{corpus}-{PARALLEL}": source for corpus, source in params.data.parallel.items()}
    return {
        WHOLE: {
            "corpora": corpora | pairs,
            "tasks": {task: params.data.tasks[task] for task in params.run.tasks},
            "settings": params.checks,
            "output": out(params, "checks"),
        }
    }


def ingest(params: Params) -> dict[str, Arguments]:
    """One job per corpus."""
    return {
        corpus: {
            "name": corpus,
            "source": getattr(params.data, corpus),
            "settings": params.ingest,
            "output": out(params, "corpus", corpus),
        }
        for corpus in CORPORA
    }


def ingest_parallel(params: Params) -> dict[str, Arguments]:
    """One job per corpus of pairs."""
    return {
        corpus: {
            "name": f"{corpus} pairs",
            "source": source,
            "settings": params.ingest,
            "output": out(params, "corpus", f"{corpus}-{PARALLEL}"),
        }
        for corpus, source in params.data.parallel.items()
    }


def tokenizer(params: Params) -> dict[str, Arguments]:
    """One job per corpus and kind of tokenizer."""
    return {
        f"{corpus}-{kind}": {
            "corpus": out(params, "corpus", corpus),
            "output": out(params, "tokenizer", f"{corpus}-{kind}"),
            "record": out(params, "vocabulary", f"{corpus}-{kind}"),
            "kind": kind,
            "settings": _tokenizer_settings(params, kind),
        }
        for corpus in CORPORA
        for kind in params.tokenizer.kinds
    }


def _tokenizer_settings(params: Params, kind: str) -> TokenizerSettings:
    """The settings that the vocabulary of one kind depends on; the settings of other kinds are reset to defaults."""
    block = "word" if kind == "open_word" else kind
    kept = params.tokenizer.model_dump(include={"segmenter", "sample_megabytes", "refit", block})
    return TokenizerSettings.model_validate(kept)


def tokenizer_parallel(params: Params) -> dict[str, Arguments]:
    """One job per corpus of pairs."""
    return {
        corpus: {
            "corpus": out(params, "corpus", corpus),
            "pairs": out(params, "corpus", f"{corpus}-{PARALLEL}"),
            "output": out(params, "tokenizer", f"{corpus}-{PARALLEL}"),
            "kind": params.tokenizer.parallel,
            "settings": _tokenizer_settings(params, params.tokenizer.parallel),
        }
        for corpus in params.data.parallel
    }


def tokenize(params: Params) -> dict[str, Arguments]:
    """One job per corpus and kind of tokenizer."""
    return {
        f"{corpus}-{kind}": {
            "corpus": out(params, "corpus", corpus),
            "tokenizer": out(params, "tokenizer", f"{_vocabulary(params, corpus)}-{kind}"),
            "output": out(params, "tokens", f"{corpus}-{kind}"),
        }
        for corpus in CORPORA
        for kind in params.tokenizer.kinds
    }


def tokenize_parallel(params: Params) -> dict[str, Arguments]:
    """One job per corpus of pairs."""
    return {
        corpus: {
            "corpus": out(params, "corpus", f"{corpus}-{PARALLEL}"),
            "tokenizer": out(params, "tokenizer", f"{_vocabulary(params, corpus)}-{PARALLEL}"),
            "output": out(params, "tokens", f"{corpus}-{PARALLEL}"),
        }
        for corpus in params.data.parallel
    }


def ngrams(params: Params) -> dict[str, Arguments]:
    """One job per corpus and kind of tokenizer."""
    return {
        f"{corpus}-{kind}": {
            "tokens": out(params, "tokens", f"{corpus}-{kind}"),
            "output": out(params, "ngrams", f"{corpus}-{kind}"),
            "settings": params.ngrams,
            "characters": kind == "char",
            "models": {
                name: {
                    "family": params.pretrain[name].family or name,
                    "preset": params.pretrain[name].preset,
                    "model": params.pretrain[name].model,
                    "batch_size": block.training.batch_size,
                    "window": block.training.window,
                }
                for name, block in (params.pretrain if corpus == "general" else params.adapt).items()
                if params.pretrain[name].tokenizer == kind
            },
        }
        for corpus in CORPORA
        for kind in params.tokenizer.kinds
    }


def _vocabulary(params: Params, corpus: str) -> str:
    """The corpus on which the vocabulary of `corpus` is trained."""
    return params.tokenizer.domain_vocabulary if corpus == "domain" else corpus


def pretrain(params: Params) -> dict[str, Arguments]:
    """One job per block of `pretrain`."""
    return {
        name: {
            "name": name,
            "family": settings.family or name,
            "tokens": out(params, "tokens", f"general-{settings.tokenizer}"),
            "tokenizer": out(params, "tokenizer", f"general-{settings.tokenizer}"),
            "output": out(params, "encoder", name, "pretrained"),
            "preset": settings.preset,
            "model": settings.model,
            "source": settings.source,
            "digest": settings.digest,
            "vectors": settings.vectors,
            "vectors_digest": settings.vectors_digest,
            "training": settings.training,
            "seed": params.run.seed,
            "cluster": params.cluster,
        }
        for name, settings in params.pretrain.items()
    }


def adapt(params: Params) -> dict[str, Arguments]:
    """One job per block of `adapt`."""
    return {
        name: {
            "name": name,
            "family": params.pretrain[name].family or name,
            "pretrained": out(params, "encoder", name, "pretrained"),
            "tokens": out(params, "tokens", f"domain-{kind}"),
            "tokenizer": out(params, "tokenizer", f"{params.tokenizer.domain_vocabulary}-{kind}"),
            "general_tokens": out(params, "tokens", f"general-{kind}"),
            "general_corpus": out(params, "corpus", "general-parallel" if kind == PARALLEL else "general"),
            "output": out(params, "encoder", name, "adapted"),
            "training": settings.training,
            "replay": settings.replay,
            "increment": settings.increment,
            "seed": params.run.seed,
            "cluster": params.cluster,
        }
        for name, settings in params.adapt.items()
        if (kind := params.pretrain[name].tokenizer)
    }


def task_tokens(params: Params) -> dict[str, Arguments]:
    """One job per task of `adapt_task` and kind of tokenizer."""
    return {
        f"{task}-{kind}": {
            "examples": out(params, "examples", task),
            "tokenizer": out(params, "tokenizer", f"{params.tokenizer.domain_vocabulary}-{kind}"),
            "output": out(params, "task-tokens", task, kind),
        }
        for task in params.adapt_task
        for kind in params.tokenizer.kinds
    }


def adapt_task(params: Params) -> dict[str, Arguments]:
    """One job per task of `adapt_task` and family of the run."""
    found: dict[str, Arguments] = {}
    for task, settings in params.adapt_task.items():
        changes = settings.model_dump(exclude={"epochs"}, exclude_none=True)
        for name in params.run.families:
            adapted = adapt(params)[name]
            kind = params.pretrain[name].tokenizer
            found[f"{task}-{name}"] = {
                **adapted,
                "name": f"{name} {task}",
                "pretrained": adapted["output"],
                # The tokenizer of the adapted encoder; the task's texts are encoded with it too.
                "tokenizer": adapted["output"] / "tokenizer",
                "tokens": out(params, "task-tokens", task, kind),
                "output": out(params, "encoder", name, f"{TASK_ADAPTED}-{task}"),
                "training": adapted["training"].model_copy(update=changes),
                # The texts of a task are few, and the adapted model from which it starts is another one.
                "increment": None,
                "replay": 0.0,
                "epochs": settings.epochs,
            }
    return found


def scratch(params: Params) -> dict[str, Arguments]:
    """One job per block of `pretrain`."""
    return {
        name: {
            "family": settings.family or name,
            "tokenizer": out(params, "tokenizer", f"{params.tokenizer.domain_vocabulary}-{settings.tokenizer}"),
            "output": out(params, "encoder", name, "scratch"),
            "preset": settings.preset,
            "model": settings.model,
            "source": settings.source,
            "digest": settings.digest,
            "seed": params.run.seed,
        }
        for name, settings in params.pretrain.items()
    }


def static(params: Params, start: str) -> dict[str, Arguments]:
    """One job per block of `static`, for one initialisation of its teacher."""
    return {
        name: {
            "name": name,
            "teacher": out(params, "encoder", settings.teacher, start),
            "corpus": out(params, "corpus", "domain"),
            "output": out(params, "encoder", name, start),
            "settings": settings,
            "word": params.tokenizer.word,
            "segmenter": params.tokenizer.segmenter,
            "sample_megabytes": params.tokenizer.sample_megabytes,
            "seed": params.run.seed,
        }
        for name, settings in params.static.items()
        if start != "adapted" or settings.teacher in params.adapt
    }


def static_pretrained(params: Params) -> dict[str, Arguments]:
    """`static` of the pretrained teachers."""
    return static(params, "pretrained")


def static_adapted(params: Params) -> dict[str, Arguments]:
    """`static` of the adapted teachers."""
    return static(params, "adapted")


def static_scratch(params: Params) -> dict[str, Arguments]:
    """`static` of the teachers with random weights."""
    return static(params, "scratch")


def stacked(params: Params, start: str) -> dict[str, Arguments]:
    """One job per block of `stacked`, for one initialisation of its parts."""
    return {
        name: {
            "first": out(params, "encoder", settings.of[0], start),
            "second": out(params, "encoder", settings.of[1], start),
            "output": out(params, "encoder", name, start),
            "settings": settings,
        }
        for name, settings in params.stacked.items()
        if start != "adapted" or all(one in params.adapt for one in params.origins(name) if one in params.pretrain)
    }


def stacked_pretrained(params: Params) -> dict[str, Arguments]:
    """`stacked` of the pretrained parts."""
    return stacked(params, "pretrained")


def stacked_adapted(params: Params) -> dict[str, Arguments]:
    """`stacked` of the adapted parts."""
    return stacked(params, "adapted")


def stacked_scratch(params: Params) -> dict[str, Arguments]:
    """`stacked` of the parts with random weights."""
    return stacked(params, "scratch")


def examples(params: Params) -> dict[str, Arguments]:
    """One job per task in `data.tasks`."""
    return {
        task: {"task": task, "source": source, "output": out(params, "examples", task)}
        for task, source in params.data.tasks.items()
    }


def finetune(params: Params) -> dict[str, Arguments]:
    """One job per task, family and initialisation of the run."""
    return {
        f"{task}-{family}-{start}": _finetuned(params, task, family, start, encoder=start)
        for task in params.run.tasks
        for family in params.run.families
        for start in params.run.starts
    }


def finetune_task_adapted(params: Params) -> dict[str, Arguments]:
    """One job per task of `adapt_task` and family of the run."""
    return {
        f"{task}-{family}": _finetuned(params, task, family, TASK_ADAPTED, encoder=f"{TASK_ADAPTED}-{task}")
        for task in params.adapt_task
        for family in params.run.families
    }


def _finetuned(params: Params, task: str, family: str, start: str, *, encoder: str) -> Arguments:
    return {
        "task": task,
        "family": family,
        "start": start,
        "examples": out(params, "examples", task),
        "encoder": out(params, "encoder", family, encoder),
        "unlabelled": out(params, "unlabelled", task, family),
        "output": out(params, "finetuned", task, f"{family}-{start}"),
        "settings": params.finetune[family],
        "cluster": params.cluster,
    }


def intermediate(params: Params) -> dict[str, Arguments]:
    """One job per intermediate task, family and initialisation of the run."""
    return {
        f"{source}-{family}-{start}": {
            "source": source,
            "finetuned": out(params, "finetuned", source, f"{family}-{start}"),
            "output": out(params, "encoder", family, f"{start}{AFTER}{source}"),
        }
        for source in params.intermediate_tasks
        for family in params.run.families
        for start in params.run.starts
    }


def finetune_after(params: Params) -> dict[str, Arguments]:
    """One job per task, intermediate task, family and initialisation of the run."""
    return {
        f"{task}-{source}-{family}-{start}": {
            **_finetuned(params, task, family, f"{start}{AFTER}{source}", encoder=f"{start}{AFTER}{source}"),
            "source": source,
        }
        for task in params.run.tasks
        for source in params.intermediate_tasks
        for family in params.run.families
        for start in params.run.starts
    }


def unlabelled(params: Params) -> dict[str, Arguments]:
    """One job per task and family of the run."""
    return {
        f"{task}-{family}": {
            "task": task,
            "family": family,
            "examples": out(params, "examples", task),
            "corpus": out(params, "corpus", "domain"),
            "settings": params.finetune[family].unlabelled,
            "output": out(params, "unlabelled", task, family),
        }
        for task in params.run.tasks
        for family in params.run.families
    }


def together(params: Params) -> dict[str, Arguments]:
    """One job per group of `together`, family and initialisation."""
    return {
        f"{group}-{family}-{start}": {
            "group": group,
            "family": family,
            "start": start,
            "examples": {task: out(params, "examples", task) for task in settings.tasks},
            "encoder": out(params, "encoder", family, start),
            "output": out(params, "together", group, f"{family}-{start}"),
            "settings": params.finetune[family],
            "temperature": settings.temperature,
            "cluster": params.cluster,
        }
        for group, settings in params.together.items()
        for family in params.run.families
        for start in params.run.starts
    }


def share(params: Params) -> dict[str, Arguments]:
    """One job per task, group of `together`, family and initialisation."""
    return {
        f"{task}-{group}-{family}-{start}": {
            "task": task,
            "together": out(params, "together", group, f"{family}-{start}"),
            "output": out(params, "finetuned", task, f"{family}-{start}{WITH}{group}"),
        }
        for task in params.run.tasks
        for group in params.together
        for family in params.run.families
        for start in params.run.starts
    }


def _starts(params: Params, task: str) -> list[str]:
    """The initialisations of a task's systems: those common to all tasks, and those specific to this task."""
    own = [TASK_ADAPTED] if task in params.adapt_task else []
    own += [
        f"{start}{AFTER}{source}"
        for source in params.intermediate_tasks
        if source != task
        for start in params.run.starts
    ]
    groups = [group for group, settings in params.together.items() if task in settings.tasks]
    return [*params.run.starts, *own, *(f"{start}{WITH}{group}" for group in groups for start in params.run.starts)]


def baseline(params: Params) -> dict[str, Arguments]:
    """One job per task of the run."""
    return {
        task: {
            "examples": out(params, "examples", task),
            "output": out(params, "finetuned", task, "baselines"),
        }
        for task in params.run.tasks
    }


def evaluate(params: Params) -> dict[str, Arguments]:
    """One job per task of the run."""
    return {
        task: {
            "examples": out(params, "examples", task),
            "finetuned": out(params, "finetuned", task),
            "output": out(params, "evaluation", task),
            "families": params.run.families,
            "starts": _starts(params, task),
            "settings": params.evaluate,
        }
        for task in params.run.tasks
    }


def leakage(params: Params) -> dict[str, Arguments]:
    """One job per task of the run."""
    return {
        task: _leakage(params, task, [start for start in _starts(params, task) if WITH not in start], others=())
        for task in params.run.tasks
    }


def leakage_together(params: Params) -> dict[str, Arguments]:
    """One job per task of the run and group of `together`."""
    return {
        f"{task}-{group}": _leakage(
            params, task, [f"{start}{WITH}{group}" for start in params.run.starts], others=settings.tasks, group=group
        )
        for task in params.run.tasks
        for group, settings in params.together.items()
    }


def _leakage(
    params: Params, task: str, starts: Sequence[str], *, others: Sequence[str], group: str = ""
) -> dict[str, Any]:
    systems = {(family, start): f"{family}-{start}" for family in params.run.families for start in starts}
    # Systems without a language model have seen the train rows only.
    baselines = {} if group else {"baselines": [f"train/{task}"]}
    return {
        "task": task,
        "examples": out(params, "examples", task),
        "others": {name: out(params, "examples", name) for name in others if name != task},
        "corpus": out(params, "corpus"),
        "systems": {system: _seen(params, task, *key, others) for key, system in systems.items()} | baselines,
        "unknown": {
            system: [family]
            for (family, start), system in systems.items()
            if (block := params.block(family)) is not None and block.published and not start.startswith("scratch")
        },
        "settings": params.leakage,
        "near": params.ingest.near_duplicates,
        "output": out(params, "leakage", f"{task}{WITH}{group}" if group else task),
    }


def _seen(params: Params, task: str, family: str, start: str, others: Sequence[str]) -> list[str]:
    """What a system and its ancestors were trained on: `corpus/<name>`, and `train/<task>` for train rows."""
    block = params.block(family)
    assert block is not None  # the settings are checked when they are loaded
    suffix = f"-{PARALLEL}" if block.tokenizer == PARALLEL else ""
    corpora = {
        "scratch": (),
        "pretrained": ("general",),
        "adapted": ("general", "domain"),
        TASK_ADAPTED: ("general", "domain"),
    }[start.partition(WITH)[0].partition(AFTER)[0]]
    read = [f"corpus/{corpus}{suffix}" for corpus in corpora if corpus != "general" or not block.published]
    free = params.finetune[family].unlabelled
    if free is not None and free.source != "task" and WITH not in start and "corpus/domain" not in read:
        read.append("corpus/domain")
    computed = {family, *params.origins(family)} & params.static.keys()
    if computed and "corpus/domain" not in read:
        # The words and frequencies of static vectors are those of the domain corpus.
        read.append("corpus/domain")
    _, _, source = start.partition(AFTER)
    return read + [f"train/{name}" for name in dict.fromkeys([task, *others, *filter(None, [source])])]


def report(params: Params) -> dict[str, Arguments]:
    """The single job."""
    return {
        WHOLE: {
            "out": Path(params.run.out),
            "families": params.run.families,
            "tasks": params.run.tasks,
            "starts": params.run.starts,
            "adapt_task": list(params.adapt_task),
            "parents": _parents(params),
            "data": _data(params),
            "output": out(params, "report"),
        }
    }


def register(params: Params) -> dict[str, Arguments]:
    """The single job."""
    sections: dict[str, Mapping[str, Section]] = {
        "pretrain": params.pretrain,
        "static": params.static,
        "stacked": params.stacked,
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
            "parents": _parents(params),
            "metric": params.promote.metric,
            "data": _data(params),
        }
    }


def promote(params: Params) -> dict[str, Arguments]:
    """The single job."""
    return {
        WHOLE: {
            "registry": params.registry,
            "rule": params.promote,
            "examples": {task: out(params, "examples", task) for task in params.run.tasks},
            "out": Path(params.run.out),
        }
    }


def _parents(params: Params) -> dict[str, list[str]]:
    """Computed blocks of the run, and those that they are computed from -> the blocks that they are computed from."""
    names = [*params.run.families, *(one for name in params.run.families for one in params.origins(name))]
    found = {name: params.block(name) for name in names}
    return {name: list(block.parents) for name, block in found.items() if block is not None and block.parents}


def _data(params: Params) -> dict[str, Path]:
    """Output (relative to the run's folder) of each stage that reads raw data -> path of the data."""
    corpora = {f"corpus/{corpus}": getattr(params.data, corpus).path for corpus in CORPORA}
    parallel = {f"corpus/{corpus}-{PARALLEL}": source.path for corpus, source in params.data.parallel.items()}
    tasks = {f"examples/{task}": params.data.tasks[task].path for task in params.run.tasks}
    return {name: Path(path) for name, path in (corpora | parallel | tasks).items()}


def out(params: Params, *parts: str) -> Path:
    """A path in the run's output folder."""
    return Path(params.run.out, *parts)
