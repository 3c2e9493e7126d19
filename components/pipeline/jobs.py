"""The settings of a run as arguments of each stage's jobs: names of items, and values that several stages share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from components.core.errors import ConfigError
from components.settings.params import Params
from components.settings.section import VECTORS
from components.settings.systems import TASK_ADAPTED, System, Way
from components.settings.tasks import TextSource
from components.settings.tokenizer import TokenizerSettings

#: `pretrain.<family>.tokenizer` of families that are trained on pairs of texts; also the suffix of the directories of
#: pairs.
PARALLEL = "parallel"
#: Kind of the vocabulary that both sides of pairs share.
PAIRS_KIND = "word"
#: How names of texts without labels begin.
UNLABELLED: Final = "unlabelled-"
#: Name of the item of a stage with a single item.
WHOLE = ""
#: Maximum number of texts without labels that words models are fitted on, and that teachers label.
FOR_WORDS: Final = 25_000
FOR_DISTIL: Final = 4_000
Arguments = Mapping[str, Any]
#: Variables of an item: task, family, start, corpus, kind, group ...
Names = Mapping[str, str]
#: A path below the run's folder with variables of the item, as in `examples/{task}`; or a function of both.
Value = str | Callable[[Params, Names], Any]


def out(params: Params, *parts: str) -> Path:
    """A path in the run's output folder."""
    return Path(params.run.out, *parts)


def each(
    names: Callable[[Params], Iterable[Names]], item: str, *shared: str, **given: Value
) -> Callable[[Params], dict[str, Arguments]]:
    """The items of a stage: name -> arguments.

    Args:
        names: the variables of every item.
        item: name of an item, with variables.
        shared: arguments that are variables of the item, or in `SHARED`.
        given: argument -> value.
    """

    values = {name: _named(name) for name in shared} | given
    return lambda params: {
        item.format(**variables): {name: _of(value, params, variables) for name, value in values.items()}
        for variables in names(params)
    }


def joined(*parts: Callable[[Params], Mapping[str, Arguments]]) -> Callable[[Params], dict[str, Arguments]]:
    """The items of one stage from several parts; a ConfigError if two of them have the same name."""

    def items(params: Params) -> dict[str, Arguments]:
        collected: dict[str, Arguments] = {}
        for name, arguments in (item for part in parts for item in part(params).items()):
            if name in collected:
                raise ConfigError(f"two items of a stage have the name {name!r}; rename a task, a block or a group")
            collected[name] = arguments
        return collected

    return items


def _named(name: str) -> Value:
    return lambda params, names: names[name] if name in names else _of(SHARED[name], params, names)


def _of(value: Value, params: Params, names: Names) -> Any:
    return out(params, value.format(**names)) if isinstance(value, str) else value(params, names)


def text(template: str) -> Value:
    """A text with variables of the item."""
    return lambda _, names: template.format(**names)


def at(key: str) -> Value:
    """The value of a dotted key of the settings, with variables of the item: `finetune.{family}`."""

    def value(params: Params, names: Names) -> Any:
        result: Any = params
        for part in key.format(**names).split("."):
            result = result[part] if isinstance(result, Mapping) else getattr(result, part)
        return result

    return value


def every(template: str, values: Callable[[Params, Names], Iterable[str]], *, of: str = "task") -> Value:
    """Value of the variable `of` -> path, for each of some tasks, or of some values of another variable."""
    return lambda params, names: {
        value: out(params, template.format(**{**names, of: value})) for value in values(params, names)
    }


def over(**lists: str) -> Callable[[Params], Iterator[Names]]:
    """The variables of items: every combination of the names in lists of the settings, as in `task="run.tasks"`."""
    return lambda params: (
        dict(zip(lists, names, strict=True)) for names in product(*(attrgetter(key)(params) for key in lists.values()))
    )


#: Task of the run -> texts of the rows on which its scores are computed.
judged = every("judged/{task}", lambda params, _: params.run.tasks)


