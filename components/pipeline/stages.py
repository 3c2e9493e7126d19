"""The table of stages in pipeline order: one row for each. Jobs, dvc.yaml, plan, costs and documents come from it. The
module of a stage is imported when it runs."""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args, get_type_hints

from components.pipeline import jobs
from components.pipeline.jobs import (
    PAIRS_KIND,
    PARALLEL,
    WHOLE,
    Arguments,
    Names,
    Value,
    at,
    each,
    every,
    joined,
    made,
    out,
    over,
    text,
    whole,
)
from components.settings.params import Params
from components.settings.section import BASELINES, Section


@dataclass(frozen=True)
class Stage:
    """An entry of the table.

    Attributes:
        function: module below `components`, a colon, and the name of the function: job -> path of what it wrote.
        items: maps the settings to the items, and each item to the job's arguments.
        persist: whether its output is kept between runs, and continued by the next.
        rebuilt: whether its result depends on its last output, so that a full rebuild can be requested.
        metrics: whether it writes `metrics.json`.
        curve: columns x and y of the curve that it writes.
        trains: whether it trains, on GPUs if there are any, and writes checkpoints.
        reads: what it depends on, below the run's folder; None: the paths among its arguments.
        writes: its output below the run's folder, if that is no argument; for stages that act on the registry.
    """

    function: str
    description: str
    items: Callable[[Params], Mapping[str, Arguments]]
    minutes: int
    _: KW_ONLY
    retries: int = 0
    persist: bool = False
    rebuilt: bool = False
    metrics: bool = True
    curve: tuple[str, str] | None = None
    trains: bool = False
    reads: Callable[[Params], list[str]] | None = None
    writes: str = ""

    @property
    def always(self) -> bool:
        """Whether DVC always runs it, because it acts on the registry."""
        return bool(self.writes)

    @property
    def module(self) -> str:
        return f"components.{self.function.partition(':')[0]}"

    def load(self) -> tuple[Callable[[Any], Path], Sequence[type[Section]]]:
        """The function and the classes of its jobs, whose fields are the arguments."""
        function = getattr(importlib.import_module(self.module), self.function.partition(":")[2])
        job = get_type_hints(function)["job"]
        return function, get_args(job) or (job,)

    def job(self, arguments: Arguments, **further: str) -> Section:
        """The job of an item: of the class that has all of its arguments. Of `further` it gets what it has."""
        _, classes = self.load()
        of_item = next((each for each in classes if arguments.keys() <= each.model_fields.keys()), classes[0])
        return of_item(**arguments, **{name: of for name, of in further.items() if of and name in of_item.model_fields})

    def run(self, arguments: Arguments, *, code: str = "", rebuild: str = "") -> Path:
        """Construct the job and run it.

        Args:
            code: digest of the code that the stage can reach, for jobs that have checkpoints.
            rebuild: why a full rebuild was requested, for jobs that continue from their last output.
        """
        return self.load()[0](self.job(arguments, code=code, rebuild=rebuild))


def read_by_register(params: Params) -> list[str]:
    return [*["encoder"] * bool(params.run.families), "examples", "finetuned", "evaluation", "leakage"]


def read_by_report(params: Params) -> list[str]:
    corpora = ["corpus"] * bool(params.corpora)
    return [*read_by_register(params), *corpora, "metrics", "curves", "checks", "registry/decision.json"]


TASKS, SYSTEMS = {"task": "run.tasks"}, {"family": "run.families", "start": "run.starts"}
TOKENIZED, PAIRED = {"corpus": "vocabularies", "kind": "tokenizer.kinds"}, {"corpus": "data.parallel"}
PAIRS = f"corpus/{{corpus}}-{PARALLEL}"
#: Arguments of the stages that cover a whole run.
OF_RUN = ("out", "families", "tasks", "starts", "students", "parents", "data")
#: Texts of the teachers and students of a group.
DISTILLED, TEXTS = {"group": "distil"}, "distilled/{task}/{group}/texts"
#: Texts and answers of the words models of a task.
WORDS, ANSWERS = f"unlabelled/{{task}}/{BASELINES}", f"finetuned/{{task}}/{BASELINES}"


def _learns(names: Callable[[Params], Iterable[Names]], **given: Value) -> Callable[[Params], dict[str, Arguments]]:
    """Items of the stage that learns a task from an encoder."""
    return each(
        names,
        "{task}-{family}-{start}",
        *("task", "family", "start", "settings", "cluster"),
        examples="examples/{task}",
        encoder="encoder/{family}/{encoder}",
        baselines=ANSWERS,
        output="finetuned/{task}/{family}-{start}",
        **given,
    )


