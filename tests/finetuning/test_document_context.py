"""Tagging with the sentences around a sentence in its document (FLERT)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from components.finetuning.stage import FinetuneJob, finetune
from components.inference.parts import LoadableModel, PartOptions, predict_parts
from components.models import FAMILIES
from components.models.encoder import load_encoder
from components.serving.requests import read_rows
from components.settings.cluster import ClusterSettings
from components.settings.finetune import FinetuneSettings
from components.settings.tasks import TaskSource
from components.settings.training import Training
from components.task_models.classifier import load_classifier
from components.task_models.kinds.tagging import encode, reach
from components.tasks.documents import InDocument, between, in_documents
from components.tasks.examples import ExamplesJob, examples, read_split
from components.tasks.kinds import find_kind
from tests.example_task import WORDS, cluster, in_process, make_encoder, settings  # noqa: F401
from tests.finetuning.interruption import digests, finish_interrupted, with_checkpoints
from tests.inference.files import predict_file

MakeJob = Callable[..., FinetuneJob]
#: The spans of six words of 1, 2, 1, 3, 1 and 2 pieces.
SPANS = np.array([[0, 0], [1, 2], [3, 3], [4, 6], [7, 7], [8, 9]])


@pytest.mark.parametrize(
    ("sentence", "each", "most", "expected"),
    [
        ((2, 4), 0, 20, (2, 4)),
        # Whole words only: of the word of two pieces before, one would fit; of those after, the first.
        ((2, 4), 1, 20, (2, 5)),
        ((2, 4), 2, 20, (1, 5)),
        ((2, 4), 3, 20, (0, 6)),
        # Less at the borders of the document.
        ((0, 1), 3, 20, (0, 3)),
        ((5, 6), 3, 20, (4, 6)),
        # The sentence has 4 pieces; 2 more are shared by both sides.
        ((2, 4), 3, 6, (2, 5)),
        ((2, 4), 3, 4, (2, 4)),
        # One side has what the other leaves.
        ((0, 2), 5, 7, (0, 4)),
        ((4, 6), 9, 7, (2, 6)),
    ],
)
def test_the_words_around_a_sentence(
    sentence: tuple[int, int], each: int, most: int, expected: tuple[int, int]
) -> None:
    assert reach(SPANS, sentence, each=each, most=most) == expected


def windows(rows: list[Any], encoder: Path, **changes: Any) -> list[tuple[list[str], list[list[str]]]]:
    """Pieces of each row's sequences, and those of the words that are tagged."""
    loaded = load_encoder(encoder)
    made = FinetuneSettings.model_validate({"training": {"rate": 0.01, "batch_size": 4}, **changes})
    found = []
    for row in encode(rows, loaded.tokenizer, loaded.model, made):
        sequences = [[loaded.tokenizer.pieces[piece] for piece in pieces] for pieces in row.pieces]
        tagged = [
            sequence[first : last + 1]
            for sequence, units in zip(sequences, row.units, strict=True)
            for first, last in units.tolist()
        ]
        found.append((sequences, tagged))
    return found


def test_sequences_with_context(make_encoder) -> None:  # noqa: F811
    rows = in_documents([("red", "apple"), ("the", "iron"), ("a", "horse"), ("the", "goat")], ["1", "1", "1", "2"])
    encoder = make_encoder("bert")
    begin, end = windows([("red",)], encoder)[0][0][0][:1], windows([("red",)], encoder)[0][0][0][-1:]
    assert windows(
        [rows[1], rows[3], between(("the", "iron"), left=["x", "red", "apple"], right=["a"])], encoder, context=1
    ) == [
        ([[*begin, "apple", "the", "iron", "a", *end]], [["the"], ["iron"]]),
        # No text of another document.
        ([[*begin, "the", "goat", *end]], [["the"], ["goat"]]),
        ([[*begin, "apple", "the", "iron", "a", *end]], [["the"], ["iron"]]),
    ]
    # Without the setting a document changes nothing.
    plain = windows([tuple(row) for row in rows], encoder)
    assert windows(rows, encoder) == plain
    assert plain == windows([tuple(row) for row in rows], encoder, context=8)
    # Context is in addition to max_length, up to the limit of the encoder; a longer sentence has none.
    [(sequences, _)] = windows([rows[1]], encoder, context=2, max_length=4)
    assert sequences == [[*begin, "red", "apple", "the", "iron", "a", "horse", *end]]
    long = InDocument(("the", "iron") * 3, [("red",), ("the", "iron") * 3], 1)
    [(sequences, tagged)] = windows([long], encoder, context=4, max_length=4)
    assert len(sequences) > 1 and tagged == [["the"], ["iron"]] * 3
    assert all("red" not in sequence for sequence in sequences)


def sentence(number: int) -> dict[str, Any]:
    """The tag of `x` is the kind of the word in the previous sentence of the document."""
    document, place = divmod(number, 2)
    kind = list(WORDS)[document % 2]
    if place == 0:
        return {"words": ["the", WORDS[kind][document % 3]], "tags": ["O", "O"], "doc": str(document)}
    return {"words": ["a", "here"], "tags": ["O", f"B-{kind}"], "doc": str(document)}