def whole(_: Params) -> list[Names]:
    """A single item without variables."""
    return [{}]


def vocabulary(params: Params, names: Names) -> Path:
    """The vocabulary with which a corpus is read."""
    corpus = names["corpus"] if names["corpus"] != "domain" else params.downstream_vocabulary
    return out(params, "tokenizer", f"{corpus}-{names.get('kind', PARALLEL)}")


def vocabulary_settings(params: Params, names: Names) -> TokenizerSettings:
    """The settings that the vocabulary of one kind depends on; the settings of other kinds are reset to defaults."""
    kind = names.get("kind", PAIRS_KIND)
    kept = params.tokenizer.model_dump(include={"sample_megabytes", "word" if kind == "open_word" else kind})
    return TokenizerSettings.model_validate(kept)


def made(folder: str, corpus: Callable[[Params], str]) -> Value:
    """The vocabulary or the tokens of a corpus with the tokenizer of a block; None if there are none."""

    def value(params: Params, names: Names) -> Path | None:
        name, kind = corpus(params), params.pretrain[names["name"]].tokenizer
        return out(params, folder, f"{name}-{kind}") if name in params.vocabularies else None

    return value


def text_of_vectors(params: Params) -> str:
    """The corpus whose word vectors models without language modelling have: the corpus of the last trained start."""
    adapts = "adapted" in params.run.starts or params.downstream_vocabulary == "domain"
    return "domain" if adapts and "domain" in params.vocabularies else params.pretraining_corpus


def checked(params: Params, names: Names) -> dict[str, Any]:
    """The corpora whose data are compared with the last accepted version; texts of the tasks are checked as rows."""
    corpora = {corpus: source for corpus, source in params.corpora.items() if getattr(params.data, corpus) is not None}
    corpora |= {f"{UNLABELLED}{number}": source for number, source in enumerate(params.data.unlabelled)}
    return corpora | {f"{corpus}-{PARALLEL}": source for corpus, source in params.data.parallel.items()}


def domain_texts(params: Params) -> dict[str, Arguments]:
    """The parts of the domain corpus: texts of the tasks, and of data.unlabelled."""
    if not params.collects_texts:
        return {}
    sources: dict[str, Arguments] = {task: {"examples": out(params, "examples", task)} for task in params.run.tasks}
    for number, source in enumerate(params.data.unlabelled):
        sources[f"{UNLABELLED}{number}"] = {"unlabelled": source}
    return {
        f"domain-{name}": {"name": name, **given, "output": out(params, "domain-texts", name)}
        for name, given in sources.items()
    }


def documents(which: Value) -> Value:
    """The corpus of the domain, if `which` texts are read includes its documents; else None."""

    def value(params: Params, names: Names) -> Path | None:
        reads = _of(which, params, names) in ("domain", "both") and "domain" in params.corpora
        return out(params, "corpus", "domain") if reads else None

    return value


def of_words(params: Params, names: Names) -> TextSource | None:
    """The texts without labels of the words models of a task."""
    return "domain" if params.words_read_documents(names["task"]) else None


def parameters(params: Params, _: Names) -> dict[str, Any]:
    """Section -> block -> its settings, for the versions of the registry."""
    return {
        section: {name: settings.model_dump(mode="json") for name, settings in getattr(params, section).items()}
        for section in ("pretrain", "static", "adapt", "finetune")
    }


def adapt(params: Params) -> dict[str, Arguments]:
    """Arguments of the adaptation of each block."""
    items = each(
        over(name="adapt"),
        "{name}",
        *("name", "family", "seed", "cluster"),
        pretrained="encoder/{name}/pretrained",
        tokens=lambda params, names: out(params, "tokens", f"domain-{params.pretrain[names['name']].tokenizer}"),
        tokenizer=lambda params, names: out(
            params, "tokenizer", f"{params.downstream_vocabulary}-{params.pretrain[names['name']].tokenizer}"
        ),
        general_tokens=made("tokens", lambda _: "general"),
        general_corpus=_general,
        output="encoder/{name}/adapted",
        training=at("adapt.{name}.training"),
        increment=at("adapt.{name}.increment"),
    )
    return {name: {**each, **_static_vectors(params, name)} for name, each in items(params).items()}