#: Stages whose jobs learn, and those that write the tokens and texts that they learn.
LEARNING = (
    *("tokenize", "unlabelled", "pretrain", "adapt", "scratch", "static"),
    *("baseline", "finetune", "intermediate", "together"),
)
#: Arguments of these jobs from which no weights are learned.
ASIDE = ("output", "tokenizer", "judged", "baselines", "labelled", "general_tokens", "general_corpus")


def leakage(params: Params) -> dict[str, Arguments]:
    """Arguments of the search for a task's rows in what its systems were trained on: those that learn it alone, and
    those that learn it with the others of a group."""
    made = {arguments["output"]: arguments for name in LEARNING for arguments in STAGES[name].items(params).values()}

    def learned(path: Path) -> Iterator[str]:
        """What a model and its ancestors were trained on: `corpus/<name>`, `train/<task>`."""
        if path not in made and path.parent.name in (folders := {"corpus": "corpus", "examples": "train"}):
            yield f"{folders[path.parent.name]}/{path.name}"
        arguments = made.get(path, {})
        # An imported encoder was not pretrained here, and the vectors of a file are not those of the text.
        imported = arguments.get("source") or (arguments.get("start") == "scratch" and arguments.get("vectors"))
        for key, value in arguments.items():
            for read in value.values() if isinstance(value, Mapping) else [value]:
                if isinstance(read, Path) and key not in ASIDE and not (imported and key == "tokens"):
                    yield from learned(read)

    def seen(task: str, name: str) -> list[str]:
        """What a system was trained on, corpora first."""
        sources = dict.fromkeys([f"train/{task}", *learned(out(params, "finetuned", task, name))])
        return sorted(sources, key=lambda source: source.startswith("train/"))

    items: dict[str, Arguments] = {}
    for task in params.run.tasks:
        groups: dict[str, list[str]] = {"": []}
        systems = {str(system): system for system in jobs.systems_of(params, task)}
        for name, system in systems.items():
            groups.setdefault(system.group if system.way == "with" else "", []).append(name)
        for group, names in groups.items():
            item = f"{task}-with-{group}" if group else task
            others = params.together[group].tasks if group else ()
            unknown = {name: jobs.published(params, systems[name]) for name in names}
            items[item] = {
                "task": task,
                "examples": out(params, "examples", task),
                "others": {name: out(params, "examples", name) for name in others if name != task},
                "corpus": out(params, "corpus") if params.corpora else None,
                "systems": {name: seen(task, name) for name in [*names, *[BASELINES] * (not group)]},
                "unknown": {name: blocks for name, blocks in unknown.items() if blocks},
                "settings": params.leakage,
                "cluster": params.cluster,
                "output": out(params, "leakage", item),
            }
    return items


