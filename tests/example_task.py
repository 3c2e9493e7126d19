"""A task with three classes that are determined by one word, and tiny encoders of every family."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch

from components.data.tasks.examples import ExamplesJob, examples
from components.data.tasks.members import save_members
from components.learners.baselines.stage import BaselineJob, baseline
from components.learners.finetuning.stage import FinetuneJob
from components.learners.task_models.classifier import TextClassifier
from components.learners.task_models.model import TaskModel
from components.learners.words.classifier import Stored, write_words
from components.models import FAMILIES
from components.models.encoder import build_model
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings
from components.settings.tasks import TaskSource
from components.settings.training import Training
from components.tokenization import load_tokenizer
from tests.encoders import stored
from tests.tokenizers import make_tokenizer

WORDS = {"fruit": ["apple", "pear", "plum"], "metal": ["iron", "zinc", "gold"], "animal": ["horse", "goat", "cat"]}
FILLER = ["the", "a", "red", "old", "is", "here", "there", "small", "large", "very"]


def rows(count: int, *, offset: int = 0) -> list[dict[str, str]]:
    """`count` different rows of each class; rows of another offset are different texts."""
    actual = []
    for number in range(offset, offset + count):
        for label, words in WORDS.items():
            fillers = [FILLER[(number // 10**place) % 10] for place in range(3)]
            text = " ".join([*fillers, words[number % 3], FILLER[(number * 7) % 10], f"{number}"])
            actual.append({"text": text, "label": label, "part": "even" if number % 2 == 0 else "odd"})
    return actual


def write_jsonl(path: Path, found: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in found))


def save_classifier(
    directory: Path, model: TaskModel, *, family: str, tokenizer: Path, facts: dict[str, Any], **stored: Any
) -> None:
    """Write one task model as a directory; `stored` are fields of a `TextClassifier`."""
    classifier = TextClassifier(model, load_tokenizer(tokenizer), **stored)
    save_members(directory, [partial(classifier.write, family=family, tokenizer=tokenizer)], facts=facts)


def save_words(
    directory: Path, *, models: Sequence[Stored], kind: str, labels: Sequence[str], facts: dict[str, Any]
) -> None:
    """Write words models, of which several are averaged, as a directory."""
    save_members(directory, [partial(write_words, model, kind=kind, labels=labels) for model in models], facts=facts)


@pytest.fixture
def source(tmp_path: Path) -> TaskSource:
    """A complete task on disk: 12 rows per class in train, 6 in dev, 8 in test."""
    folder = tmp_path / "task"
    write_jsonl(folder / "train.jsonl", rows(12))
    write_jsonl(folder / "dev.jsonl", rows(6, offset=100))
    write_jsonl(folder / "test.jsonl", rows(8, offset=200))
    return TaskSource(path=str(folder), slice="part", budgets=[2, 4], seeds=[0, 1], selection="dev")


@pytest.fixture
def task(source: TaskSource, tmp_path: Path) -> Path:
    """The output directory of the stage `examples` for this task."""
    return examples(ExamplesJob(task="things", source=source, output=tmp_path / "examples"))


@pytest.fixture
def make_encoder(tmp_path: Path) -> Callable[..., Path]:
    """make_encoder(family, trained=True) -> an encoder directory; its weights are random whatever `trained` says."""

    def make(family: str, *, trained: bool = True) -> Path:
        words = [word for group in WORDS.values() for word in group] + FILLER
        digits = [str(digit) for digit in range(10)]
        kind = FAMILIES[family].tokenizers[0]
        if kind == "char":
            pieces = sorted({*"".join(words), *" 0123456789"})
        elif kind in ("word", "open_word"):
            # No digits: the numbers at the end of the texts are unknown words.
            pieces = words
        else:
            kind, pieces = "wordpiece", [*words, *digits, *(f"##{digit}" for digit in digits)]
        tokenizer = make_tokenizer(kind, pieces)
        torch.manual_seed(1)
        model = build_model(family, vocabulary=tokenizer.vocab_size, settings=FAMILIES[family].tiny)
        return stored(tmp_path / f"encoder-{family}-{trained}", family, model, tokenizer, trained=trained)

    return make


@pytest.fixture
def settings() -> FinetuneSettings:
    """Few steps, with dropout, so that its random numbers are covered."""
    training = Training(rate=0.01, batch_size=4, precision="float32", schedule="slanted_triangular")
    return FinetuneSettings(epochs=2, evaluations=2, head_steps=20, head_penalties=[1.0, 100.0], training=training)


@pytest.fixture
def cluster(tmp_path: Path) -> ClusterSettings:
    return ClusterSettings(launcher="local", storage=str(tmp_path / "store"))


@pytest.fixture
def make_things_job(
    task: Path, make_encoder: Callable[..., Path], settings: FinetuneSettings, cluster: ClusterSettings, tmp_path: Path
) -> Callable[..., FinetuneJob]:
    """make_things_job(family="ulmfit", name="out", trained=True, **settings) -> a job with its own storage."""

    def make(family: str = "ulmfit", *, name: str = "out", trained: bool = True, **changes: object) -> FinetuneJob:
        return FinetuneJob(
            task="things",
            family=family,
            start="adapted" if trained else "scratch",
            examples=task,
            encoder=make_encoder(family, trained=trained),
            output=tmp_path / name,
            settings=settings.model_copy(update=changes),
            cluster=cluster.model_copy(update={"storage": f"{cluster.storage}-{name}"}),
        )

    return make


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are executed sequentially in this process with one thread, instead of in a pool."""

    def one_by_one(function, items, *, settings, gpu_bytes):
        for index, item in enumerate(items):
            yield index, function(item)

    monkeypatch.setattr("components.learners.finetuning.execution.map_parallel", one_by_one)
    torch.set_num_threads(1)


