"""The table of stages in pipeline order: one row for each. Jobs, dvc.yaml, plan, costs and documents come from it. The
module of a stage is imported when it runs."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, get_type_hints

from components.pipeline import jobs
from components.pipeline.jobs import (
    FOR_DISTIL,
    FOR_WORDS,
    PAIRS_KIND,
    PARALLEL,
    WHOLE,
    Arguments,
    Names,
    Value,
    at,
    each,
    every,
    made,
    over,
    text,
    whole,
)
from components.settings.params import Params
from components.settings.section import BASELINES, Section
from components.settings.systems import TASK_ADAPTED


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

    def load(self) -> tuple[Callable[[Any], Path], type[Section]]:
        """The function and the class of its job, whose fields are the arguments."""
        function = getattr(importlib.import_module(self.module), self.function.partition(":")[2])
        return function, get_type_hints(function)["job"]

    def run(self, arguments: Arguments, *, code: str = "", rebuild: str = "") -> Path:
        """Construct the job and run it.

        Args:
            code: digest of the code that the stage can reach, for jobs that have checkpoints.
            rebuild: why a full rebuild was requested, for jobs that continue from their last output.
        """
        function, job = self.load()
        further = {name: value for name, value in (("code", code), ("rebuild", rebuild)) if name in job.model_fields}
        return function(job(**arguments, **further))


def read_by_register(params: Params) -> list[str]:
    return [*["encoder"] * bool(params.run.families), "examples", "finetuned", "evaluation", "leakage"]


def read_by_report(params: Params) -> list[str]:
    corpora = ["corpus"] * bool(params.corpora)
    return [*read_by_register(params), *corpora, "metrics", "curves", "checks", "registry/decision.json"]


TASKS, SYSTEMS = {"task": "run.tasks"}, {"family": "run.families", "start": "run.starts"}
#: Systems whose start continues one of the run.
CONTINUED = {"family": "run.families", "first": "run.starts"}
TOKENIZED = {"corpus": "vocabularies", "kind": "tokenizer.kinds"}
PAIRS = f"corpus/{{corpus}}-{PARALLEL}"
#: Arguments of the stages that cover a whole run, and of those that distil.
OF_RUN = ("out", "families", "tasks", "starts", "students", "parents", "data")
DISTILLED: dict[str, Any] = {
    "group": text("{group}"),
    "distil": at("distil.{group}"),
    "texts": "distilled/{task}/{group}/texts",
}
#: Texts and answers of the words models of a task.
WORDS, ANSWERS = f"unlabelled/{{task}}/{BASELINES}", f"finetuned/{{task}}/{BASELINES}"


def _learns(
    names: Mapping[str, str],
    item: str,
    *,
    start: str = "{start}",
    encoder: str = "encoder/{family}/{start}",
    output: str = "",
    **given: Value,
) -> Callable[[Params], dict[str, Arguments]]:
    """Items of the stages that learn a task from an encoder."""
    return each(
        over(**names),
        item,
        "task",
        "family",
        start=text(start),
        examples="examples/{task}",
        encoder=encoder,
        baselines=ANSWERS,
        output=output or f"finetuned/{{task}}/{{family}}-{start}",
        settings=at("finetune.{family}"),
        cluster=at("cluster"),
        **given,
    )


def _members(params: Params, names: Names) -> list[str]:
    return params.together[names["group"]].tasks


def _members_of_run(params: Params, names: Names) -> list[str]:
    return [task for task in _members(params, names) if task in params.run.tasks]


_LOSS = ("step", "loss")
_trains = partial(Stage, minutes=2880, retries=2, trains=True)
_finetune, _adapt = (
    partial(_trains, f"{module}")
    for module in ("learners.finetuning.stage:finetune", "training.pretraining.adapt:adapt")
)
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
    "domain-texts": Stage(
        "data.ingestion.unlabelled:domain_texts",
        "Collects the texts of the train splits and of data.unlabelled",
        jobs.domain_texts,
        60,
    ),
    **{
        name: Stage(
            "data.ingestion.stage:ingest",
            f"Cleans {what}, drops duplicates, writes append-only Parquet shards",
            each(
                over(corpus=corpora),
                "{corpus}",
                "cluster",
                name=text(title),
                source=at(f"{corpora}.{{corpus}}"),
                settings=at("ingest"),
                judged=jobs.judged,
                output=output,
            ),
            1440,
            retries=1,
            persist=True,
            rebuilt=True,
        )
        for name, what, corpora, title, output in (
            ("ingest", "raw text", "corpora", "{corpus}", "corpus/{corpus}"),
            (f"ingest-{PARALLEL}", "pairs of texts", "data.parallel", "{corpus} pairs", PAIRS),
        )
    },
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
        "Trains the vocabulary of a corpus, or keeps it while it fits new text",
        each(
            over(**TOKENIZED),
            "{corpus}-{kind}",
            "kind",
            corpus="corpus/{corpus}",
            output="tokenizer/{corpus}-{kind}",
            record="vocabulary/{corpus}-{kind}",
            settings=jobs.vocabulary_settings,
        ),
        60,
        retries=1,
        persist=True,
        rebuilt=True,
    ),
    "tokenizer-parallel": Stage(
        "tokenization.train:train_tokenizer",
        "Trains one vocabulary for both sides of the pairs and for the corpus",
        each(
            over(corpus="data.parallel"),
            "{corpus}",
            corpus="corpus/{corpus}",
            pairs=PAIRS,
            output=f"tokenizer/{{corpus}}-{PARALLEL}",
            kind=text(PAIRS_KIND),
            settings=jobs.vocabulary_settings,
        ),
        60,
        retries=1,
    ),
    **{
        name: Stage(
            "tokenization.tokenize:tokenize",
            f"Writes {what} as memory-mapped token shards",
            each(over(**items), item, "cluster", corpus=corpus, tokenizer=jobs.vocabulary, output=output),
            1440,
            retries=1,
            persist=True,
        )
        for name, what, items, item, corpus, output in (
            ("tokenize", "a corpus", TOKENIZED, "{corpus}-{kind}", "corpus/{corpus}", "tokens/{corpus}-{kind}"),
            (
                f"tokenize-{PARALLEL}",
                "pairs",
                {"corpus": "data.parallel"},
                "{corpus}",
                PAIRS,
                f"tokens/{{corpus}}-{PARALLEL}",
            ),
        )
    },
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
    "adapt": _adapt(
        "Continues pretraining on the domain's text, or on what was added to it",
        jobs.adapt,
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
    "unlabelled": Stage(
        "data.ingestion.unlabelled:unlabelled",
        "Collects texts without labels for words models",
        each(
            over(**TASKS),
            f"{{task}}-{BASELINES}",
            *("task", "examples"),
            corpus=jobs.documents,
            key=text("words"),
            which=lambda params, names: "domain" if params.words_read_documents(names["task"]) else None,
            rows=lambda *_: FOR_WORDS,
            output=WORDS,
        ),
        60,
    ),
    **{
        f"static-{start}": Stage(
            "training.pretraining.static:static",
            "Computes word vectors with an encoder, for prediction without a pass through it",
            jobs.static(start),
            60,
            retries=1,
        )
        for start in ("pretrained", "adapted", "scratch")
    },
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
    "finetune": _finetune(
        "Fine-tunes task models at every label budget and seed from one initialisation",
        _learns({**TASKS, **SYSTEMS}, "{task}-{family}-{start}"),
    ),
    "task-tokens": Stage(
        "tokenization.tokenize:task_tokens",
        "Writes a task's texts, without labels, as memory-mapped token shards",
        each(
            over(task="adapt_task", kind="tokenizer.kinds"),
            "{task}-{kind}",
            "examples",
            judged=jobs.judged,
            tokenizer=lambda params, names: jobs.vocabulary(params, {**names, "corpus": "domain"}),
            output="task-tokens/{task}/{kind}",
        ),
        60,
        retries=1,
    ),
    "adapt-task": _adapt("Continues pretraining of the adapted model on a task's texts", jobs.adapt_task, curve=_LOSS),
    "finetune-task-adapted": _finetune(
        "Fine-tunes from the model that was adapted to the task's texts",
        _learns(
            {"task": "adapt_task", "family": "run.families"},
            "{task}-{family}",
            start=TASK_ADAPTED,
            encoder=f"encoder/{{family}}/{TASK_ADAPTED}-{{task}}",
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
    "finetune-after": _trains(
        "learners.finetuning.intermediate:finetune_after",
        "Fine-tunes from the encoder of another task's model",
        _learns(
            {**TASKS, "source": "intermediate_tasks", **CONTINUED},
            "{task}-{source}-{family}-{first}",
            start="{first}-after-{source}",
            encoder="encoder/{family}/{first}-after-{source}",
            source=text("{source}"),
        ),
        metrics=False,
    ),
    "distil-texts": Stage(
        "data.ingestion.unlabelled:unlabelled",
        "Collects texts without labels for teachers and students",
        each(
            over(**TASKS, group="distil"),
            "{task}-{group}",
            *("task", "examples"),
            corpus=jobs.documents,
            key=text("distil.{group}"),
            which=at("distil.{group}.source"),
            rows=lambda *_: FOR_DISTIL,
            output="distilled/{task}/{group}/texts",
        ),
        60,
    ),
    "teach": _trains(
        "learners.finetuning.distil:teach",
        "Labels texts with a fine-tuned model, at every label budget, seed and fold",
        _learns(
            {**TASKS, "group": "distil", **SYSTEMS},
            "{task}-{group}-{family}-{start}",
            output="distilled/{task}/{group}/{family}-{start}",
            finetuned="finetuned/{task}/{family}-{start}",
            **DISTILLED,
        ),
        metrics=False,
    ),
    "distil": _trains(
        "learners.finetuning.distil:distil",
        "Trains a student on the predictions of its teachers",
        _learns(
            {**TASKS, "group": "distil", **CONTINUED},
            "{task}-{group}-{family}-{first}",
            start="{first}-from-{group}",
            encoder="encoder/{family}/{first}",
            student=text("{family}-{first}"),
            taught="distilled/{task}/{group}",
            **DISTILLED,
        ),
        metrics=False,
    ),
    "together": _trains(
        "learners.finetuning.together:together",
        "Trains one encoder with a head per task, at every label budget and seed",
        each(
            over(group="together", **SYSTEMS),
            "{group}-{family}-{start}",
            *("group", "family", "start", "settings", "cluster"),
            examples=every("examples/{task}", _members),
            baselines=every(ANSWERS, _members_of_run),
            encoder="encoder/{family}/{start}",
            output="together/{group}/{family}-{start}",
            temperature=at("together.{group}.temperature"),
        ),
    ),
    "share": Stage(
        "learners.finetuning.together:share",
        "Extracts a task's results of multi-task learning",
        each(
            over(**TASKS, group="together", **SYSTEMS),
            "{task}-{group}-{family}-{start}",
            "task",
            together="together/{group}/{family}-{start}",
            output="finetuned/{task}/{family}-{start}-with-{group}",
        ),
        30,
        metrics=False,
    ),
    "evaluate": Stage(
        "evaluation.stage:evaluate",
        "Computes scores with intervals, benefits of transfer, calibration, slices",
        each(
            over(**TASKS),
            "{task}",
            *("examples", "families"),
            finetuned="finetuned/{task}",
            output="evaluation/{task}",
            starts=lambda params, names: jobs.starts_of(params, names["task"]),
            students=lambda params, _: [str(student) for student in jobs.students_of(params)],
            settings=at("evaluate"),
        ),
        120,
        curve=("labels", "score"),
    ),
    "leakage": Stage(
        "data.leakage.stage:leakage",
        "Searches the texts of dev and test in the corpora and train rows",
        jobs.leakage,
        1440,
    ),
    "leakage-together": Stage(
        "data.leakage.stage:leakage",
        "Searches the texts of dev and test in what models of several tasks were trained on",
        jobs.leakage_together,
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
            further=lambda params, _: {
                task: jobs.starts_of(params, task)[len(params.run.starts) :] for task in params.run.tasks
            },
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
