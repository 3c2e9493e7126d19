"""The settings of a run as arguments of each stage's jobs.

One function per stage: settings -> item -> arguments of the job. An item is what dvc.yaml calls `${key}`. The paths
that a stage reads and writes are in dvc.yaml too, which is written from them.
"""

from components.pipeline.jobs.common import CORPORA, PARALLEL, WHOLE, Arguments, out
from components.pipeline.jobs.corpora import (
    checks,
    domain_texts,
    ingest,
    ingest_parallel,
    tokenize,
    tokenize_parallel,
    tokenizer,
    tokenizer_parallel,
)
from components.pipeline.jobs.encoders import adapt, adapt_task, pretrain, scratch, static, task_tokens
from components.pipeline.jobs.results import (
    identity,
    promote,
    read_by_promote,
    read_by_register,
    read_by_report,
    register,
    report,
)
from components.pipeline.jobs.tasks import (
    baseline,
    distil,
    distil_texts,
    evaluate,
    examples,
    finetune,
    finetune_after,
    finetune_task_adapted,
    intermediate,
    leakage,
    leakage_together,
    share,
    teach,
    together,
    unlabelled,
)

__all__ = [
    "Arguments",
    "CORPORA",
    "PARALLEL",
    "WHOLE",
    "adapt",
    "adapt_task",
    "baseline",
    "checks",
    "distil",
    "distil_texts",
    "domain_texts",
    "evaluate",
    "examples",
    "finetune",
    "finetune_after",
    "finetune_task_adapted",
    "identity",
    "ingest",
    "ingest_parallel",
    "intermediate",
    "leakage",
    "leakage_together",
    "out",
    "pretrain",
    "promote",
    "read_by_promote",
    "read_by_register",
    "read_by_report",
    "register",
    "report",
    "scratch",
    "share",
    "static",
    "task_tokens",
    "teach",
    "together",
    "tokenize",
    "tokenize_parallel",
    "tokenizer",
    "tokenizer_parallel",
    "unlabelled",
]
