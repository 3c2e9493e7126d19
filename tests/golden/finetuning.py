"""Tiny fine-tuning runs whose losses and gradient norms are stored: one per kind of task."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import torch

from components.core import threads
from components.core.artifacts import writing
from components.data.tasks.examples import ExamplesJob, examples
from components.learners.finetuning.stage import FinetuneJob, finetune
from components.learners.task_models.kinds import TASKS
from components.models import FAMILIES
from components.models.encoder import KIND, build_model, save_encoder
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings
from components.settings.tasks import TaskSource
from components.settings.training import Training
from components.tokenization import load_tokenizer
from components.training.loop import StepReport, train
from tests.training.helpers import tokenizer_of

FAMILY: Final = "gpt"
TOPICS: Final = {"trade": ["wool", "salt", "boats"], "nature": ["river", "sea"], "building": ["bridge", "old"]}
FILLER: Final = ["the", "from", "to", "with", "and", "down", "go", "runs"]
ROWS: Final = {"train": 8, "dev": 4, "test": 4}
#: Runs in addition to one per kind: name -> (kind, fine-tuning settings).
VARIANTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "task-multilabel-features": ("multilabel", {"method": "features", "head_hidden": 6}),
    "task-tagging-crf": ("tagging", {"tagger": "bilstm_crf"}),
}


def names() -> list[str]:
    """The runs."""
    return [*(f"task-{kind}" for kind in TASKS), *VARIANTS]


def settings_of(name: str) -> dict[str, Any]:
    """The settings with which a run is recorded."""
    kind, changes = VARIANTS.get(name, (name.removeprefix("task-"), {}))
    # Not Adam, which scales the rounding errors of a gradient that is 0 to the size of a step.
    training = Training(rate=0.1, optimizer="sgd", batch_size=4, precision="float32", schedule="slanted_triangular")
    values = {"epochs": 2, "evaluations": 1, "head_steps": 3, "head_penalties": [10.0], "max_length": 16} | changes
    settings = FinetuneSettings.model_validate({**values, "training": training})
    tokenizer, model = tokenizer_of(FAMILY), dict(FAMILIES[FAMILY].tiny)
    actual = {"kind": kind, "tokenizer": tokenizer, "model": model, "finetune": settings.model_dump()}
    return json.loads(json.dumps(actual))


def fine_tune(settings: dict[str, Any], *, inputs: Path, folder: Path) -> dict[str, list[float]]:
    """Fine-tune an encoder in this process; returns loss and gradient norm of every step. The encoder is random.

    Args:
        settings: what `settings_of` returned.
        inputs: what `make_inputs` wrote.
        folder: for everything that is written.
    """
    source = folder / "source"
    source.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for split, rows in ROWS.items():
        lines = [json.dumps(_row(settings["kind"], rng)) for _ in range(rows * len(TOPICS))]
        (source / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    task = TaskSource(path=str(source), kind=settings["kind"], budgets=["all"], seeds=[0], selection="dev")
    tokenizer = inputs / "tokenizer" / f"general-{settings['tokenizer']}"
    torch.manual_seed(0)
    model = build_model(FAMILY, vocabulary=load_tokenizer(tokenizer).vocab_size, settings=settings["model"])
    with writing(folder / "encoder", kind=KIND) as draft:
        save_encoder(draft.path, family=FAMILY, model=model, tokenizer=tokenizer)
    job = FinetuneJob(
        task="golden",
        family=FAMILY,
        start="pretrained",
        examples=examples(ExamplesJob(task="golden", source=task, output=folder / "examples")),
        encoder=folder / "encoder",
        output=folder / "output",
        settings=FinetuneSettings.model_validate(settings["finetune"]),
        cluster=ClusterSettings(launcher="local", storage=str(folder / "store")),
    )
    reports: list[StepReport] = []

    def recording(*arguments: Any, **named: Any) -> Iterator[StepReport]:
        for report in train(*arguments, **named):
            reports.append(report)
            yield report

    stage = "components.learners.finetuning"
    with (
        threads.limited(1),
        mock.patch("components.learners.task_models.taggers.LSTM_WIDTH", 6),
        mock.patch(f"{stage}.execution.map_parallel", _one_by_one),
        mock.patch(f"{stage}.runs.train", recording),
        mock.patch("components.learners.task_models.probe.train", recording),
    ):
        finetune(job)
    values = [(report.loss, report.gradient_norm) for report in reports]
    return {"losses": [loss for loss, _ in values], "gradient_norms": [norm for _, norm in values]}


def _one_by_one(function: Any, items: Any, *, settings: ClusterSettings, gpu_bytes: int) -> Iterator[tuple[int, Any]]:
    for index, item in enumerate(items):
        yield index, function(item)


def _row(kind: str, rng: np.random.Generator) -> dict[str, Any]:
    """A row of the kind: a word of a topic among fillers; the topic, or the word's position, is the answer."""
    topic = str(rng.choice(list(TOPICS)))
    word = str(rng.choice(TOPICS[topic]))
    words = [str(filler) for filler in rng.choice(FILLER, 5)]
    words.insert(int(rng.integers(6)), word)
    text = " ".join(words)
    rows: dict[str, dict[str, Any]] = {
        "classification": {"text": text, "label": topic},
        "multilabel": {"text": text, "label": [topic, "early"] if words.index(word) < 3 else [topic]},
        "pair": {"first": text, "second": f"the {word}", "label": topic},
        "similarity": {"first": text, "second": f"the {word}", "score": words.index(word) / 5},
        "regression": {"text": text, "score": words.index(word) / 5},
        "tagging": {"words": words, "tags": [f"B-{topic}" if other == word else "O" for other in words]},
        "questions": {
            "question": f"the {topic}",
            "context": text,
            "answers": {"text": [word], "answer_start": [text.index(word)]},
        },
        "choice": {"text": text, "choices": ["the old", "with salt", f"the {word}"], "label": "2"},
    }
    return rows[kind]
