"""The table of stages in pipeline order, and running one of them.

A stage is a function of one job that returns the directory it wrote. Its items are what dvc.yaml calls `${key}`:
`general`, `general-wordpiece`, `ulmfit`, `aws-type-ulmfit-adapted`. The module of a stage is imported when it runs, so
that no stage imports the libraries of another stage.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_args

from components.artifacts import write_atomic
from components.errors import ConfigError, nearest
from components.pipeline import jobs, rebuild
from components.pipeline.identity import STAGE as IDENTITY
from components.pipeline.identity import check_identity
from components.pipeline.jobs import WHOLE, Arguments, out
from components.settings.names import VECTORS, Start
from components.settings.params import Params


@dataclass(frozen=True)
class Stage:
    """An entry of the table.

    Attributes:
        module: module that defines the job's class and the function.
        job: name of the job's class; its fields are the arguments.
        function: job -> path of what it wrote.
        items: maps the settings to the items, and each item to the job's arguments.
    """

    module: str
    job: str
    function: str
    items: Callable[[Params], Mapping[str, Arguments]]

    def run(self, arguments: Arguments, *, code: str = "", rebuild: str = "") -> Path:
        """Construct the job and run it.

        Args:
            arguments: of the job.
            code: digest of the code that the stage can reach, for jobs that have checkpoints.
            rebuild: why a full rebuild was requested, for jobs that continue from their last output.
        """
        module = importlib.import_module(self.module)
        job = getattr(module, self.job)
        own = {name: value for name, value in (("code", code), ("rebuild", rebuild)) if name in job.model_fields}
        written: Path = getattr(module, self.function)(job(**arguments, **own))
        return written


STAGES: dict[str, Stage] = {
    "identity": Stage("components.pipeline.identity", "IdentityJob", "identity", jobs.identity),
    "examples": Stage("components.tasks.examples", "ExamplesJob", "examples", jobs.examples),
    "domain-texts": Stage("components.ingestion.domain_texts", "DomainTextsJob", "domain_texts", jobs.domain_texts),
    "ingest": Stage("components.ingestion.stage", "IngestJob", "ingest", jobs.ingest),
    "ingest-parallel": Stage("components.ingestion.stage", "IngestJob", "ingest", jobs.ingest_parallel),
    "checks": Stage("components.data_checks.stage", "ChecksJob", "checks", jobs.checks),
    "tokenizer": Stage("components.tokenization.vocabulary", "VocabularyJob", "fit_vocabulary", jobs.tokenizer),
    "tokenizer-parallel": Stage(
        "components.tokenization.train", "TokenizerJob", "train_tokenizer", jobs.tokenizer_parallel
    ),
    "tokenize": Stage("components.tokenization.tokenize", "TokenizeJob", "tokenize", jobs.tokenize),
    "tokenize-parallel": Stage("components.tokenization.tokenize", "TokenizeJob", "tokenize", jobs.tokenize_parallel),
    "pretrain": Stage("components.pretraining.pretrain", "PretrainJob", "pretrain", jobs.pretrain),
    "adapt": Stage("components.pretraining.adapt", "AdaptJob", "adapt", jobs.adapt),
    "task-tokens": Stage("components.tokenization.task_text", "TaskTokensJob", "task_tokens", jobs.task_tokens),
    "adapt-task": Stage("components.pretraining.adapt", "AdaptJob", "adapt", jobs.adapt_task),
    "scratch": Stage("components.pretraining.pretrain", "ScratchJob", "scratch", jobs.scratch),
    "unlabelled": Stage("components.ingestion.unlabelled", "UnlabelledJob", "unlabelled", jobs.unlabelled),
    **{
        f"static-{start}": Stage(
            "components.pretraining.static", "StaticJob", "static", partial(jobs.static, start=start)
        )
        for start in get_args(Start)
        if start != VECTORS
    },
    **{
        f"stacked-{start}": Stage(
            "components.pretraining.stacked", "StackedJob", "stacked", partial(jobs.stacked, start=start)
        )
        for start in get_args(Start)
        if start != VECTORS
    },
    "finetune": Stage("components.finetuning.stage", "FinetuneJob", "finetune", jobs.finetune),
    "finetune-task-adapted": Stage(
        "components.finetuning.stage", "FinetuneJob", "finetune", jobs.finetune_task_adapted
    ),
    "intermediate": Stage("components.finetuning.intermediate", "IntermediateJob", "intermediate", jobs.intermediate),
    "finetune-after": Stage(
        "components.finetuning.intermediate", "FinetuneAfterJob", "finetune_after", jobs.finetune_after
    ),
    "distil-texts": Stage("components.ingestion.unlabelled", "UnlabelledJob", "unlabelled", jobs.distil_texts),
    "teach": Stage("components.finetuning.distil", "TeachJob", "teach", jobs.teach),
    "distil": Stage("components.finetuning.distil", "DistilJob", "distil", jobs.distil),
    "together": Stage("components.finetuning.together", "TogetherJob", "together", jobs.together),
    "share": Stage("components.finetuning.together", "ShareJob", "share", jobs.share),
    "baseline": Stage("components.baselines.stage", "BaselineJob", "baseline", jobs.baseline),
    "evaluate": Stage("components.evaluation.stage", "EvaluateJob", "evaluate", jobs.evaluate),
    "leakage": Stage("components.leakage.stage", "LeakageJob", "leakage", jobs.leakage),
    "leakage-together": Stage("components.leakage.stage", "LeakageJob", "leakage", jobs.leakage_together),
    "register": Stage("components.registry.stage", "RegisterJob", "register", jobs.register),
    "promote": Stage("components.registry.promote", "PromoteJob", "promote", jobs.promote),
    "report": Stage("components.reporting.stage", "ReportJob", "report", jobs.report),
}
#: Stages that train, and write checkpoints; on GPUs if there are any.
TRAINING = frozenset(
    (
        "pretrain",
        "adapt",
        "adapt-task",
        "finetune",
        "finetune-task-adapted",
        "finetune-after",
        "teach",
        "distil",
        "together",
    )
)


def run_stage(name: str, params: Params, *, item: str = WHOLE) -> Path:
    """Run one item of a stage, and copy its metrics and curve to the paths that dvc.yaml declares.

    DVC does not accept a metrics file inside another output, so `metrics.json` and `curve.csv` (or
    `learning_curve.csv`) of a stage's directory are copied to `metrics/<stage>/<item>.json` and
    `curves/<stage>/<item>.csv` below the run's folder.

    Raises:
        ConfigError: there is no such stage or item, or code or settings have changed since the stage `identity` ran.
    """
    if name not in STAGES:
        raise ConfigError(f"unknown stage {name!r}{nearest(name, STAGES)}")
    known = STAGES[name].items(params)
    if item not in known:
        if WHOLE in known:
            raise ConfigError(f"stage {name} has no items; found {item!r}")
        raise ConfigError(f"stage {name}: unknown item {item!r}{nearest(item, known)}")
    code = "" if name == IDENTITY else check_identity(name, item, params).code_digest
    requested = rebuild.requested(out(params), name, item) if name in rebuild.STAGES else ""
    written = STAGES[name].run(known[item], code=code, rebuild=requested)
    for file, folder in (("metrics.json", "metrics"), ("curve.csv", "curves"), ("learning_curve.csv", "curves")):
        if (source := written / file).is_file():
            target = out(params, folder, name, (item or name) + source.suffix)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(target, source.read_bytes())
    if requested:
        rebuild.fulfil(out(params), name, item)
    return written
