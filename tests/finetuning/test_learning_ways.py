"""Benchmarks of ways to learn: the rows, the settings, and both sides of the comparison with SetFit."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

import pytest

from components.tasks.examples import read_facts, read_split
from components.training import threads
from tests.example_task import rows


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(threads, "prepare", lambda: None)
    monkeypatch.setattr(threads, "own", lambda count: None)
    return importlib.import_module("benchmarks.learning_ways")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split, offset in (("train", 0), ("dev", 100)):
        lines = [f"{row['text']}\t{row['label']}\n" for row in rows(4, offset=offset)]
        (tmp_path / f"{split}.tsv").write_text("".join(lines))
    return tmp_path


def test_every_way_is_valid_and_named_settings_are_read(ways) -> None:
    for way in ways.WAYS:
        assert ways.merged(ways.settings_of(way)[1]).layers == "last"
    name, changes = ways.settings_of("{slow: {training: {rate: 0.00001}}}")
    assert name == "slow" and ways.merged(changes).training.rate == 1e-5
    assert ways.merged(changes).training.batch_size == ways.COMMON["training"]["batch_size"]


def test_rows_of_trec_are_divided_into_train_and_dev(ways, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(ways, "DEV", 2)
    lines = [f"{number % 2} question {number} \xe9?" for number in range(6)]
    (tmp_path / "TREC.train.all").write_text("\n".join(lines), encoding="latin-1")
    train, dev = (list(ways.rows_of(tmp_path, split)) for split in ("train", "dev"))
    assert len(dev) == 2 and sorted(train + dev) == sorted((line[2:], line[0]) for line in lines)


def test_a_choice_within_the_labels_is_scored_on_other_rows(
    ways, make_encoder, in_process, tmp_path: Path, monkeypatch
) -> None:
    header = "sentence_A\tsentence_B\tentailment_judgment\n"
    for name, offset in (("SICK_train.txt", 0), ("SICK_trial.txt", 100)):
        lines = [f"{row['text']}\ta {row['part']}\t{row['label']}\n" for row in rows(4, offset=offset)]
        (tmp_path / name).write_text(header + "".join(lines))
    task = ways.make_examples(
        tmp_path, name="pairs", budgets=[2], draws=2, dev=6, scratch=tmp_path / "scratch", selection="budget"
    )
    facts = read_facts(task)
    assert (facts.kind, facts.selection, len(read_split(task, "test"))) == ("pair", "budget", 6)
    records = ways.scores(make_encoder("bert"), task, ways.merged(ways.WAYS["frozen, length"]), scratch=tmp_path)
    found = ways.scored(records, 2)
    assert set(found) == {0, 1} and all(0 <= score <= 1 for score in found.values())
    row = ways.compared({0: 0.5, 1: 0.7}, {0: 0.4, 1: 0.4}, 3.0)
    # Gains 0.1 and 0.3: standard error 0.1, t = 12.706.
    assert row["gain"] == pytest.approx([0.2, 0.2 - 1.2706, 0.2 + 1.2706], abs=1e-4)
    assert row["score"] == pytest.approx([0.6])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["learning_ways.py", "--data", f"pairs={tmp_path.parent}", "--ways", "a b"])
    ways._record(argparse.Namespace(selection="budget", record="gains", dev=6, draws=2), {"pairs": row})
    written = json.loads((tmp_path / "docs" / "results" / "gains.json").read_text())
    assert written["selection"] == "dev"
    assert written["command"] == f"python learning_ways.py --data pairs={tmp_path.parent.name} --ways 'a b'"


def test_a_way_is_scored_on_dev(ways, folder: Path, make_encoder, in_process, tmp_path: Path) -> None:
    task = ways.make_examples(folder, name="things", budgets=[2], draws=2, dev=6, scratch=tmp_path / "scratch")
    assert read_facts(task).selection == "dev" and len(read_split(task, "dev")) == 6
    changes = {"method": "contrastive", "evaluations": 1, "contrastive": {"epochs": 1}, "max_length": 16}
    records = ways.scores(make_encoder("bert"), task, ways.merged(changes), scratch=tmp_path)
    row = ways.summary(records, 2)
    assert len(records) == 2 and row["best"][0] >= max(row["frozen"][0], row["last"][0]) - 1e-9
