"""What transfer was worth, and negative transfer, for predictions with known metrics."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import Task, content_of, job_of, record_of, run_of

ROWS = 400
LABELS = np.arange(ROWS) % 2
SLICES = ["first" if row < ROWS // 2 else "second" for row in range(ROWS)]


def right(share: float, seed: int) -> np.ndarray:
    """(ROWS,) bool: `share` of the rows. For one seed, a larger share includes the rows of a smaller one."""
    order = np.random.default_rng(seed).permutation(ROWS)
    return np.argsort(order) < round(share * ROWS)


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """run({start: accuracy, that at each budget, or f(budget, seed) -> (N,) correct}, dev={start: metric on dev},
    labels={budget: labels per class in train}) -> evaluation.json of ULMFiT; scratch has those of SCRATCH."""
    rows = [((f"text {row}",), [LABELS[row]], SLICES[row]) for row in range(ROWS)]
    task = Task("classification", ["no", "yes"], {"train": rows[:100], "dev": rows[:20], "test": rows})

    def evaluated(
        shares: dict[str, Any], dev: dict[str, float] | None = None, labels: dict[int, int] | None = None
    ) -> dict[str, Any]:
        runs = []
        for start, of in ({"scratch": SCRATCH} | shares).items():
            for budget, count in (labels or {budget: budget for budget in SCRATCH}).items():
                for seed in (0, 1, 2):
                    share = of[budget] if isinstance(of, dict) else of
                    correct = of(budget, seed) if callable(of) else right(share, seed)
                    test = np.where(np.eye(2)[np.where(correct, LABELS, 1 - LABELS)], np.float32(0.8), np.float32(0.2))
                    record = record_of(budget, seed, 2 * count, [(dev or {}).get(start, 0.5)])
                    answers = {"dev": test[:20], "test": test}
                    runs.append(run_of(f"ulmfit-{start}", record, answers, family="ulmfit", start=start))
        return content_of(job_of(tmp_path / str(len(list(tmp_path.iterdir()))), task, runs))

    return evaluated


SCRATCH = {4: 0.6, 16: 0.7, 64: 0.8}


def test_what_transfer_was_worth(run):
    content = run({"pretrained": 0.7, "adapted": 0.75}, dev={"adapted": 0.6})
    few, some, _ = (row for row in content["label_efficiency"] if row["system"] == "ulmfit-adapted")
    # 0.75 is halfway between 0.7 at 16 and 0.8 at 64 labels: 32 in the logarithm.
    assert (few["budget"], few["labels"], few["least"], few["most"]) == (4, 4, 4, 64)
    assert few["needs"]["mean"] == pytest.approx(32, rel=0.01)
    assert 16 < few["needs"]["low"] < 32 < few["needs"]["high"] < 64
    assert few["ratio"]["mean"] == pytest.approx(8, rel=0.01)
    assert some["ratio"]["mean"] == pytest.approx(2, rel=0.01)
    labels, low, high = (f"{few['needs'][bound]:.3g}" for bound in ("mean", "low", "high"))
    assert content["headline"] == (
        f"With 4 labels a class, ulmfit (adapted) reaches macro F1 0.750; training from scratch needs {labels} labels "
        f"a class [{low}, {high}]: transfer was worth {few['ratio']['mean']:.3g} times the labels."
    )


def test_scores_that_scratch_does_not_reach(run):
    content = run({"adapted": 0.95})
    few = content["label_efficiency"][0]
    assert few["needs"] == {"mean": None, "low": None, "high": None}
    assert content["headline"].endswith(
        "needs more than 64 labels a class: transfer was worth over 16 times the labels."
    )


def test_a_saving_of_labels_is_claimed_only_beyond_the_bounds(run):
    """Two equal recipes with a flat curve: the mean of scratch stays below the score, its bounds do not."""
    flat = {"scratch": 0.7, "adapted": lambda budget, seed: right(0.71, 50 + seed)}
    content = run(flat)
    few = content["label_efficiency"][0]
    assert few["needs"] == {"mean": None, "low": 4.0, "high": None}
    assert content["headline"].endswith(
        "training from scratch needs more than 64 labels a class [4, more than 64]: that transfer saves labels is not "
        "shown."
    )
    content = run(flat | {"scratch": {4: 0.5, 16: 0.7, 64: 0.7}})
    few = content["label_efficiency"][0]
    assert few["needs"]["mean"] is None and 4 < few["needs"]["low"] < 16
    assert f"transfer was worth {few['ratio']['low']:.3g} times the labels or more." in content["headline"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("labels", [{4: 4}, {4: 4, 16: 4, 64: 4}], ids=["one budget", "no more rows in train"])
def test_a_single_number_of_labels_has_no_label_curve(run, labels):
    content = run({"scratch": 0.6, "adapted": 0.9}, labels=labels)
    assert {row["against"] for row in content["benefits"]} == {"epochs"}
    assert content["headline"].endswith("needs more than 4 labels a class; an estimate needs larger budgets.")


def test_the_headline_is_about_the_best_system_on_dev(run):
    content = run({"pretrained": 0.55, "adapted": 0.75}, dev={"pretrained": 0.6})
    assert content["headline"].startswith(
        "With 4 labels a class, ulmfit (pretrained) reaches macro F1 0.550; training from scratch"
    )
    # The curve of scratch starts above the score.
    assert "needs 4 or fewer labels a class [4, " in content["headline"]
    assert content["headline"].endswith("that transfer saves labels is not shown.")
    # `best` is decided on test.
    assert content["best"]["4"] == "ulmfit-adapted"


def test_a_slice_with_negative_transfer(run):
    def adapted(budget, seed):
        # Much better on the first slice, worse on the second.
        correct = right(SCRATCH[budget], seed)
        correct[: ROWS // 2] = True
        correct[ROWS // 2 :] &= np.random.default_rng(seed).random(ROWS // 2) < 0.5
        return correct

    content = run({"adapted": adapted})
    largest = content["transfer"]["ulmfit"][-1]
    assert largest["budget"] == 64
    parts = {(part["part"], part["name"]): part for part in largest["parts"]}
    assert parts.keys() == {("all", ""), ("class", "no"), ("class", "yes"), ("slice", "first"), ("slice", "second")}
    assert parts["slice", "second"]["starts"]["adapted"]["hurts"]
    assert not parts["slice", "first"]["starts"]["adapted"]["hurts"] and parts["slice", "second"]["rows"] == 200
    of, scratch = parts["slice", "second"]["starts"]["adapted"], parts["slice", "second"]["scratch"]
    assert of["difference"]["mean"] == pytest.approx(of["score"]["mean"] - scratch["mean"])
    assert of["difference"]["low"] < of["difference"]["mean"] < of["difference"]["high"] < 0
    cell = next(system for system in content["systems"] if system["system"] == "ulmfit-adapted")["budgets"][-1]
    assert of["score"]["mean"] == pytest.approx(cell["slices"]["second"]["macro_f1"])
    assert parts["all", ""]["starts"]["adapted"]["score"]["mean"] == pytest.approx(cell["scores"]["macro_f1"]["mean"])


def test_a_decrease_within_the_interval_does_not_count(run):
    content = run({"scratch": 0.8, "adapted": lambda budget, seed: right(0.79, seed + 10)})
    parts = content["transfer"]["ulmfit"][0]["parts"]
    assert not any(part["starts"]["adapted"]["hurts"] for part in parts)
    assert parts[0]["starts"]["adapted"]["difference"]["mean"] == pytest.approx(-0.01, abs=0.002)
