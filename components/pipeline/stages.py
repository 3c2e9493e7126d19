"""The table of stages in pipeline order, and running one of them: a function of one job that returns the directory it
wrote. The module of a stage is imported when it runs."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

from components.pipeline.jobs import Arguments, corpora, encoders, results, tasks
from components.settings.params import Params
from components.settings.section import Section


@dataclass(frozen=True)
class Stage:
    """An entry of the table.

    Attributes:
        function: module below `components`, a colon, and the name of the function: job -> path of what it wrote.
        items: maps the settings to the items, and each item to the job's arguments.
        persist: whether its output is kept between runs, and continued by the next.
        metrics: whether it writes `metrics.json`.
        curve: columns x and y of the curve that it writes.
        trains: whether it trains, on GPUs if there are any, and writes checkpoints.
        reads: what it depends on; None: the paths among its arguments.
        writes: its output below the run's folder, if that is no argument; for stages that act on the registry.
    """

    function: str
    items: Callable[[Params], Mapping[str, Arguments]]
    minutes: int
    _: KW_ONLY
    retries: int = 0
    persist: bool = False
    metrics: bool = True
    curve: tuple[str, str] | None = None
    trains: bool = False
    reads: Callable[[Params], list[Path]] | None = None
    writes: str = ""

    @property
    def always(self) -> bool:
        """Whether DVC always runs it, because it acts on the registry."""
        return bool(self.writes)

    @property
    def description(self) -> str:
        """What it does: the first sentence about its items."""
        return str(getattr(self.items, "func", self.items).__doc__).partition(".")[0]

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


_LOSS = ("step", "loss")
_trains = partial(Stage, minutes=2880, retries=2, trains=True)
#: Stages that act on the registry. DVC always runs them; they change nothing if it has the same content already.
_acts = partial(Stage, retries=3, metrics=False)
STAGES: dict[str, Stage] = {
    "identity": Stage("pipeline.identity:identity", results.identity, 10, metrics=False),
    # First, so that errors in the labels are reported before any training.
    "examples": Stage("data.tasks.examples:examples", tasks.examples, 30),
    "domain-texts": Stage("data.ingestion.unlabelled:domain_texts", corpora.domain_texts, 60),
    "ingest": Stage("data.ingestion.stage:ingest", corpora.ingest, 1440, retries=1, persist=True),
    "ingest-parallel": Stage("data.ingestion.stage:ingest", corpora.ingest_parallel, 1440, retries=1, persist=True),
    "checks": Stage("data.checks.stage:checks", corpora.checks, 1440, metrics=False),
    "tokenizer": Stage("tokenization.train:fit_vocabulary", corpora.tokenizer, 60, retries=1, persist=True),
    "tokenizer-parallel": Stage("tokenization.train:train_tokenizer", corpora.tokenizer_parallel, 60, retries=1),
    "tokenize": Stage("tokenization.tokenize:tokenize", corpora.tokenize, 1440, retries=1, persist=True),
    "tokenize-parallel": Stage(
        "tokenization.tokenize:tokenize", corpora.tokenize_parallel, 1440, retries=1, persist=True
    ),
    "pretrain": _trains("training.pretraining.pretrain:pretrain", encoders.pretrain, curve=_LOSS),
    "adapt": _trains("training.pretraining.adapt:adapt", encoders.adapt, persist=True, curve=_LOSS),
    "scratch": Stage("training.pretraining.pretrain:scratch", encoders.scratch, 10, retries=1),
    "unlabelled": Stage("data.ingestion.unlabelled:unlabelled", tasks.unlabelled, 60),
    **{
        f"static-{start}": Stage(
            "training.pretraining.static:static", partial(encoders.static, start=start), 60, retries=1
        )
        for start in ("pretrained", "adapted", "scratch")
    },
    # Before fine-tuned models, which read its words models.
    "baseline": Stage("learners.baselines.stage:baseline", tasks.baseline, 120),
    "finetune": _trains("learners.finetuning.stage:finetune", tasks.finetune),
    "task-tokens": Stage("tokenization.tokenize:task_tokens", encoders.task_tokens, 60, retries=1),
    "adapt-task": _trains("training.pretraining.adapt:adapt", encoders.adapt_task, curve=_LOSS),
    "finetune-task-adapted": _trains("learners.finetuning.stage:finetune", tasks.finetune_task_adapted),
    "intermediate": Stage("learners.finetuning.intermediate:intermediate", tasks.intermediate, 30, metrics=False),
    "finetune-after": _trains("learners.finetuning.intermediate:finetune_after", tasks.finetune_after, metrics=False),
    "distil-texts": Stage("data.ingestion.unlabelled:unlabelled", tasks.distil_texts, 60),
    "teach": _trains("learners.finetuning.distil:teach", tasks.teach, metrics=False),
    "distil": _trains("learners.finetuning.distil:distil", tasks.distil, metrics=False),
    "together": _trains("learners.finetuning.together:together", tasks.together),
    "share": Stage("learners.finetuning.together:share", tasks.share, 30, metrics=False),
    "evaluate": Stage("evaluation.stage:evaluate", tasks.evaluate, 120, curve=("labels", "score")),
    "leakage": Stage("data.leakage.stage:leakage", tasks.leakage, 1440),
    "leakage-together": Stage("data.leakage.stage:leakage", tasks.leakage_together, 1440),
    "register": _acts(
        "registry.register:register",
        results.register,
        60,
        reads=results.read_by_register,
        writes="registry/registered.json",
    ),
    "promote": _acts(
        "registry.contest:promote", results.promote, 30, reads=results.read_by_promote, writes="registry/decision.json"
    ),
    "report": Stage("reporting.stage:report", results.report, 30, metrics=False, reads=results.read_by_report),
}
#: Stages that train, and write checkpoints; on GPUs if there are any.
TRAINING = frozenset(name for name, stage in STAGES.items() if stage.trains)
#: Stages that train one model on all workers.
DISTRIBUTED = frozenset(name for name in TRAINING if STAGES[name].function.startswith("training."))