def _general(params: Params, names: Names) -> Path | None:
    pairs = f"-{PARALLEL}" * (params.pretrain[names["name"]].tokenizer == PARALLEL)
    return None if params.data.general is None else out(params, "corpus", f"general{pairs}")


def _static_vectors(params: Params, name: str) -> Arguments:
    """The file of vectors of a model with a static channel."""
    block = params.pretrain[name]
    return {key: getattr(block, key) for key in ("vectors", "vectors_digest") if block.model.get("static")}


def adapt_task(params: Params) -> dict[str, Arguments]:
    """Arguments of the adaptation of each family of the run to the texts of each task of `adapt_task`."""
    adapted = adapt(params)
    return {
        f"{name}-{task}": {
            **adapted[name],
            "name": f"{name} {task}",
            "pretrained": adapted[name]["output"],
            # The tokenizer of the adapted encoder; the task's texts are encoded with it too.
            "tokenizer": adapted[name]["output"] / "tokenizer",
            "tokens": out(params, "task-tokens", task, params.pretrain[name].tokenizer),
            "output": out(params, "encoder", name, f"{TASK_ADAPTED}-{task}"),
            # The texts of a task are few, and the adapted model from which it starts is another one.
            "increment": None,
            "epochs": settings.epochs,
        }
        for task, settings in params.adapt_task.items()
        for name in params.run.families
    }


def scratch(params: Params) -> dict[str, Arguments]:
    """Arguments of the encoders without a step of language modelling, of the starts of the run."""
    corpus = text_of_vectors(params)
    tokenizer, tokens = made("tokenizer", lambda _: params.downstream_vocabulary), made("tokens", lambda _: corpus)
    items: dict[str, Arguments] = {}
    for name, settings in params.pretrain.items():
        starts = ["scratch", *([VECTORS] if settings.source is None else [])]
        learning = params.adapt[name] if corpus == "domain" and name in params.adapt else settings
        for start in (start for start in starts if start in params.run.starts):
            reads = start == VECTORS or bool(settings.model.get("static"))
            vectors = ("vectors", "vectors_digest") if reads else ()
            items[name if start == "scratch" else f"{name}-{start}"] = {
                "name": name,
                "family": settings.family or name,
                "tokenizer": _of(tokenizer, params, {"name": name}),
                "tokens": _of(tokens, params, {"name": name}) if reads else None,
                "training": learning.training if reads else None,
                "pretraining": settings.training.only_windows(),
                "start": start,
                "output": out(params, "encoder", name, start),
                **{key: getattr(settings, key) for key in ("preset", "model", "source", "digest", *vectors)},
                "seed": params.run.seed,
            }
    return items


def static(params: Params) -> dict[str, Arguments]:
    """Arguments of the word vectors that are computed with the encoder of each start."""
    return each(
        lambda params: (
            {"name": name, "start": start}
            for name, settings in params.static.items()
            for start in ("pretrained", "adapted", "scratch")
            if start != "adapted" or settings.teacher in params.adapt
        ),
        "{name}-{start}",
        *("name", "seed"),
        teacher=lambda params, names: out(params, "encoder", params.static[names["name"]].teacher, names["start"]),
        corpus="corpus/domain",
        output="encoder/{name}/{start}",
        settings=at("static.{name}"),
        word=at("tokenizer.word"),
        sample_megabytes=at("tokenizer.sample_megabytes"),
    )(params)


