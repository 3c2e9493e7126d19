"""`label_names`: names of labels as training texts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from components.core.errors import DataError
from components.data.tasks.examples import TaskFacts, read_facts
from components.learners.finetuning.fit import NAMES, label_fields, load_initial_encoder, names_of
from components.learners.finetuning.runs import Member
from components.learners.finetuning.stage import finetune, fits_of
from components.learners.task_models.base import refuse_settings
from components.learners.task_models.kinds import TASKS
from components.learners.task_models.sampler import matrix
from components.settings.contrastive import ContrastiveSettings
from components.settings.tasks import TaskSource
from tests.finetuning.interruption import BUDGET, learned

KINDS = sorted(kind for kind, task in TASKS.items() if task.single and task.labels_rows)
pytestmark = pytest.mark.usefixtures("few_pairs")


def test_the_text_of_a_label():
    texts = {
        "card_payment": "card payment",
        "sci-tech": "sci tech",
        "BookRestaurant": "Book Restaurant",
        "HUM": "HUM",
        "ดี": "ดี",
        "__label__good": "label good",
        # Without letters, it is read as it is.
        "_": "_",
        "3": "3",
    }
    facts = TaskFacts("t", "classification", list(texts), {})
    assert label_fields(facts) == [[(text,)] for text in texts.values()]
    given = replace(facts, label_texts={"HUM": ["given", "too"]})
    assert label_fields(given)[3] == [("given",), ("too",)]


@pytest.mark.parametrize(
    ("family", "method", "kind"),
    [
        ("bert", "features", "multilabel"),
        ("elmo", "contrastive", "classification"),
        ("glove", "finetune", "multilabel"),
        ("gpt", "contrastive", "multilabel"),
        ("ulmfit", "finetune", "classification"),
    ],
)
def test_every_way(family, method, kind, make_job, in_process):
    few = {"contrastive": ContrastiveSettings(epochs=1)} if method == "contrastive" else {}
    record = learned(make_job(family, kind, source=BUDGET, method=method, label_names="always", **few))
    assert record["label_names"] is True
    assert record["penalties"] and all("with label names" in candidate for candidate in record["penalties"])


@pytest.fixture
def head_rows(monkeypatch) -> list[Any]:
    """(labelled rows, the rows on which a head is trained) of every head from now on."""
    rows, real = [], Member.head_rows

    def noted(self, names):
        rows.append((len(self.rows.labelled), real(self, names)))
        return rows[-1][1]

    monkeypatch.setattr(Member, "head_rows", noted)
    return rows


@pytest.mark.parametrize(
    ("changes", "method"),
    [({"head_hidden": 3}, "features"), ({"layers": "mix"}, "features"), ({"chunk": 8}, "finetune")],
)
def test_heads_that_are_not_solved_or_read_several_vectors(changes, method, make_job, in_process, head_rows):
    job = make_job("bert", "classification", source=BUDGET, method=method, label_names="always", **changes)
    learned(job)
    count = len(read_facts(job.examples).labels)
    assert all(len(rows.inputs) == len(rows.targets) == train + count for train, rows in head_rows)


@pytest.mark.parametrize("selection", ["budget", "dev"])
def test_auto_is_the_better_of_with_and_without(selection, make_job, in_process):
    source = BUDGET if selection == "budget" else {}
    options: dict[str, Any] = {"method": "features", "head_norm": "auto", "head_penalties": [1.0, 100.0]}
    record = learned(make_job("bert", "classification", source=source, label_names="auto", **options))
    assert len(record["penalties"]) == 12
    suffix = " with label names" if record["label_names"] else ""
    best = max(record["penalties"].values())
    assert record["penalties"][f"{record['head_norm']} {record['penalty']}{suffix}"] == best
    # The other half are the scores of a run without names.
    without = learned(make_job("bert", "classification", name="without", source=source, **options))
    assert {key: value for key, value in record["penalties"].items() if "names" not in key} == without["penalties"]
    assert "label_names" not in without


def test_auto_needs_names_that_are_words(make_job, in_process):
    changes: dict[str, Any] = {"method": "features", "label_names": "auto"}
    job = make_job("bert", "classification", **changes)
    assert names_of(next(fits_of(job, job.settings))) == [True, False]
    texts = {"label_texts": {read_facts(job.examples).labels[0]: "3"}}
    coded = make_job("bert", "classification", name="coded", source=texts, **changes)
    assert "label_names" not in learned(coded)


@pytest.mark.parametrize("kind", sorted(set(TASKS) - set(KINDS)))
def test_other_kinds_are_refused(kind, settings):
    refused = refuse_settings(TASKS[kind], settings.model_copy(update={"label_names": "always"}))
    assert refused is not None and refused.endswith(f"set it to none for kind {kind}")
    assert refuse_settings(TASKS[kind], settings.model_copy(update={"label_names": "auto"})) is None


def test_texts_of_labels_are_checked(make_job):
    with pytest.raises(DataError, match=r"label_texts: 'positve' is not a label; the labels are "):
        make_job("bert", "classification", source={"label_texts": {"positve": "good"}})
    with pytest.raises(DataError, match=r"label_texts: 'good' is not a label; a task of kind regression has none"):
        make_job("bert", "regression", source={"label_texts": {"good": "good"}})
    # Numbers are labels too.
    given = {0: "negative", "1": ["positive", "good"]}
    assert TaskSource(path=".", label_texts=given).label_texts == {"0": ["negative"], "1": ["positive", "good"]}
    for wrong in ([], " "):
        with pytest.raises(ValidationError, match=r"label_texts\.0"):
            TaskSource(path=".", label_texts={0: wrong})


@pytest.mark.parametrize("chunk", [None, 8])
def test_the_vectors_of_several_texts_are_averaged(chunk, make_job, in_process, head_rows):
    """A head on the frozen encoder learns from one row for each label; what trains the encoder reads all texts."""
    texts = {"fruit": ["a b c", "the cat and the dog and the mat", "b"]}
    options: dict[str, Any] = {"method": "features", "label_names": "always", "chunk": chunk}
    job = make_job("bert", "classification", source={**BUDGET, "label_texts": texts}, **options)
    finetune(job)
    fit, labels = next(fits_of(job, job.settings)), read_facts(job.examples).labels
    assert labels.index("fruit") == 1
    each = fit.features(NAMES)
    assert len(each) == len(labels) + 2
    whose = np.repeat(
        np.repeat(np.arange(len(labels)), [1, 3, *[1] * (len(labels) - 2)]), [len(row.vectors) for row in each]
    )
    expected = torch.stack([matrix(each)[whose == label].mean(0) for label in range(len(labels))])
    for _, rows in head_rows:
        assert [int(target[0]) for target in rows.targets[-len(labels) :]] == list(range(len(labels)))
        torch.testing.assert_close(matrix(rows.inputs)[-len(labels) :], expected)
    read = Member(fit, *load_initial_encoder(fit)).learned()
    assert [int(target[0]) for target in read.targets[-len(each) :]] == [0, 1, 1, 1, *range(2, len(labels))]
    assert len(read.targets) == len(read.inputs)
