"""Abstention: thresholds of held-out rows, and the column in files, in the server and in Python."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from components.cli.prediction import app
from components.core.artifacts import read_manifest, writing
from components.core.errors import ConfigError
from components.data.tasks.data import Split
from components.learners.abstention import (
    FACT,
    AbstainingClassifier,
    save_classifier,
    share_at,
    threshold_of,
    thresholds_of,
)
from components.learners.domain import Domain
from components.registry.champion import Loader
from components.registry.drift.measurements import ObservedClassifier
from components.registry.version import Version
from components.serving.models import Served
from tests.inference.files import ByLength, predict_file

Run = tuple[list[np.ndarray], list[np.ndarray]]


def run(*rows: tuple[float, bool]) -> Run:
    """Targets and answers of rows with two labels: (confidence, whether the answer is right)."""
    targets = [np.array([0.0 if right else 1.0]) for _, right in rows]
    return targets, [np.array([confidence, 1 - confidence], dtype=np.float32) for confidence, _ in rows]


def rounded(*runs: Run) -> list[tuple[float, float]]:
    return [(round(value, 3), round(share, 3)) for value, share in thresholds_of(runs)]


def test_exact_thresholds():
    rows = [(0.95, True), (0.9, True), (0.9, True), (0.8, False), (0.7, True), (0.6, False)]
    # From the lowest confidence: (1 + 2) / 6, (1 + 1) / 5, (1 + 1) / 4 is no gain, (1 + 0) / 3; (1 + 0) / 1 is none.
    assert rounded(run(*rows)) == [(0.6, 0.5), (0.7, 0.4), (0.9, 0.333)]
    assert rounded(run(*rows[::-1])) == rounded(run(*rows))
    # The same rows with two seeds are no further evidence.
    assert rounded(run(*rows), run(*rows)) == rounded(run(*rows))
    assert rounded(run((0.9, False), (0.8, False))) == []
    assert rounded(run((0.9, True))) == []
    # A row of no class is a wrong answer.
    assert thresholds_of([([np.array([-1.0])] * 3, run(*rows)[1][:3])]) == []


def test_many_rows_have_few_thresholds():
    result = thresholds_of([run(*[(0.5 + index / 4000, index > 500) for index in range(2000)])])
    assert len(result) < 200
    shares = [share for _, share in result]
    assert shares == sorted(shares, reverse=True)


def test_the_share_of_errors_is_kept():
    """On rows like the held-out ones, for a confidence that says little of the probability."""
    rng = np.random.default_rng(0)

    def sample(count):
        confidence = rng.uniform(0.5, 1, count)
        right = rng.random(count) < 0.2 + 0.8 * confidence
        return run(*zip(confidence.tolist(), right.tolist(), strict=True))

    wrong = []
    for _ in range(100):
        threshold = min((value for value, share in thresholds_of([sample(200)]) if share <= 0.1), default=math.inf)
        targets, answers = sample(1000)
        pairs = zip(targets, answers, strict=True)
        given = [answer.argmax() != target[0] for target, answer in pairs if answer.max() >= threshold]
        wrong.append(np.mean(given) if given else 0.0)
    assert 0.03 < np.mean(wrong) <= 0.1


def saved(folder: Path, facts: dict[str, Any]) -> Path:
    with writing(folder, kind="classifier") as draft:
        draft.facts |= facts
    return folder


def test_the_threshold_of_a_model(tmp_path, capsys):
    folder = saved(tmp_path / "model", {FACT: [[0.6, 0.5], [0.7, 0.4], [0.9, 0.333]]})
    assert threshold_of(folder, 0.4, what="m") == 0.7
    assert threshold_of(folder, 0.39, what="m") == 0.9
    assert capsys.readouterr().err == ""
    assert threshold_of(folder, 0.05, what="m") == math.inf
    assert capsys.readouterr().err == (
        "m: every row abstains, because its held-out rows support no error below 0.333; more labels lower it\n"
    )
    with pytest.raises(ConfigError, match="share of errors 5: give a number above 0 and below 1"):
        threshold_of(folder, 5, what="m")
    with pytest.raises(ConfigError, match="m: has no thresholds for an error of 0.1.*training it again adds them"):
        threshold_of(saved(tmp_path / "earlier", {}), 0.1, what="m")
    facts = {FACT: [[0.6, 0.5], [0.9, 0.3]]}
    assert [share_at(facts, value) for value in (0.5, 0.6, 0.95)] == [None, 0.5, 0.3]
    assert share_at({}, 0.9) is None


@pytest.mark.parametrize(("kind", "able"), [("regression", False), ("pair", True)])
def test_only_kinds_with_a_confidence_abstain(kind, able, tmp_path):
    rows = Split([("a b", "c")], [np.array([0.0])], [None])
    save_classifier(
        path := tmp_path / "m", [lambda _: None], kind=kind, rows=rows, held_out=[run((0.9, True))], facts={}
    )
    assert (FACT in read_manifest(path).facts, Domain.read(path) is not None) == (able, able)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_the_column_of_a_file(suffix, tmp_path):
    source, output = tmp_path / "in.csv", tmp_path / f"out{suffix}"
    source.write_text("text\nabc\nlonger\n\n")
    predict_file(source, output=output, classifier=AbstainingClassifier(ByLength(), 0.8))
    read = {
        ".csv": pd.read_csv,
        ".tsv": lambda path: pd.read_csv(path, sep="\t"),
        ".jsonl": lambda path: pd.read_json(path, lines=True),
        ".parquet": pd.read_parquet,
    }[suffix]
    frame = read(output)
    assert frame["prediction"].tolist()[:2] == ["short", "long"]
    assert frame["abstained"].tolist()[:2] == [True, False]
    assert pd.isna(frame["abstained"][2]) if len(frame) > 2 else True


def test_a_column_of_that_name_is_not_overwritten(tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("text,abstained\nabc,1\n")
    with pytest.raises(Exception, match="already has a column 'abstained'; rename it"):
        predict_file(source, output=tmp_path / "out.csv", classifier=AbstainingClassifier(ByLength(), 0.8))


def test_a_served_model_names_the_column():
    inner = AbstainingClassifier(ByLength(), 0.8)
    for classifier in (inner, ObservedClassifier(inner, lambda rows, measured: None)):
        served = Served(Version("m", "1", "", "", {}), classifier)
        assert list(served.io.outputs)[-2:] == ["out_of_domain", "abstained"]
    assert not hasattr(inner, "answer_measured")
    row = served.io.format(("abc",), ByLength().answer([("abc",)])[0], ["short", "long"])
    assert json.dumps(row["abstained"]) == "true"


def test_parts_of_another_threshold_are_not_used(tmp_path):
    version = Version("m", "1", "", "", {})
    loaders = [Loader(tmp_path, version, lambda inner, version: inner, False, value) for value in (None, 0.5, 0.6)]
    assert len({loader.identity for loader in loaders}) == 3


def test_forms_of_annotation_tools_have_no_such_column(tmp_path):
    arguments = ["predict", "in.csv", str(tmp_path / "out.json"), "--format", "label-studio", "--error", "0.1"]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith("--error adds columns, which label-studio has no place for")
