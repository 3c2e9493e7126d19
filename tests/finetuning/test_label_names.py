"""`label_names`: names of labels as training texts."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from components.core.errors import DataError
from components.data.tasks.examples import TaskFacts, read_facts
from components.learners.finetuning.fit import NAMES, FinetuneJob, label_fields, load_initial_encoder, names_of
from components.learners.finetuning.runs import Member
from components.learners.finetuning.stage import finetune, fits_of
from components.learners.task_models.base import refuse_settings
from components.learners.task_models.kinds import TASKS
from components.models import FAMILIES
from components.settings.contrastive import ContrastiveSettings
from components.settings.tasks import TaskSource

from .test_crossvalidation import BUDGET, check

KINDS = sorted(kind for kind, task in TASKS.items() if task.single and task.labels_rows)
METHODS = ("features", "contrastive", "finetune")
FEW = ContrastiveSettings(epochs=1)
pytestmark = pytest.mark.usefixtures("few_pairs")


def fit_of(job: FinetuneJob) -> Any:
    return next(iter(fits_of(job, job.settings)))


def record_of(job: FinetuneJob) -> dict[str, Any]:
    (record,) = json.loads((finetune(job) / "runs.json").read_text())
    actual: dict[str, Any] = record
    return actual


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("card_payment", "card payment"),
        ("sci-tech", "sci tech"),
        ("BookRestaurant", "Book Restaurant"),
        ("HUM", "HUM"),
        ("ดี", "ดี"),
        ("__label__good", "label good"),
    ],
)
def test_the_text_of_a_label(label, text):
    facts = TaskFacts("t", "classification", [label, "other"], {})
    assert label_fields(facts) == [[(text,)], [("other",)]]
    assert label_fields(replace(facts, label_texts={label: ["given", "too"]})) == [[("given",), ("too",)], [("other",)]]


def test_a_label_without_letters_is_read_as_it_is():
    assert label_fields(TaskFacts("t", "classification", ["_", "3"], {})) == [[("_",)], [("3",)]]


@pytest.mark.parametrize(
    ("family", "method", "kind"), [*zip(sorted(FAMILIES), cycle(METHODS), cycle(KINDS), strict=False)]
)
def test_every_family_and_way(family, method, kind, make_job, in_process):
    few = {"contrastive": FEW} if method == "contrastive" else {}
    job = make_job(family, kind, source=BUDGET, method=method, label_names="always", **few)
    output = finetune(job)
    check(job, output)
    (record,) = json.loads((output / "runs.json").read_text())
    assert record["label_names"] is True
    assert record["penalties"] and all("with label names" in candidate for candidate in record["penalties"])


@pytest.mark.parametrize(
    ("changes", "method"),
    [({"head_hidden": 3}, "features"), ({"layers": "mix"}, "features"), ({"chunk": 8}, "finetune")],
)
def test_heads_that_are_not_solved_or_read_several_vectors(changes, method, make_job, in_process, monkeypatch):
    rows = []
    real = Member._head_rows

    def noted(self, **given):
        actual = real(self, **given)
        rows.append((len(self.rows.labelled), len(actual.table), len(actual.targets)))
        return actual

    monkeypatch.setattr(Member, "_head_rows", noted)
    job = make_job("bert", "classification", source=BUDGET, method=method, label_names="always", **changes)
    output = finetune(job)
    check(job, output)
    count = len(read_facts(job.examples).labels)
    assert all((table, targets) == (train + count, train + count) for train, table, targets in rows)


@pytest.mark.parametrize("selection", ["budget", "dev"])
def test_auto_is_the_better_of_with_and_without(selection, make_job, in_process):
    source = BUDGET if selection == "budget" else {}
    options: dict[str, Any] = {"method": "features", "head_norm": "auto", "head_penalties": [1.0, 100.0]}
    job = make_job("bert", "classification", source=source, label_names="auto", **options)
    record = record_of(job)
    assert len(record["penalties"]) == 12
    best = max(record["penalties"].values())
    suffix = " with label names" if record["label_names"] else ""
    assert record["penalties"][f"{record['head_norm']} {record['penalty']}{suffix}"] == best
    # The other half are the scores of a run without names.
    without = record_of(make_job("bert", "classification", name="without", source=source, **options))
    assert {key: value for key, value in record["penalties"].items() if "names" not in key} == without["penalties"]
    assert "label_names" not in without


def test_auto_needs_names_that_are_words(make_job, in_process):
    job = make_job("bert", "classification", method="features", label_names="auto")
    labels = read_facts(job.examples).labels
    assert names_of(fit_of(job)) == [True, False]
    coded = make_job(
        "bert", "classification", name="coded", source={"label_texts": {labels[0]: "3"}}, method="features",
        label_names="auto",
    )  # fmt: skip
    assert names_of(fit_of(coded)) == [None]
    assert "label_names" not in record_of(coded)


@pytest.mark.parametrize("kind", sorted(set(TASKS) - set(KINDS)))
def test_other_kinds_are_refused(kind, settings, make_job, in_process):
    refused = refuse_settings(TASKS[kind], settings.model_copy(update={"label_names": "always"}))
    assert refused is not None and refused.endswith(f"set it to none for kind {kind}")
    assert refuse_settings(TASKS[kind], settings.model_copy(update={"label_names": "auto"})) is None


def test_a_text_of_an_unknown_label_is_refused(make_job):
    with pytest.raises(DataError, match=r"label_texts: 'positve' is not a label; the labels are "):
        make_job("bert", "classification", source={"label_texts": {"positve": "good"}})
    with pytest.raises(DataError, match=r"label_texts: 'good' is not a label; a task of kind regression has none"):
        make_job("bert", "regression", source={"label_texts": {"good": "good"}})


def test_numbers_are_labels_too():
    assert TaskSource(path=".", label_texts={0: "negative", "1": ["positive", "good"]}).label_texts == {
        "0": ["negative"],
        "1": ["positive", "good"],
    }
    with pytest.raises(ValidationError, match=r"label_texts\.0"):
        TaskSource(path=".", label_texts={0: []})
    with pytest.raises(ValidationError, match=r"label_texts\.0"):
        TaskSource(path=".", label_texts={0: " "})


@pytest.mark.parametrize("chunk", [None, 8])
def test_the_vectors_of_several_texts_are_averaged(chunk, make_job, in_process, monkeypatch):
    """A head on the frozen encoder learns from one row for each label; what trains the encoder reads all texts."""
    heads, real = [], Member._head_rows

    def noted(self, **given):
        heads.append(real(self, **given))
        return heads[-1]

    monkeypatch.setattr(Member, "_head_rows", noted)
    texts = {"fruit": ["a b c", "the cat and the dog and the mat", "b"]}
    options: dict[str, Any] = {"method": "features", "label_names": "always", "chunk": chunk}
    job = make_job("bert", "classification", source={**BUDGET, "label_texts": texts}, **options)
    finetune(job)
    fit, labels = fit_of(job), read_facts(job.examples).labels
    assert labels.index("fruit") == 1
    each = fit.features(NAMES)
    assert len(each) == len(labels) + 2
    whose = np.repeat(np.repeat(np.arange(len(labels)), [1, 3, *[1] * (len(labels) - 2)]), each.counts)
    expected = torch.stack([each.matrix()[whose == label].mean(0) for label in range(len(labels))])
    for rows in heads:
        assert [int(target[0]) for target in rows.targets[-len(labels) :]] == list(range(len(labels)))
        torch.testing.assert_close(rows.table.matrix()[-len(labels) :], expected)
    learned = Member(fit, *load_initial_encoder(fit)).training_rows()
    assert [int(target[0]) for target in learned.targets[-len(each) :]] == [0, 1, 1, 1, *range(2, len(labels))]
    assert len(learned.targets) == len(learned.inputs)
