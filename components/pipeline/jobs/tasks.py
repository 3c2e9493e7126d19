"""Jobs of the stages of a task: examples, fine-tuning, baselines, evaluation, leakage."""

from collections.abc import Sequence
from itertools import product
from typing import Any, Final

from components.pipeline.jobs import PARALLEL, Arguments, out
from components.pipeline.jobs.encoders import text_of_vectors
from components.settings.finetune import DistilSettings
from components.settings.params import Params
from components.settings.section import BASELINES, VECTORS
from components.settings.systems import TASK_ADAPTED, System
from components.settings.tasks import TextSource

#: Maximum number of texts without labels that words models are fitted on.
FOR_WORDS: Final = 25_000
#: Maximum number of texts without labels that teachers label.
FOR_DISTIL: Final = 4_000


def examples(params: Params) -> dict[str, Arguments]:
    """Reads and checks labelled data."""
    return {
        task: {
            "task": task,
            "source": params.data.tasks[task],
            "output": out(params, "examples", task),
            "record": out(params, "judged", task),
        }
        for task in params.run.tasks
    }


def finetune(params: Params) -> dict[str, Arguments]:
    """Fine-tunes task models at every label budget and seed from one initialisation."""
    return {
        f"{task}-{family}-{start}": _finetuned(params, task, System(family, start), encoder=start)
        for task in params.run.tasks
        for family, start in _systems(params)
    }


def _systems(params: Params) -> list[tuple[str, str]]:
    return list(product(params.run.families, params.run.starts))


def finetune_task_adapted(params: Params) -> dict[str, Arguments]:
    """Fine-tunes from the model that was adapted to the task's texts."""
    return {
        f"{task}-{family}": _finetuned(params, task, System(family, TASK_ADAPTED), encoder=f"{TASK_ADAPTED}-{task}")
        for task in params.adapt_task
        for family in params.run.families
    }


def _finetuned(params: Params, task: str, system: System, *, encoder: str) -> Arguments:
    family = system.family
    return {
        "task": task,
        "family": family,
        "start": system.variant,
        "examples": out(params, "examples", task),
        "encoder": out(params, "encoder", family, encoder),
        "words": out(params, "unlabelled", task, BASELINES),
        "baselines": out(params, "finetuned", task, BASELINES),
        "output": out(params, "finetuned", task, str(system)),
        "settings": params.finetune[family],
        "cluster": params.cluster,
    }


def intermediate(params: Params) -> dict[str, Arguments]:
    """Extracts the encoder of a model that was fine-tuned on another task."""
    return {
        f"{source}-{family}-{start}": {
            "source": source,
            "finetuned": out(params, "finetuned", source, f"{family}-{start}"),
            "output": out(params, "encoder", family, System(family, start, "after", source).variant),
        }
        for source in params.intermediate_tasks
        for family, start in _systems(params)
    }


def finetune_after(params: Params) -> dict[str, Arguments]:
    """Fine-tunes from the encoder of another task's model."""
    return {
        f"{task}-{source}-{family}-{start}": {
            **_finetuned(params, task, system, encoder=system.variant),
            "source": source,
        }
        for task in params.run.tasks
        for source in params.intermediate_tasks
        for family, start in _systems(params)
        for system in [System(family, start, "after", source)]
    }


def unlabelled(params: Params) -> dict[str, Arguments]:
    """Collects texts without labels for words models. Texts of dev and test are left out."""
    return {
        f"{task}-{BASELINES}": {
            **_collected(params, task, "words", "domain" if params.words_read_documents(task) else None),
            "rows": FOR_WORDS,
            "output": out(params, "unlabelled", task, BASELINES),
        }
        for task in params.run.tasks
    }


def distil_texts(params: Params) -> dict[str, Arguments]:
    """Collects texts without labels for teachers and students. Texts of dev and test are left out."""
    return {
        f"{task}-{group}": {
            **_collected(params, task, f"distil.{group}", settings.source),
            "rows": FOR_DISTIL,
            "output": out(params, "distilled", task, group, "texts"),
        }
        for task in params.run.tasks
        for group, settings in params.distil.items()
    }


