"""Every task kind as a bundle: saved, loaded and called with the columns of its form."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch

from components.data.segmenters import Segmentation
from components.data.tasks.data import Split
from components.data.tasks.examples import TaskFacts
from components.data.tasks.kinds import find_kind, scoring_for
from components.learners.prediction import Predicted, predict_rows
from components.learners.task_models.classifier import load_classifier, save_classifier
from components.learners.task_models.kinds import TASKS
from components.learners.task_models.model import TaskModel
from components.models.encoder import build_model
from components.registry.judging import scored_rows
from components.registry.latency import measure_latency
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.tokenization.char import CharTokenizer
from components.tokenization.special import SPECIAL_PIECES
from tests.inference.files import predict_file

PIECES = [*SPECIAL_PIECES, *" .?,'", *map(chr, range(ord("a"), ord("z") + 1)), *map(chr, range(ord("A"), ord("Z") + 1))]
LABELS = {"tagging": ["B-X", "I-X", "O"], "similarity": [], "regression": [], "questions": [], "choice": []}
SETTINGS = FinetuneSettings(
    layers="last", pooling="mean", head_norm="none", max_length=96, training=Training(rate=0.1, batch_size=4)
)


@pytest.mark.parametrize("kind", TASKS)
def test_a_bundle_predicts_the_columns_of_its_form(kind: str, tmp_path: Path) -> None:
    labels = LABELS.get(kind, ["no", "yes"])
    CharTokenizer(PIECES, segmentation=Segmentation("none")).save(tmp_path / "tokenizer")
    torch.manual_seed(0)
    model = build_model("ulmfit", vocabulary=len(PIECES), settings={"embedding": 4, "hidden": 4, "layers": 1})
    save_classifier(
        tmp_path / "classifier",
        TaskModel(model, task=TASKS[kind], settings=SETTINGS, labels=labels),
        family="ulmfit",
        tokenizer=tmp_path / "tokenizer",
        facts={},
    )
    classifier = load_classifier(tmp_path / "classifier")
    form = find_kind(kind).io
    rows = [form.parse(example) for example in form.examples]
    fields = [row for row in rows if row is not None]
    answers = predict_rows(classifier, [*fields, None])
    assert [answer is None for answer in answers] == [False, False, True]

    source, output = tmp_path / "in.jsonl", tmp_path / "out.parquet"
    source.write_text("".join(json.dumps(example) + "\n" for example in form.examples))
    assert predict_file(source, output=output, classifier=classifier) == Predicted(2, 0)
    for row, answer in zip(pq.read_table(output).to_pylist(), answers, strict=False):
        assert answer is not None
        assert {name: row[name] for name in form.columns} == {name: answer[name] for name in form.columns}

    # Promotion needs its score, here with its own predictions as targets, and its latency.
    found = classifier.answer(fields)
    if kind in ("classification", "pair", "choice"):
        targets = [found[0].argmax(keepdims=True).astype(float), found[1].argmax(keepdims=True).astype(float)]
    elif kind == "multilabel":
        targets = [(answer >= 0.5).nonzero()[0].astype(float) for answer in found]
    elif kind == "questions":
        targets = [answer[:2].astype(float) if answer[0] < answer[1] else answer[:0].astype(float) for answer in found]
    else:
        targets = [answer.astype(float) for answer in found]
    facts = TaskFacts("any", kind, labels, {"test": "t"})
    test, statistics = scored_rows(facts, Split(fields, targets, [None, None]), {"m": classifier})
    best = scoring_for(kind, labels).score(fields, targets, found)
    assert test.scoring.scores(statistics["m"].sum(0))[test.scoring.main] == pytest.approx(best[test.scoring.main])
    assert measure_latency(classifier, fields).p50 > 0
