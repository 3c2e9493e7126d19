"""The few-labels benchmark: the same rows for all systems, cells that are kept, and the numbers of its summary."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.comparison import peers, sets, summary
from benchmarks.comparison.headstart import HEADSTART, settings_of
from benchmarks.comparison.sets import Cells, Key, score
from components.data.tasks.budgets import sample_rows
from components.data.tasks.examples import ExamplesJob, examples, read_facts, read_split
from components.settings.tasks import TaskSource


def _cell(predicted: list[int], *, seconds: float = 1.0, **others: Any) -> dict[str, Any]:
    spent = {"learn_seconds": seconds, "predict_seconds": 0.5, "megabytes": 10.0}
    return {"data": "", "predicted": predicted, **spent, **others}


KEY = Key("sst2", 8, 0, "tfidf")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """SST-2 in small: twelve rows of train, two of test, one of them also in train."""
    folder = tmp_path / "raw" / "sst2"
    folder.mkdir(parents=True)
    rows = [f"{word} film {number}\t{label}" for label, word in enumerate(("bad", "good")) for number in range(6)]
    (folder / "train.tsv").write_text("\n".join(rows) + "\n")
    (folder / "dev.tsv").write_text("a bad one\t0\n")
    (folder / "test.tsv").write_text("a bad film\t0\na<br />good film\t1\ngood film 3\t1\n")
    return tmp_path / "raw"


def test_all_systems_have_the_same_rows(data, tmp_path, monkeypatch):
    prepared = sets.prepare("sst2", data=data, folder=tmp_path / "sets")
    texts = json.loads((prepared.folder / "peers.json").read_text())
    assert texts.keys() == {"train", "labels", "test"}
    assert ["good film 3"] not in texts["train"]
    assert texts["test"] == [["a bad film"], ["a good film"], ["good film 3"]]
    assert prepared.truth.tolist() == [0, 1, 1]
    for system in HEADSTART:
        raw = settings_of(system, "sst2", prepared, data=data, encoder=tmp_path)
        source = raw["data"]["tasks"]["sst2"]
        written = examples(ExamplesJob(task="sst2", source=TaskSource(**source), output=tmp_path / system))
        train = read_split(written, "train")
        assert [list(row) for row in train.fields] == texts["train"]
        assert train.labels.tolist() == texts["labels"]
        assert read_facts(written).labels == prepared.names
        for draw in (0, 1):
            rows, _ = sample_rows(train.labels, 3, seed=draw)
            assert prepared.rows(3, draw).tolist() == rows.tolist()
    assert prepared.rows(3, 0).tolist() != prepared.rows(3, 1).tolist()
    # A second call reads what the first one wrote.
    monkeypatch.setattr(sets, "_write", lambda *arguments: pytest.fail("prepared twice"))
    assert sets.prepare("sst2", data=data, folder=tmp_path / "sets").digest == prepared.digest


def test_a_killed_run_goes_on(tmp_path):
    path = tmp_path / "cells.jsonl"
    cells = Cells(path)
    cells.add(KEY, {"data": "one", "predicted": [0]})
    with path.open("a") as file:
        file.write('{"set": "sst2", "budget": 8, "dr')  # killed while writing
    cells.add(Key("sst2", 8, 1, "tfidf"), {"data": "one", "predicted": [1]})
    again = Cells(path)
    assert [key.draw for key, _ in again] == [0, 1]
    assert again.has(KEY, "one")
    assert not again.has(KEY, "other rows")
    assert not again.has(Key("sst2", 16, 0, "tfidf"), "one")


def test_a_peer_answers_in_a_process_of_its_own(data, tmp_path):
    prepared = sets.prepare("sst2", data=data, folder=tmp_path / "sets")
    request = {"set": "sst2", "data": str(prepared.folder / "peers.json"), "draw": 0, "cache": str(tmp_path)}
    lines = [json.dumps(request | {"rows": rows}) + "\n" for rows in (list(range(len(prepared.labels))), [0])]
    script = Path(peers.__file__)
    done = subprocess.run(
        [sys.executable, script, "tfidf", "--encoder", "none"], input="".join(lines), capture_output=True, text=True
    )
    answer, refused = map(json.loads, done.stdout.splitlines())
    assert answer["predicted"] == [0, 1, 1]
    assert answer["learn_seconds"] > 0
    assert answer["megabytes"] > 10
    # One class only: scikit-learn's message, and the process answers on.
    assert "error" in refused


def test_scores_are_those_of_the_evaluation():
    # Class 0: F1 2/3; class 1: F1 0; class 2 does not occur in test.
    result = score([0, 0, 2], np.array([0, 1, 0]), ["a", "b", "c"])
    assert result == {"macro_f1": pytest.approx(0.25), "accuracy": pytest.approx(1 / 3)}


def test_differences_are_paired_and_draws_common(tmp_path):
    cells = Cells(tmp_path / "cells.jsonl")
    truth = [0, 1] * 50
    wrong = [0] * 100
    half = [0, 1] * 25 + [0, 0] * 25
    for draw, (setfit, frozen) in enumerate([(truth, half), (half, wrong), (truth, truth)]):
        cells.add(Key("sst2", 8, draw, "setfit"), _cell(setfit))
        if draw < 2:
            cells.add(Key("sst2", 8, draw, "embeddings"), _cell(frozen))
    table = summary.table_of(cells)
    assert summary.draws_of_row(table["sst2", 8]) == [0, 1]
    assert summary.draws_of_row({"setfit": {0: {}, 1: {}}, "fastai": {0: {}}}) == [0, 1]
    rows = summary.differences(table, lambda name: (np.array(truth), ["a", "b"]), "accuracy")
    mean, low, high = rows["SST-2, 8 a class"]["setfit-embeddings"]
    assert mean == pytest.approx(0.25)
    assert low < 0.25 < high
    alone = summary.scored(table["sst2", 8]["setfit"], [0], (np.array(truth), ["a", "b"]), "accuracy")
    assert alone.estimate() == (1.0,)


def test_the_mean_over_sets_has_the_variances_of_the_sets():
    """Three draws that agree by chance over the sets say little of the next three."""
    sets = [(0.0, -0.3, 0.3), (0.3, -0.1, 0.7)]
    assert summary.mean_over_sets(sets) == pytest.approx((0.15, 0.15 - 0.25, 0.15 + 0.25))
    assert summary.mean_over_sets([*sets, (0.3,)]) == pytest.approx((0.2,))