_LOSS = ("step", "loss")
_trains = partial(Stage, minutes=2880, retries=2, trains=True)
#: Stages that act on the registry. DVC always runs them; they change nothing if it has the same content already.
_acts = partial(Stage, retries=3, metrics=False)
STAGES: dict[str, Stage] = {
    "identity": Stage(
        "pipeline.identity:identity",
        "Settings, code and libraries of every stage, as digests",
        each(whole, WHOLE, params=lambda params, _: params, output="identity"),
        10,
        metrics=False,
    ),
    # First, so that errors in the labels are reported before any training.
    "examples": Stage(
        "data.tasks.examples:examples",
        "Reads and checks labelled data",
        each(
            over(**TASKS),
            "{task}",
            "task",
            source=at("data.tasks.{task}"),
            output="examples/{task}",
            record="judged/{task}",
        ),
        30,
    ),
    "unlabelled": Stage(
        "data.ingestion.unlabelled:unlabelled",
        "Collects texts without labels for words models, teachers and students, and for the domain if none is named",
        joined(
            jobs.domain_texts,
            *(
                each(
                    over(task="run.tasks", **groups),
                    item,
                    *("task", "examples"),
                    corpus=jobs.documents(which),
                    key=text(key),
                    which=which,
                    rows=lambda *_, rows=rows: rows,
                    output=output,
                )
                for groups, item, key, which, rows, output in (
                    ({}, f"{{task}}-{BASELINES}", "words", jobs.of_words, jobs.FOR_WORDS, WORDS),
                    (
                        DISTILLED,
                        "{task}-{group}",
                        "distil.{group}",
                        at("distil.{group}.source"),
                        jobs.FOR_DISTIL,
                        TEXTS,
                    ),
                )
            ),
        ),
        60,
    ),
    "ingest": Stage(
        "data.ingestion.stage:ingest",
        "Cleans raw text or pairs of texts, drops duplicates, writes append-only Parquet shards",
        joined(
            *(
                each(
                    over(corpus=corpora),
                    item,
                    "cluster",
                    name=text(title),
                    source=at(f"{corpora}.{{corpus}}"),
                    settings=at("ingest"),
                    judged=jobs.judged,
                    output=f"corpus/{item}",
                )
                for corpora, item, title in (
                    ("corpora", "{corpus}", "{corpus}"),
                    ("data.parallel", f"{{corpus}}-{PARALLEL}", "{corpus} pairs"),
                )
            )
        ),
        1440,
        retries=1,
        persist=True,
        rebuilt=True,
    ),
    "checks": Stage(
        "data.checks.stage:checks",
        "Compares new data with the last accepted version",
        each(
            whole,
            WHOLE,
            "cluster",
            corpora=jobs.checked,
            tasks=lambda params, _: {task: params.data.tasks[task] for task in params.run.tasks},
            settings=at("checks"),
            output="checks",
        ),
        1440,
        metrics=False,
    ),
    "tokenizer": Stage(
        "tokenization.train:fit_vocabulary",
        "Trains the vocabulary of a corpus, or keeps it while it fits new text; or one for both sides of pairs",
        joined(
            *(
                each(
                    over(**names),
                    item,
                    kind=kind,
                    corpus="corpus/{corpus}",
                    output=f"tokenizer/{item}",
                    record=f"vocabulary/{item}",
                    settings=jobs.vocabulary_settings,
                    **given,
                )
                for names, item, kind, given in (
                    (TOKENIZED, "{corpus}-{kind}", text("{kind}"), {}),
                    (PAIRED, f"{{corpus}}-{PARALLEL}", text(PAIRS_KIND), {"pairs": PAIRS}),
                )
            )
        ),
        60,
        retries=1,
        persist=True,
        rebuilt=True,
    ),
    "tokenize": Stage(
        "tokenization.tokenize:tokenize",
        "Writes a corpus, pairs or the texts of a task as memory-mapped token shards",
        joined(
            *(
                each(over(**names), item, "cluster", corpus=corpus, tokenizer=jobs.vocabulary, output=f"tokens/{item}")
                for names, item, corpus in (
                    (TOKENIZED, "{corpus}-{kind}", "corpus/{corpus}"),
                    (PAIRED, f"{{corpus}}-{PARALLEL}", PAIRS),
                )
            ),
            each(
                over(task="adapt_task", kind="tokenizer.kinds"),
                "task-{task}-{kind}",
                "examples",
                judged=jobs.judged,
                tokenizer=lambda params, names: jobs.vocabulary(params, {**names, "corpus": "domain"}),
                output="task-tokens/{task}/{kind}",
            ),
        ),
        1440,
        retries=1,
        persist=True,
    ),
    "pretrain": _trains(
        "training.pretraining.pretrain:pretrain",
        "Pretrains a language model on general text",
        each(
            over(name="pretrain"),
            "{name}",
            *("name", "family", "preset", "model", "source", "digest", "vectors", "vectors_digest", "training"),
            *("seed", "cluster"),
            tokens=made("tokens", attrgetter("pretraining_corpus")),
            tokenizer=made("tokenizer", attrgetter("pretraining_corpus")),
            output="encoder/{name}/pretrained",
        ),
        curve=_LOSS,
    ),
    "adapt": _trains(
        "training.pretraining.adapt:adapt",
        "Continues pretraining on the domain's text, on what was added to it, or on a task's texts",
        joined(jobs.adapt, jobs.adapt_task),
        persist=True,
        rebuilt=True,
        curve=_LOSS,
    ),
    "scratch": Stage(
        "training.pretraining.pretrain:scratch",
        "The same model without a step of language modelling, for comparison",
        jobs.scratch,
        10,
        retries=1,
    ),
    "static": Stage(
        "training.pretraining.static:static",
        "Computes word vectors with an encoder, for prediction without a pass through it",
        jobs.static,
        60,
        retries=1,
    ),
    # Before fine-tuned models, which read its words models.
    "baseline": Stage(
        "learners.baselines.stage:baseline",
        "Trains TF-IDF with logistic regression and other baselines",
        each(
            over(**TASKS),
            "{task}",
            "examples",
            output=ANSWERS,
            unlabelled=WORDS,
        ),
        120,
    ),
    "finetune": _trains(
        "learners.finetuning.stage:finetune",
        "Fine-tunes task models at every label budget and seed from one initialisation, students of teachers too",
        # The predictions of a teacher are a part of its output.
        joined(
            _learns(jobs.systems("", "after"), labelled=every(TEXTS, jobs.taught, of="group")),
            _learns(
                jobs.systems("from"),
                group=text("{group}"),
                texts=TEXTS,
                teachers=every("finetuned/{task}/{teacher}", jobs.teachers, of="teacher"),
            ),
        ),
    ),
    "intermediate": Stage(
        "learners.finetuning.intermediate:intermediate",
        "Extracts the encoder of a model that was fine-tuned on another task",
        each(
            over(source="intermediate_tasks", **SYSTEMS),
            "{source}-{family}-{start}",
            "source",
            finetuned="finetuned/{source}/{family}-{start}",
            output="encoder/{family}/{start}-after-{source}",
        ),
        30,
        metrics=False,
    ),
    "together": _trains(
        "learners.finetuning.together:together",
        "Trains one encoder with a head per task, at every label budget and seed, and extracts the results of a task",
        joined(
            each(
                over(group="together", **SYSTEMS),
                "{group}-{family}-{start}",
                *("group", "family", "start", "settings", "cluster"),
                examples=every("examples/{task}", jobs.members),
                baselines=every(
                    ANSWERS,
                    lambda params, names: [task for task in jobs.members(params, names) if task in params.run.tasks],
                ),
                encoder="encoder/{family}/{start}",
                output="together/{group}/{family}-{start}",
                temperature=at("together.{group}.temperature"),
            ),
            each(
                jobs.systems("with"),
                "{group}-{family}-{first}-{task}",
                "task",
                together="together/{group}/{family}-{first}",
                output="finetuned/{task}/{family}-{start}",
            ),
        ),
    ),
    "evaluate": Stage(
        "evaluation.stage:evaluate",
        "Computes scores with intervals, benefits of transfer, calibration, slices",
        each(
            over(**TASKS),
            "{task}",
            "examples",
            finetuned="finetuned/{task}",
            output="evaluation/{task}",
            systems=lambda params, names: [*map(str, jobs.systems_of(params, names["task"]))],
            settings=at("evaluate"),
        ),
        120,
        curve=("labels", "score"),
    ),
    "leakage": Stage(
        "data.leakage.stage:leakage",
        "Searches the texts of dev and test in the corpora and train rows that models were trained on",
        leakage,
        1440,
    ),
    "register": _acts(
        "registry.register:register",
        "Registers every model as a version in MLflow",
        each(
            whole,
            WHOLE,
            *OF_RUN,
            registry=at("registry"),
            systems=lambda params, _: {task: jobs.systems_of(params, task) for task in params.run.tasks},
            parameters=jobs.parameters,
            metric=at("promote.metric"),
        ),
        60,
        reads=read_by_register,
        writes="registry/registered.json",
    ),
    "promote": _acts(
        "registry.contest:promote",
        "Moves the alias champion, or keeps it, with reasons",
        each(
            whole,
            WHOLE,
            "out",
            registry=at("registry"),
            rule=at("promote"),
            examples=every("examples/{task}", lambda params, _: params.run.tasks),
        ),
        30,
        reads=lambda _: ["registry/registered.json", "evaluation", "leakage", "finetuned", "examples"],
        writes="registry/decision.json",
    ),
    "report": Stage(
        "reporting.stage:report",
        "Writes one HTML page with all figures, and its numbers as JSON",
        each(
            whole,
            WHOLE,
            *OF_RUN,
            corpora=lambda params, _: list(params.corpora),
            adapt_task=lambda params, _: list(params.adapt_task),
            decision="registry/decision.json",
            output="report",
        ),
        30,
        metrics=False,
        reads=read_by_report,
    ),
}
#: Stages that train, and write checkpoints; on GPUs if there are any.
TRAINING = frozenset(name for name, stage in STAGES.items() if stage.trains)
#: Stages that train one model on all workers.
DISTRIBUTED = frozenset(name for name in TRAINING if STAGES[name].function.startswith("training."))
