"""Label curves that are extrapolated by a power law."""

from __future__ import annotations

import numpy as np
import pytest

from components.scoring.label_curves import expected_gain, fit_power, in_words, of_system, usual_step


def curve(sizes, *, seeds=4, noise=0.0, a=0.9, b=0.8, c=0.5):
    rng = np.random.default_rng(0)
    return [(a - b * n**-c + noise * rng.standard_normal(seeds)).tolist() for n in sizes]


def test_a_power_law_is_found() -> None:
    sizes = np.asarray([5.0, 20.0, 80.0, 320.0])
    exponent = np.geomspace(0.1, 1.5, 25)[14]
    a, b, c = fit_power(sizes, (0.8 - 0.7 * sizes**-exponent)[None], top=1.0)
    assert (a[0], b[0], c[0]) == pytest.approx((0.8, 0.7, exponent))
    # The asymptote is bounded, and b is fitted with it.
    a, b, c = fit_power(sizes, (1.2 - sizes**-exponent)[None], top=1.0)
    assert a[0] == 1.0
    powers = sizes ** -c[0]
    assert b[0] == pytest.approx(((1 - (1.2 - sizes**-exponent)) @ powers) / (powers @ powers))


def test_the_gain_and_its_interval() -> None:
    sizes = [5, 10, 20, 40]
    found = expected_gain(sizes, curve(sizes, noise=0.005), more=40)
    true = 0.8 * (40**-0.5 - 80**-0.5)
    assert found.gain is not None and found.low is not None and found.high is not None
    assert found.gain == pytest.approx(true, abs=0.015)
    assert found.low < true < found.high
    wider = expected_gain(sizes, curve(sizes, noise=0.02), more=40)
    assert wider.gain is not None and wider.low is not None and wider.high is not None
    assert (wider.high - wider.low) / wider.gain > (found.high - found.low) / found.gain
    assert expected_gain(sizes, curve(sizes, noise=0.005), more=40) == found
    assert in_words(found, unit="labels a class", title="macro F1", system="x") == (
        f"x: 40 more labels a class are expected to bring {found.gain:+.3f} [{found.low:+.3f}, {found.high:+.3f}] "
        "macro F1."
    )


@pytest.mark.parametrize(
    ("sizes", "scores", "more", "reason"),
    [
        ([5, 20], curve([5, 20]), 20, "label budgets measured: 2, needed: 3"),
        ([5, 20, 80], curve([5, 20, 80], seeds=1), 20, "at least 2"),
        ([5, 20, 80], [[0.1, 0.2], [0.1], [0.2, 0.3]], 20, "the same seeds"),
        ([5, 20, 80], curve([5, 20, 80]), 300, "is extended by 240 at most"),
        ([5, 20, 80], curve([5, 20, 80], b=-0.2, noise=0.01), 20, "do not rise"),
    ],
)
def test_curves_that_support_no_answer(sizes, scores, more, reason) -> None:
    found = expected_gain(sizes, scores, more=more)
    assert found.gain is None and reason in found.reason
    assert f"is unknown: {found.reason}" in in_words(found, unit="labels", title="f1", system="x")


def test_the_curve_of_an_evaluation() -> None:
    sizes = [5, 20, 80]
    cells = [
        {"budget": size, "labels": float(size), "seeds": [1, 2], "scores": {"f1": {"seeds": row}}}
        for size, row in zip(sizes, curve(sizes, seeds=2, noise=0.001), strict=True)
    ]
    cells.append(cells[-1] | {"budget": -1})
    evaluation = {"main": "f1", "confidence": 0.95, "systems": [{"system": "x", "budgets": cells}]}
    found = of_system(evaluation, "x")
    assert (found.labels, found.more) == (80, 100) and found.gain is not None
    assert of_system(evaluation, "x", more=20).more == 20
    assert usual_step(20.0) == 20.0
