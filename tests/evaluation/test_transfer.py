"""What transfer was worth, and negative transfer, for predictions with known metrics."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .conftest import Results, Task, content_of, job_of, record_of

ROWS = 400
BUDGETS = (4, 16, 64)
LABELS = np.arange(ROWS) % 2
SLICES = ["first" if row < ROWS // 2 else "second" for row in range(ROWS)]


def right(share: float, seed: int) -> np.ndarray:
    """(ROWS,) bool: `share` of the rows. For one seed, a larger share includes the rows of a smaller one."""
    order = np.random.default_rng(seed).permutation(ROWS)
    return np.argsort(order) < round(share * ROWS)


def answers(correct: np.ndarray) -> np.ndarray:
    actual = np.full((ROWS, 2), 0.2, dtype=np.float32)
    actual[np.arange(ROWS), np.where(correct, LABELS, 1 - LABELS)] = 0.8
    return actual


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """run({system: f(budget, seed) -> (N,) correct}, dev={system: metric on dev}, labels={budget: labels per class in
    train}) -> content of evaluation.json."""
    rows = [((f"text {row}",), [LABELS[row]], SLICES[row]) for row in range(ROWS)]
    task = Task("classification", ["no", "yes"], {"train": rows[:100], "dev": rows[:20], "test": rows})

    def evaluated(
        systems: dict[str, Any], dev: dict[str, float] | None = None, labels: dict[int, int] | None = None
    ) -> dict[str, Any]:
        results = []
        for system, correct in systems.items():
            for budget, count in (labels or {budget: budget for budget in BUDGETS}).items():
                for seed in (0, 1, 2):
                    record = record_of(budget, seed, 2 * count, [(dev or {}).get(system, 0.5)])
                    test = answers(correct(budget, seed))
                    results.append(Results(system, *system.split("-"), record, {"dev": test[:20], "test": test}))
        return content_of(job_of(tmp_path / str(len(list(tmp_path.iterdir()))), task, results))

    return evaluated


SCRATCH = {4: 0.6, 16: 0.7, 64: 0.8}


def given(shares: dict[str, Any]) -> dict[str, Any]:
    """Start -> accuracy of ULMFiT, or that at each budget; scratch has those of SCRATCH."""

    def of(share: Any) -> Any:
        return lambda budget, seed: right(share[budget] if isinstance(share, dict) else share, seed)

    return {f"ulmfit-{start}": of(share) for start, share in ({"scratch": SCRATCH} | shares).items()}


def test_what_transfer_was_worth(run):
    content = run(given({"pretrained": 0.7, "adapted": 0.75}), dev={"ulmfit-adapted": 0.6})
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
    content = run(given({"adapted": 0.95}))
    few = content["label_efficiency"][0]
    assert few["needs"] == {"mean": None, "low": None, "high": None}
    assert content["headline"].endswith(
        "needs more than 64 labels a class: transfer was worth over 16 times the labels."
    )


def test_a_saving_of_labels_is_claimed_only_beyond_the_bounds(run):
    """Two equal recipes with a flat curve: the mean of scratch stays below the score, its bounds do not."""
    flat = given({"scratch": 0.7}) | {"ulmfit-adapted": lambda budget, seed: right(0.71, 50 + seed)}
    content = run(flat)
    few = content["label_efficiency"][0]
    assert few["needs"] == {"mean": None, "low": 4.0, "high": None}
    assert content["headline"].endswith(
        "training from scratch needs more than 64 labels a class [4, more than 64]: that transfer saves labels is not "
        "shown."
    )
    content = run(flat | given({"scratch": {4: 0.5, 16: 0.7, 64: 0.7}}))
    few = content["label_efficiency"][0]
    assert few["needs"]["mean"] is None and 4 < few["needs"]["low"] < 16
    assert f"transfer was worth {few['ratio']['low']:.3g} times the labels or more." in content["headline"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("labels", [{4: 4}, {4: 4, 16: 4, 64: 4}], ids=["one budget", "no more rows in train"])
def test_a_single_number_of_labels_has_no_label_curve(run, labels):
    content = run(given({"scratch": 0.6, "adapted": 0.9}), labels=labels)
    assert {row["against"] for row in content["benefits"]} == {"epochs"}
    assert content["headline"].endswith("needs more than 4 labels a class; an estimate needs larger budgets.")


def test_the_headline_is_about_the_best_system_on_dev(run):
    content = run(given({"pretrained": 0.55, "adapted": 0.75}), dev={"ulmfit-pretrained": 0.6})
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

    content = run(given({}) | {"ulmfit-adapted": adapted})
    largest = content["transfer"]["ulmfit"][-1]
    assert largest["budget"] == 64
    parts = {(part["part"], part["name"]): part for part in largest["parts"]}
    assert parts.keys() == {("all", ""), ("class", "no"), ("class", "yes"), ("slice", "first"), ("slice", "second")}
    assert parts["slice", "second"]["starts"]["adapted"]["hurts"]
    assert not parts["slice", "first"]["starts"]["adapted"]["hurts"]
    second = parts["slice", "second"]
    assert (second["part"], second["rows"]) == ("slice", 200)
    difference = second["starts"]["adapted"]["difference"]
    assert difference["mean"] == pytest.approx(second["starts"]["adapted"]["score"]["mean"] - second["scratch"]["mean"])
    assert difference["low"] < difference["mean"] < difference["high"] < 0
    cell = next(system for system in content["systems"] if system["system"] == "ulmfit-adapted")["budgets"][-1]
    assert second["starts"]["adapted"]["score"]["mean"] == pytest.approx(cell["slices"]["second"]["macro_f1"])
    assert parts["all", ""]["starts"]["adapted"]["score"]["mean"] == pytest.approx(cell["scores"]["macro_f1"]["mean"])


def test_a_decrease_within_the_interval_does_not_count(run):
    content = run(given({"scratch": 0.8}) | {"ulmfit-adapted": lambda budget, seed: right(0.79, seed + 10)})
    parts = content["transfer"]["ulmfit"][0]["parts"]
    assert not any(part["starts"]["adapted"]["hurts"] for part in parts)
    assert parts[0]["starts"]["adapted"]["difference"]["mean"] == pytest.approx(-0.01, abs=0.002)