def _collected(params: Params, task: str, key: str, which: TextSource | None) -> Arguments:
    # `key` names the settings in messages.
    return {
        "task": task,
        "key": key,
        "examples": out(params, "examples", task),
        "corpus": out(params, "corpus", "domain") if "domain" in params.corpora else None,
        "which": which,
    }


def teach(params: Params) -> dict[str, Arguments]:
    """Labels texts with a fine-tuned model, at every label budget, seed and fold."""
    return {
        f"{task}-{group}-{family}-{start}": {
            **_finetuned(params, task, System(family, start), encoder=start),
            **_distilled(params, task, group),
            "finetuned": out(params, "finetuned", task, f"{family}-{start}"),
            "output": out(params, "distilled", task, group, f"{family}-{start}"),
        }
        for task in params.run.tasks
        for group in params.distil
        for family, start in _systems(params)
    }


def distil(params: Params) -> dict[str, Arguments]:
    """Trains a student on the predictions of its teachers."""
    return {
        f"{task}-{group}-{family}-{start}": {
            **_finetuned(params, task, System(family, start, "from", group), encoder=start),
            **_distilled(params, task, group),
            "student": f"{family}-{start}",
            "taught": out(params, "distilled", task, group),
        }
        for task in params.run.tasks
        for group in params.distil
        for family, start in _systems(params)
    }


def _distilled(params: Params, task: str, group: str) -> Arguments:
    return {"group": group, "distil": params.distil[group], "texts": out(params, "distilled", task, group, "texts")}


def students_of(params: Params) -> list[System]:
    return [
        System(family, start, "from", group)
        for group, settings in params.distil.items()
        for family, start in _systems(params)
        if f"{family}-{start}" in settings.students
    ]


def together(params: Params) -> dict[str, Arguments]:
    """Trains one encoder with a head per task, at every label budget and seed."""
    return {
        f"{group}-{family}-{start}": {
            "group": group,
            "family": family,
            "start": start,
            "examples": {task: out(params, "examples", task) for task in settings.tasks},
            **{
                name: {task: out(params, of, task, BASELINES) for task in settings.tasks if task in params.run.tasks}
                for name, of in (("words", "unlabelled"), ("baselines", "finetuned"))
            },
            "encoder": out(params, "encoder", family, start),
            "output": out(params, "together", group, f"{family}-{start}"),
            "settings": params.finetune[family],
            "temperature": settings.temperature,
            "cluster": params.cluster,
        }
        for group, settings in params.together.items()
        for family, start in _systems(params)
    }


def share(params: Params) -> dict[str, Arguments]:
    """Extracts a task's results of multi-task learning."""
    return {
        f"{task}-{group}-{family}-{start}": {
            "task": task,
            "together": out(params, "together", group, f"{family}-{start}"),
            "output": out(params, "finetuned", task, str(System(family, start, "with", group))),
        }
        for task in params.run.tasks
        for group in params.together
        for family, start in _systems(params)
    }


def starts_of(params: Params, task: str) -> list[str]:
    """The initialisations of a task's systems: those common to all tasks, and those specific to this task."""
    further = [TASK_ADAPTED] if task in params.adapt_task else []
    further += [
        System("", start, "after", source).variant
        for source in params.intermediate_tasks
        if source != task
        for start in params.run.starts
    ]
    groups = [group for group, settings in params.together.items() if task in settings.tasks]
    together = [System("", start, "with", group).variant for group in groups for start in params.run.starts]
    return [*params.run.starts, *further, *together]


def baseline(params: Params) -> dict[str, Arguments]:
    """Trains TF-IDF with logistic regression and other baselines."""
    return {
        task: {
            "examples": out(params, "examples", task),
            "output": out(params, "finetuned", task, BASELINES),
            "unlabelled": out(params, "unlabelled", task, BASELINES),
        }
        for task in params.run.tasks
    }


def evaluate(params: Params) -> dict[str, Arguments]:
    """Computes scores with intervals, benefits of transfer, calibration, slices."""
    return {
        task: {
            "examples": out(params, "examples", task),
            "finetuned": out(params, "finetuned", task),
            "output": out(params, "evaluation", task),
            "families": params.run.families,
            "starts": starts_of(params, task),
            "students": [str(student) for student in students_of(params)],
            "settings": params.evaluate,
        }
        for task in params.run.tasks
    }


