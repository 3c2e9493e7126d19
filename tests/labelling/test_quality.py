"""Labels that look wrong, twins with different labels."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from components.cli import main as cli
from components.labelling import models
from components.labelling.quality import different_twins, plant, suspects
from components.labelling.review import review
from components.settings.params import Params
from tests.example_task import WORDS, rows, write_jsonl

Project = Callable[..., Params]


def test_wrong_labels_are_found_by_confident_learning():
    pytest.importorskip("cleanlab")
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 300)
    probabilities = np.eye(3)[true] * 0.6 + rng.dirichlet(np.ones(3), 300) * 0.4
    given = true.copy()
    given[:30] = (given[:30] + 1) % 3
    given[40] = -1  # no class
    actual = suspects([np.asarray([g], dtype=float) for g in given], probabilities, ["a", "b", "c"], exclusive=True)
    marked = {item.row for item in actual}
    assert len(marked & set(range(30))) >= 28 and len(marked - set(range(30))) <= 2 and 40 not in marked
    assert all(item.proposed == ("abc"[true[item.row]],) for item in actual if item.row < 30)
    qualities = [item.quality for item in actual]
    assert qualities == sorted(qualities) and qualities[-1] < 0
    same = suspects([np.asarray([0.0])] * 4, probabilities[:4], ["a", "b", "c"], exclusive=True)
    assert same == [] == suspects([], probabilities[:0], ["a"], exclusive=True)


def test_the_list_of_weak_models_is_short_and_holds_the_least_probable_labels():
    """As of words models: where a third of the rows is predicted wrongly, confident learning marks most of these."""
    pytest.importorskip("cleanlab")
    rng = np.random.default_rng(0)
    true = rng.integers(0, 6, 419)
    believed = np.where(rng.random(419) < 0.33, rng.integers(0, 6, 419), true)
    probabilities = 0.5 * np.eye(6)[believed] + 0.15 * np.eye(6)[true] + 0.35 * rng.dirichlet(np.ones(6), 419)
    given, planted = plant(true, 6)
    assert len(planted) == 30 and (given != true).sum() == 30 and set(np.flatnonzero(given != true)) == {*planted}
    actual = suspects([np.asarray([g], dtype=float) for g in given], probabilities, list("abcdef"), exclusive=True)
    assert len(actual) <= 42 and len({item.row for item in actual} & {*planted.tolist()}) >= 15
    unclassed, changed = plant(np.array([-1, 0, 1, -1]), 2)
    assert unclassed[0] == unclassed[3] == -1 and len(changed) == 1


def test_copies_of_a_row_are_in_its_fold(project, monkeypatch):
    """A wrong label whose copies are learned would be found by them, and hidden by copies with the same label."""
    seen: list[int] = []
    params = project(count=12)
    texts = [json.loads(line) for line in Path("task/train.jsonl").read_text().splitlines()]
    write_jsonl(Path("task/train.jsonl"), [*texts, *(row | {"text": row["text"].upper()} for row in texts)])
    fitted = models.fitted

    def recorded(features, given, **more):
        rows, copies = np.unique(features.toarray(), axis=0, return_counts=True)
        seen.append(len(rows))
        assert {*copies.tolist()} == {2}
        return fitted(features, given, **more)

    monkeypatch.setattr(models, "fitted", recorded)
    review(params)
    assert len(seen) > 5 and 20 < min(seen) < max(seen) == 36


def test_wrong_labels_of_several():
    pytest.importorskip("cleanlab")
    rng = np.random.default_rng(1)
    true = rng.random((200, 3)) < 0.5
    probabilities = np.where(true, 0.9, 0.1) + rng.uniform(-0.08, 0.08, true.shape)
    given = true.copy()
    given[:10, 0] ^= True
    targets = [np.flatnonzero(row).astype(float) for row in given]
    actual = suspects(targets, probabilities, ["a", "b", "c"], exclusive=False)
    assert len({item.row for item in actual}) >= 9 and {item.row for item in actual} <= set(range(10))
    assert all(("a" in item.proposed) == true[item.row, 0] for item in actual)


def test_twins():
    texts = ["the old house stands near the river", "The old house stands near the river!", "a horse", "a horse", "x"]
    actual = different_twins([(text,) for text in texts], [("a",), ("b",), ("a",), ("a",), ("b",)])
    assert [(pair.first, pair.second, pair.similarity) for pair in actual] == [(0, 1, 1.0)]


def wrong(project: Project) -> tuple[Params, dict[str, str]]:
    """A task with two wrong labels."""
    params = project(count=12)
    actual = rows(12)
    true = {row["text"]: row["label"] for row in actual}
    actual[0]["label"], actual[10]["label"] = "metal", "animal"
    write_jsonl(Path("task/train.jsonl"), actual)
    return params, true


def test_wrong_labels_are_found_by_cross_validation(project, monkeypatch):
    pytest.importorskip("cleanlab")
    params, true = wrong(project)

    def telling(params, texts, **_):
        """Features that tell the true class."""
        words = [[any(word in fields[0].split() for word in group) for group in WORDS.values()] for fields in texts]
        return np.asarray(words, dtype=np.float32), "classes"

    monkeypatch.setattr(models, "frozen", telling)
    actual = review(params)
    assert actual.sources == "cross-validation of a regression on classes for 42 rows"
    marked = {actual.rows[suspect.row].fields[0] for suspect in actual.suspects}
    assert marked == {row.fields[0] for row in actual.rows[:36] if row.labels != (true[row.fields[0]],)}


def test_the_command_writes_what_should_be_looked_at(project):
    pytest.importorskip("cleanlab")
    wrong(project)
    done = CliRunner().invoke(cli.app, ["label-quality"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "cross-validation of a regression on words for 42 rows" in done.output
    assert "test: of 3 labels changed on purpose, " in done.output
    with Path("things-label-quality.csv").open(encoding="utf-8-sig", newline="") as file:
        actual = list(csv.DictReader(file))
    assert list(actual[0]) == ["text", "label", "proposed", "given", "why", "where"]
