"""Measuring a published encoder on a task: every kind, texts longer than the encoder reads at once."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from components.cli.onboarding import starts
from components.data.tasks.kinds import KINDS, find_kind
from components.settings.tasks import TaskSource
from components.studies.logme import logme
from tests.example_task import ROWS, make_encoder, rows, write_jsonl  # noqa: F401


@pytest.fixture
def measured(tmp_path: Path, make_encoder, monkeypatch):  # noqa: F811
    """measured(kind, repeat, alone) -> the encoder on 36 rows, whose text has `repeat` copies of itself."""
    encoder = make_encoder("bert")
    monkeypatch.setattr(starts, "import_encoder", lambda folder, output: shutil.copytree(folder, output))

    def measure(kind: str, *, repeat: int = 1, alone: bool = True) -> starts.Measured:
        given = [ROWS[kind](row | {"text": " ".join([row["text"]] * repeat)}) for row in rows(12)]
        write_jsonl(tmp_path / "task" / "train.jsonl", given)
        source = TaskSource(path=str(tmp_path / "task"), kind=kind, dev=None, test=None)
        examples = find_kind(kind).read("task", source)
        return starts.measure(str(encoder), examples, source=source, name="mini", alone=alone)

    return measure


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("repeat", [1, 30])
def test_every_kind_is_measured_with_texts_of_any_length(measured, kind, repeat):
    result = measured(kind, repeat=repeat)
    assert 0 < result.texts_per_second < math.inf
    assert 0 < result.tokens_per_second < math.inf
    # What is longer than a sequence is read in windows where the kind has them.
    assert result.reading.cut == 0 or kind in ("pair", "similarity", "choice")


def test_evidence_is_computed_only_to_compare_starts(measured):
    assert math.isnan(measured("classification").logme)
    assert math.isfinite(measured("classification", alone=False).logme)
    assert math.isfinite(measured("pair", alone=False).logme)
    assert math.isnan(measured("questions", alone=False).logme)


@pytest.mark.parametrize(("rows", "features"), [(30, 5), (12, 20)])
def test_the_evidence_is_the_maximum_over_both_variances_and_does_not_depend_on_the_scale(rows, features):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, features))
    labels = (x[:, 0] + 0.3 * rng.normal(size=rows) > 0).astype(int) + 2 * (x[:, 1] > 1)

    def best(targets: np.ndarray) -> float:
        """max of log N(y; 0, I / beta + F F^T / alpha) / N, with the weights integrated out."""

        def negative(logs: np.ndarray) -> float:
            covariance = np.eye(rows) * np.exp(logs[0]) + x @ x.T * np.exp(logs[1])
            return -float(multivariate_normal(cov=covariance).logpdf(targets)) / rows

        options = {"xatol": 1e-7, "fatol": 1e-10}
        begun = [np.array([a, b]) for a in (-2.0, 2.0) for b in (-2.0, 2.0)]
        return -min(minimize(negative, at, method="Nelder-Mead", options=options).fun for at in begun)

    expected = pytest.approx(np.mean([best(labels == label) for label in np.unique(labels)]), abs=1e-5)
    assert logme(x, labels) == expected
    # With as many features as rows, the maximum may be at the least noise that floats can express.
    if rows > features:
        assert [logme(scale * x, labels) for scale in (1e-3, 1e5)] == [expected] * 2