def systems_of(params: Params, task: str) -> list[System]:
    """The systems of a task with a language model: for each family the starts of the run and then those of this task,
    and students last."""
    sources = [source for source in params.intermediate_tasks if source != task]
    groups = [group for group, settings in params.together.items() if task in settings.tasks]
    ways: dict[Way, list[str]] = {"after": sources, "with": groups}
    starts = [System("", start) for start in params.run.starts]
    further = [System("", TASK_ADAPTED)] if task in params.adapt_task else []
    further += [replace(start, way=way, group=each) for way, of in ways.items() for each in of for start in starts]
    systems = [replace(start, family=family) for family in params.run.families for start in (*starts, *further)]
    alone = {str(system): system for system in systems if not system.way}
    students = [
        replace(alone[name], way="from", group=group)
        for group, settings in params.distil.items()
        for name in alone
        if name in settings.students
    ]
    return systems + students


def systems(*ways: Way) -> Callable[[Params], Iterator[Names]]:
    """Settings -> the variables of an item for each system of these ways. `start`: as in results; `first`: the start of
    its encoder."""
    return lambda params: (
        {
            "task": task,
            "family": system.family,
            "start": system.variant,
            "first": system.start,
            "group": system.group,
            "encoder": f"{system.start}-{task}"
            if system.start == TASK_ADAPTED
            else system.start
            if system.way == "from"
            else system.variant,
        }
        for task in params.run.tasks
        for system in systems_of(params, task)
        if system.way in ways
    )


def taught(params: Params, names: Names) -> list[str]:
    """The groups of `distil` of which a system is a teacher."""
    system = f"{names['family']}-{names['start']}"
    return [group for group, settings in params.distil.items() if system in settings.teachers]


def teachers(params: Params, names: Names) -> list[str]:
    """The teachers of a group of `distil`."""
    return params.distil[names["group"]].teachers


def members(params: Params, names: Names) -> list[str]:
    """The tasks that a group of `together` learns."""
    return params.together[names["group"]].tasks


def published(params: Params, system: System) -> list[str]:
    """The blocks of imported models that a system and its teachers start from, whose training text is unknown."""
    teachers = params.distil[system.group].teachers if system.way == "from" else []
    return [
        each.family
        for each in dict.fromkeys([system, *map(System.named, teachers)])
        if (block := params.block(each.family)) is not None and block.published and each.start != "scratch"
    ]


def parents(params: Params, _: Names) -> dict[str, list[str]]:
    """Computed blocks of the run -> the blocks that they are computed from, which are trained or imported."""
    return {name: blocks for name in params.run.families if (blocks := params.origins(name))}


def students(params: Params, _: Names) -> dict[str, list[str]]:
    every = systems_of(params, "")
    return {str(system): params.distil[system.group].teachers for system in every if system.way == "from"}


def data_of(params: Params, names: Names) -> dict[str, Path]:
    """Output (relative to the run's folder) of each stage that reads raw data -> path of the data."""
    named = {
        f"{'domain-texts' if name.startswith(UNLABELLED) else 'corpus'}/{name}": source.path
        for name, source in checked(params, names).items()
    }
    named |= {f"examples/{task}": params.data.tasks[task].path for task in params.run.tasks}
    return {name: Path(path) for name, path in named.items()}


#: Argument -> its value in every stage that does not give another one.
SHARED: Final[Mapping[str, Value]] = {
    "cluster": at("cluster"),
    "registry": at("registry"),
    **{name: at(f"run.{name}") for name in ("families", "tasks", "starts", "seed")},
    **{
        name: at(f"pretrain.{{name}}.{name}")
        for name in ("preset", "model", "source", "digest", "vectors", "vectors_digest", "training")
    },
    "family": lambda params, names: params.pretrain[names["name"]].family or names["name"],
    "out": lambda params, _: out(params),
    "examples": "examples/{task}",
    "settings": at("finetune.{family}"),
    "students": students,
    "parents": parents,
    "data": data_of,
}
