"""A fold sees nothing of its rows: words that occur only in held-out rows, their copies and their groups, labelled or
not, change nothing that is fitted for the fold."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from components.data.tasks.data import Split
from components.data.tasks.examples import ExamplesJob, examples, read_facts, read_split
from components.learners.base import Rows
from components.learners.baselines import baselines_of
from components.learners.finetuning.execution import choose_heads, judging
from components.learners.finetuning.fit import FinetuneJob
from components.learners.finetuning.runs import Member, execute
from components.learners.finetuning.stage import fits_of
from components.settings.tasks import TaskSource
from tests.example_task import ROWS, rows, write_jsonl

#: Words that are put into the held-out rows: unknown ones, and ones of the encoders' vocabularies.
PLANTED = {"one": "xylograph gold gold", "other": "quagga horse horse"}
PER_CLASS, GROUPS, BUDGET = 12, 12, 4


def given() -> list[dict[str, Any]]:
    """Rows in groups of three, and copies of some of them in no group."""
    actual = [{**row, "group": f"g{number % GROUPS}"} for number, row in enumerate(rows(PER_CLASS))]
    copies = [{**row, "text": f"{row['text']} !", "group": None} for row in actual[:6]]
    return actual + copies


def write(folder: Path, kind: str, found: list[dict[str, Any]]) -> Path:
    write_jsonl(folder / "train.jsonl", [ROWS[kind](row) | {"group": row["group"]} for row in found])
    write_jsonl(folder / "test.jsonl", [ROWS[kind](row) | {"group": None} for row in rows(2, offset=500)])
    budget = BUDGET if kind in ("classification", "pair") else 3 * BUDGET
    source = TaskSource(path=str(folder), kind=kind, dev=None, budgets=[budget], seeds=[0], folds=3, group="group")
    return examples(ExamplesJob(task="things", source=source, output=folder / "examples"))


def data_of(made: Path) -> Rows:
    """The run of the first budget; its texts without labels are those of the stage `unlabelled`."""
    train = read_split(made, "train")
    further = [("more text", "gold")[: len(train.fields[0])], *train.fields[::-1]]
    return Rows.of(made, read_facts(made).budgets[0], 0, further=further)


def planted(folder: Path, kind: str) -> dict[str, Path]:
    """The examples with each of the words in what belongs to the rows of fold 0."""
    data = data_of(write(folder / "plain", kind, given()))
    held = data.whole.units[data.drawn[data.folds == 0]]
    inside = np.isin(data.whole.units, held)
    assert 0 < inside.sum() < len(inside)
    assert inside.sum() > (data.folds == 0).sum(), "rows without labels belong to those of the fold"
    made = {}
    for name, words in PLANTED.items():
        actual = [
            {**row, "text": f"{row['text']} {words}"} if flag else row
            for row, flag in zip(given(), inside, strict=True)
        ]
        made[name] = write(folder / name, kind, actual)
        assert np.array_equal(data_of(made[name]).folds, data.folds)
    return made


def fitted_words(made: Path) -> dict[str, Any]:
    """The answers of every words model and baseline of fold 0 to rows without the words, and its vocabulary."""
    data, facts = data_of(made), read_facts(made)
    training = data.without(0)
    actual: dict[str, Any] = {}
    for name, system in baselines_of(facts.kind, language="en", which="all").items():
        for number, candidate in enumerate(system(training)):
            answers = candidate.model.answers(data.test.fields)
            actual[f"{name} {number}"] = (candidate.details, [answer.tolist() for answer in answers])
    return actual


@pytest.mark.parametrize("kind", sorted(ROWS))
def test_words_models_and_baselines(kind, tmp_path):
    single, other = (fitted_words(made) for made in planted(tmp_path, kind).values())
    assert single == other


@pytest.mark.parametrize("kind", ["classification", "pair"])
def test_a_leak_is_seen(kind, tmp_path, monkeypatch):
    """With the rows alone left out, and not what belongs to them."""
    made = planted(tmp_path, kind)
    monkeypatch.setattr(Split, "belonging", lambda split, rows: frozenset(split.digests[row] for row in rows))
    single, other = (fitted_words(folder) for folder in made.values())
    assert single != other


WAYS: dict[str, dict[str, Any]] = {
    "features": {"method": "features"},
    "contrastive": {"method": "contrastive"},
    "finetune": {"method": "finetune"},
    "label names": {"method": "features", "label_names": "always"},
}


def job_of(make_job: Any, made: Path, kind: str, **changes: Any) -> FinetuneJob:
    return make_job("bert", kind, **changes).model_copy(update={"examples": made})


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_learn(way, tmp_path, make_job, in_process, monkeypatch):
    states: list[dict[str, Tensor]] = []
    real = Member.result

    def noted(self):
        states.append({name: value.detach().clone() for name, value in self.model.state_dict().items()})
        return real(self)

    monkeypatch.setattr(Member, "result", noted)
    for made in planted(tmp_path, "classification").values():
        job = job_of(make_job, made, "classification", **WAYS[way])
        ((_, parts, _),) = choose_heads(tuple(fits_of(job, job.settings)))
        execute((parts[0],))
    single, other = states
    assert single.keys() == other.keys()
    assert all(torch.equal(single[name], other[name]) for name in single)


def test_no_task_of_a_group_reads_the_rows_of_another(tmp_path, make_job):
    """Both tasks have the same texts, whose folds differ."""
    jobs = [job_of(make_job, write(tmp_path / kind, kind, given()), kind) for kind in ("classification", "multilabel")]
    fits = tuple(fit for job in jobs for fit in fits_of(job, job.settings))
    for fold in judging(fits):
        rows = [single.rows() for single in fold]
        held = {digest for each in rows for digest in each.held_out.digests}
        learned = {digest for each in rows for digest in each.labelled.digests}
        assert held and learned and not held & learned