def leakage(params: Params) -> dict[str, Arguments]:
    """Searches the texts of dev and test in the corpora and train rows."""
    return {
        task: _leakage(
            params,
            task,
            [
                system
                for family in params.run.families
                for start in starts_of(params, task)
                if (system := System.of(family, start)).way != "with"
            ]
            + students_of(params),
            others=(),
        )
        for task in params.run.tasks
    }


def leakage_together(params: Params) -> dict[str, Arguments]:
    """Searches the texts of dev and test in what models of several tasks were trained on."""
    return {
        f"{task}-{group}": _leakage(
            params,
            task,
            [System(family, start, "with", group) for family, start in _systems(params)],
            others=settings.tasks,
            group=group,
        )
        for task in params.run.tasks
        for group, settings in params.together.items()
    }


def _leakage(
    params: Params, task: str, systems: Sequence[System], *, others: Sequence[str], group: str = ""
) -> dict[str, Any]:
    documents = ["corpus/domain"] if params.words_read_documents(task) else []
    baselines = {} if group else {BASELINES: [*documents, f"train/{task}"]}
    return {
        "task": task,
        "examples": out(params, "examples", task),
        "others": {name: out(params, "examples", name) for name in others if name != task},
        "corpus": out(params, "corpus") if params.corpora else None,
        "systems": {str(system): _seen(params, task, system, others) for system in systems} | baselines,
        "unknown": {str(system): published for system in systems if (published := _published(params, system))},
        "settings": params.leakage,
        "near": params.ingest.near_duplicates,
        "output": out(params, "leakage", f"{task}-with-{group}" if group else task),
        "cluster": params.cluster,
    }


def _taught(params: Params, system: System) -> DistilSettings | None:
    return params.distil[system.group] if system.way == "from" else None


def _teachers(params: Params, system: System) -> list[System]:
    group = _taught(params, system)
    teachers = [System(family, start) for family, start in _systems(params)]
    return [teacher for teacher in teachers if group is not None and str(teacher) in group.teachers]


def _published(params: Params, system: System) -> list[str]:
    # The training text of imported models is unknown.
    return [
        ancestor.family
        for ancestor in dict.fromkeys([system, *_teachers(params, system)])
        if (block := params.block(ancestor.family)) is not None and block.published and ancestor.start != "scratch"
    ]


def _has_static_channel(params: Params, family: str) -> bool:
    """Whether a block, or one that it is computed from, has word vectors of the text that are not trained."""
    named = (params.pretrain.get(name) for name in (family, *params.origins(family)))
    return any(block is not None and bool(block.model.get("static")) and block.vectors is None for block in named)


def _seen(params: Params, task: str, system: System, others: Sequence[str]) -> list[str]:
    """What a system, its ancestors and its teachers were trained on: `corpus/<name>`, `train/<task>`."""
    family = system.family
    block = params.block(family)
    assert block is not None  # the settings are checked when they are loaded
    suffix = f"-{PARALLEL}" if block.tokenizer == PARALLEL else ""
    first = params.pretraining_corpus
    corpora = {
        "scratch": (text_of_vectors(params),) if _has_static_channel(params, family) else (),
        VECTORS: (text_of_vectors(params),),
        "pretrained": (first,),
        "adapted": (first, "domain"),
        TASK_ADAPTED: (first, "domain"),
    }[system.start]
    if block.published:
        # An imported encoder has not been pretrained here.
        corpora = corpora[1:]
    read = [f"corpus/{corpus}{suffix}" for corpus in dict.fromkeys(corpora)]
    computed = {family, *params.origins(family)} & params.static.keys()
    if computed and "corpus/domain" not in read:
        # The words and frequencies of static vectors come from the domain corpus.
        read.append("corpus/domain")
    for teacher in _teachers(params, system):
        read += [source for source in _seen(params, task, teacher, ()) if source not in [*read, f"train/{task}"]]
    group = _taught(params, system)
    if group is not None and group.source != "task" and "corpus/domain" not in read:
        read.append("corpus/domain")
    sources = [system.group] if system.way == "after" else []
    return read + [f"train/{name}" for name in dict.fromkeys([task, *others, *sources])]