KIND_OF = {word: label for label, words in WORDS.items() for word in words}


def thing(text: str) -> str:
    """The word that determines the class of a text."""
    return next(word for word in text.split() if word in KIND_OF)


def tagged(row: dict[str, str]) -> dict[str, Any]:
    words = row["text"].split()
    return {"words": words, "tags": [f"B-{KIND_OF[word]}" if word in KIND_OF else "O" for word in words]}


def question_row(row: dict[str, str]) -> dict[str, Any]:
    word = thing(row["text"])
    learned = row["label"] != "animal"
    answers = (
        {"text": [word], "answer_start": [row["text"].index(word)]} if learned else {"text": [], "answer_start": []}
    )
    return {"question": f"what is {'here' if learned else 'gold'}", "context": row["text"], "answers": answers}


#: Kind of task -> one of the rows of `rows` -> a row of that kind.
ROWS: dict[str, Callable[[dict[str, str]], dict[str, Any]]] = {
    "classification": lambda row: {"text": row["text"], "label": row["label"]},
    "multilabel": lambda row: {
        "text": row["text"],
        "label": [row["label"]] * (row["label"] != "animal") + [row["part"]],
    },
    "pair": lambda row: {"first": row["text"], "second": f"a {thing(row['text'])}", "label": row["label"]},
    "similarity": lambda row: {
        "first": row["text"],
        "second": "gold",
        "score": len(row["label"]) + len(row["part"]) / 2,
    },
    "regression": lambda row: {"text": row["text"], "score": len(row["label"]) + len(row["part"]) / 2},
    "tagging": tagged,
    "questions": question_row,
    "choice": lambda row: {"text": row["text"], "choices": ["apple", "iron", thing(row["text"])], "label": "2"},
}


@pytest.fixture
def make_task(tmp_path: Path) -> Callable[..., Path]:
    """make_task(kind, **keys of the source) -> an output directory of the stage `examples`."""

    def make(kind: str, **keys: Any) -> Path:
        folder = tmp_path / f"task-{kind}"
        for split, count, offset in (("train", 4, 0), ("dev", 2, 100), ("test", 2, 200)):
            write_jsonl(folder / f"{split}.jsonl", [ROWS[kind](row) for row in rows(count, offset=offset)])
        source = TaskSource(
            path=str(folder), kind=kind, **{"budgets": ["all"], "seeds": [0], "selection": "dev"} | keys
        )
        return examples(ExamplesJob(task="things", source=source, output=tmp_path / f"examples-{kind}"))

    return make


@pytest.fixture
def make_job(
    make_task: Callable[..., Path], make_encoder: Callable[..., Path], settings: FinetuneSettings, tmp_path: Path
) -> Callable[..., FinetuneJob]:
    """make_job(family, kind, name="out", source={}, **settings) -> a job with its own storage."""

    def make(
        family: str,
        kind: str,
        *,
        name: str = "out",
        source: Mapping[str, Any] = MappingProxyType({}),
        **changes: object,
    ) -> FinetuneJob:
        small = {"epochs": 1, "evaluations": 1, "head_steps": 3, "head_penalties": [10.0], "max_length": 24}
        made, baselines = make_task(kind, **source), None
        if changes.get("words") == "auto":
            baselines = baseline(BaselineJob(examples=made, output=tmp_path / f"baselines-{name}"))
        return FinetuneJob(
            task="things",
            family=family,
            start="adapted",
            examples=made,
            baselines=baselines,
            encoder=make_encoder(family),
            output=tmp_path / name,
            settings=settings.model_copy(update=small | {"pooling": "mean", "layers": "last"} | changes),
            cluster=ClusterSettings(launcher="local", storage=str(tmp_path / f"store-{name}")),
        )

    return make