@pytest.fixture
def make_job(make_encoder, settings, cluster, tmp_path: Path) -> MakeJob:  # noqa: F811
    def make(family: str, *, name: str = "out", keys: dict[str, Any] | None = None, **changes: Any) -> FinetuneJob:
        folder = tmp_path / "task"
        folder.mkdir(exist_ok=True)
        for split, numbers in (("train", range(24)), ("test", range(24, 40))):
            lines = [json.dumps(sentence(number)) + "\n" for number in numbers]
            (folder / f"{split}.jsonl").write_text("".join(lines))
        source = TaskSource.model_validate(
            {"path": str(folder), "kind": "tagging", "dev": None, "document": "doc", "budgets": ["all"], "seeds": [0],
             "overlap": "report", "folds": 2} | (keys or {})
        )  # fmt: skip
        return FinetuneJob(
            task="units",
            family=family,
            start="adapted",
            examples=examples(ExamplesJob(task="units", source=source, output=tmp_path / "examples")),
            encoder=make_encoder(family),
            output=tmp_path / name,
            settings=settings.model_copy(update={"context": 3} | changes),
            cluster=cluster,
        )

    return make


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_reads_context(family: str, make_job: MakeJob, in_process, tmp_path: Path) -> None:  # noqa: F811
    length = 14 if family != "flair" else 40
    job = make_job(
        family, tagger="bilstm_crf", tagger_hidden=4, epochs=1, evaluations=1, head_steps=5, max_length=length,
        keys={"budgets": [6]}, context=4 if family != "flair" else 20,
    )  # fmt: skip
    output = finetune(job)
    test = read_split(job.examples, "test").fields
    rows = pq.read_table(output / "runs.parquet").to_pylist()
    found = [np.asarray(row["answer"], dtype=np.float32) for row in rows if row["split"] == "test"]
    # Training, prediction of a split, of a file and of requests encode the same text.
    classifier = load_classifier(output / "classifier")
    assert all(np.array_equal(*both) for both in zip(found, classifier.answer(test), strict=True))
    source = tmp_path / "task" / "test.jsonl"
    predict_file(
        source, output=tmp_path / "out.jsonl", classifier=classifier, columns={"document": "doc"}, batch_size=3
    )
    written = [json.loads(line)["prediction"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    named = [" ".join(classifier.labels[int(tag)] for tag in answer) for answer in found]
    assert written == named
    requests = [{"words": list(words), "left": words.before(9), "right": words.after(9)} for words in test]  # type: ignore[attr-defined]
    given = read_rows(
        json.dumps({"inputs": requests}).encode(), find_kind("tagging").io, characters=500, most=100
    ).fields
    assert all(np.array_equal(*both) for both in zip(found, classifier.answer(given), strict=True))


def test_context_decides_and_files_are_one_part(make_job: MakeJob, in_process, tmp_path: Path) -> None:  # noqa: F811
    """A tag that only the previous sentence determines is learned with context, and not without it."""
    scores = {}
    training = Training(rate=0.02, batch_size=8, precision="float32")
    for context in (0, 3):
        job = make_job(
            "bert", name=f"out-{context}", context=context, training=training, epochs=80, evaluations=4, dropout=0.0,
            head_dropout=0.0, discriminative=1.0, unfreeze_epochs=0, head_steps=0,
            keys={"selection": "dev", "dev": "test.jsonl"},
        )  # fmt: skip
        output = finetune(job)
        scores[context] = json.loads((output / "runs.json").read_text())[0]["curve"][-1]["span_f1"]
    assert scores[3] > 0.9 > 0.7 > scores[0]
    source, classifier = tmp_path / "task" / "test.jsonl", load_classifier(tmp_path / "out-3" / "classifier")
    results = []
    for name, columns in (("apart", {}), ("whole", {"document": "doc"})):
        output = tmp_path / f"{name}.jsonl"
        options = PartOptions(ClusterSettings(launcher="local"), workers=1, columns=columns, part_bytes=100)
        predict_parts(source, output, model=LoadableModel(lambda: classifier, "tagging", "x"), options=options)
        results.append([json.loads(line)["prediction"] for line in output.read_text().splitlines()])
    truth = [" ".join(sentence(number)["tags"]) for number in range(24, 40)]
    agree = [np.mean([one == two for one, two in zip(found, truth, strict=True)]) for found in results]
    assert agree[1] > 0.9 > agree[0]


def test_an_interrupted_run_ends_bit_identical(make_job: MakeJob, in_process, monkeypatch) -> None:  # noqa: F811
    def job(name: str) -> FinetuneJob:
        return with_checkpoints(
            make_job("bert", name=name, tagger="crf", keys={"selection": "dev", "dev": "test.jsonl"})
        )

    unbroken, broken = finetune(job("unbroken")), job("broken")
    assert finish_interrupted(broken, monkeypatch, at_step=2) == 2
    assert digests(broken.output) == digests(unbroken)
