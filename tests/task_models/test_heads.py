"""Features and heads with one vector per sequence: exact values, hand-computed losses, optima of independent
implementations."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from torch import Tensor, nn
from torch.nn import functional as F

from components.core.errors import ConfigError
from components.learners.task_models.base import Encoded
from components.learners.task_models.heads import (
    ChoiceHead,
    ClassificationHead,
    FixedNorm,
    Head,
    MultilabelHead,
    RegressionHead,
    Statistics,
)
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.learners.task_models.pooling import Features, ScalarMix
from components.learners.task_models.probe import HeadCandidate, HeadRows, solve_head
from components.learners.task_models.sampler import matrix, target_batch
from components.models import FAMILIES
from components.models.base import at_columns, last_states
from components.models.encoder import build_model
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training

SETTINGS = FinetuneSettings(training=Training(rate=0.1, batch_size=2), head_norm="none", head_dropout=0.0)
# Two texts of two pieces and one; the values at padding must have no influence.
HIDDEN = torch.tensor([[[1.0, -2.0], [3.0, -4.0]], [[-5.0, 6.0], [99.0, 99.0]]])
LENGTHS = torch.tensor([2, 1])


def features(layers: str, pooling: str = "mean", widths: tuple[int, ...] = (2, 2, 2), **more: Any) -> Features:
    encoder: Any = SimpleNamespace(
        summary=last_states,
        unit_states=lambda hidden, units: at_columns(hidden, units[..., 0]),
        vectors_of=None,
        static_vectors=lambda: None,
    )
    settings = SETTINGS.model_copy(update={"layers": layers, "pooling": pooling, **more})
    return Features(encoder, settings, widths=widths)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean", [[2, -3], [-5, 6]]),
        ("max", [[3, -2], [-5, 6]]),
        ("concat", [[3, -4, 3, -2, 2, -3], [-5, 6, -5, 6, -5, 6]]),  # last, max, mean
        # Weights 1/3 and 1/4 of two pieces: 4/7 and 3/7.
        ("lead", [[13 / 7, -20 / 7], [-5, 6]]),
    ],
)
def test_pooling_leaves_padding_out(pooling, expected):
    torch.testing.assert_close(features("last", pooling)([HIDDEN] * 3, LENGTHS), torch.tensor(expected).float())


def test_unit_length_scales_each_layer_and_pool():
    actual = features("all", widths=(2, 2), unit_length=True)([HIDDEN, 10 * HIDDEN], LENGTHS)
    single, other = [2 / 13**0.5, -3 / 13**0.5], [-5 / 61**0.5, 6 / 61**0.5]
    torch.testing.assert_close(actual, torch.tensor([single * 2, other * 2]))


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("first", [1.0]),
        ("last", [32.0]),
        ("second_to_last", [16.0]),
        ("sum", [2.0 + 4 + 8 + 16 + 32]),
        ("sum_last_four", [4.0 + 8 + 16 + 32]),
        ("concat_last_four", [4.0, 8.0, 16.0, 32.0]),
        ("all", [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]),
        ("mix", [63 / 6]),
    ],
)
def test_layer_choices(layers, expected):
    # Embedding and five layers, one number wide: 1, 2, 4, 8, 16, 32.
    hidden = [torch.full((1, 3, 1), 2.0**depth) for depth in range(6)]
    assert features(layers, widths=(1,) * 6)(hidden, torch.tensor([3]))[0].tolist() == pytest.approx(expected)
    if layers in ("second_to_last", "sum", "sum_last_four", "concat_last_four"):
        with pytest.raises(ConfigError, match=f"^layers: '{layers}' needs layers above the embedding, and there are"):
            features(layers, widths=(4,))


def test_layers_of_different_widths_cannot_be_added():
    with pytest.raises(ConfigError, match=r"layers: 'sum' adds up layers, but they are 512, 256 wide; choose all"):
        features("sum", widths=(256, 512, 256))
    features("all", widths=(256, 512, 256))


def test_scalar_mix_is_elmos_formula():
    mix = ScalarMix(2)
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([0.0, math.log(3)]))
        mix.gamma.fill_(2.0)
    # softmax(0, ln 3) = (1/4, 3/4): 2 (1/4 * 4 + 3/4 * 8) = 14.
    assert mix([torch.full((1, 1, 1), 4.0), torch.full((1, 1, 1), 8.0)]).item() == pytest.approx(14.0)


def test_a_unit_vector_concatenates_the_chosen_layers():
    units = torch.tensor([[[1, 1], [0, 0]], [[0, 0], [-1, -1]]])
    actual = features("all").of_units([HIDDEN, 10 * HIDDEN, 100 * HIDDEN], units)
    assert actual[0].tolist() == [[3, -4, 30, -40, 300, -400], [1, -2, 10, -20, 100, -200]]
    assert actual[1, 0].tolist() == [-5, 6, -50, 60, -500, 600]


#: Blocks of widths 2 and 1; variances 1 and 7, and 4: stds 2 and 2.
ROWS = torch.tensor([[0.0, 0.0, 5.0], [2.0, 2 * 7**0.5, 9.0]])


@pytest.mark.parametrize(
    ("kind", "deviation", "expected"),
    [
        ("fixed", [1, 7**0.5, 2], [4.0, 0.0, -2.0]),
        ("block", [2, 2, 2], [2.0, 0.0, -2.0]),
        # (2, 0) and (-2) become (sqrt 2, 0) and (-1); a zero vector stays zero.
        ("length", [2, 2, 2], [2**0.5, 0.0, -1.0]),
    ],
)
def test_normalisations_by_kind_and_the_choice_is_stored_with_the_head(kind: Statistics, deviation, expected):
    head, other = (ClassificationHead(3, 2, norm="auto").eval() for _ in range(2))
    for each in (head, other):
        each.norm.blocks = [2, 1]
    head.norm.kind = kind
    head.norm.fit(ROWS)
    other.load_state_dict(head.state_dict())
    plain = FixedNorm(3, kind)
    plain.blocks = [2, 1]
    plain.fit(ROWS)
    x = torch.tensor([[5.0, 7**0.5, 3.0], [1.0, 7**0.5, 7.0]])
    for norm in (head.norm, other.norm, plain):
        torch.testing.assert_close(norm.mean, torch.tensor([1.0, 7**0.5, 7.0]))
        torch.testing.assert_close(norm.deviation, torch.tensor(deviation).float())
        torch.testing.assert_close(norm(x), torch.tensor([expected, [0.0, 0.0, 0.0]]))
    assert set(FixedNorm(3).state_dict()) == {"mean", "deviation"}
    plain.fit(torch.full((2, 3), 7.0))
    assert plain.deviation.tolist() == [1, 1, 1], "constants stay finite"


@pytest.mark.parametrize(
    ("kind", "changes", "blocks"),
    [
        ("classification", {"layers": "all", "pooling": "concat"}, [32] * 9),
        ("classification", {"layers": "last", "pooling": "mean"}, [32]),
        ("classification", {"layers": "mix", "pooling": "concat"}, [32] * 3),
        ("pair", {"layers": "last", "pooling": "mean", "pairs": "apart"}, [32] * 4),
        ("tagging", {"layers": "all"}, [32] * 3),
    ],
)
def test_blocks_are_pooled_layers_and_parts_of_pairs(kind, changes, blocks):
    encoder = build_model("bert", vocabulary=20, settings=FAMILIES["bert"].tiny)
    settings = SETTINGS.model_copy(update={"head_norm": "length", **changes})
    labels = ["O", "B-a"] if kind == "tagging" else ["a", "b"]
    head = TaskModel(encoder, task=find_task(kind), settings=settings, labels=labels).head
    assert isinstance(head, Head) and isinstance(head.norm, FixedNorm)
    assert head.norm.blocks == blocks


def test_each_linear_layer_of_a_head_has_its_dropout():
    for given, expected in (([0.4, 0.1], (0.4, 0.1)), (0.3, (0.3, 0.3))):
        settings = SETTINGS.model_copy(update={"head_hidden": 5, "head_dropout": given})
        head = ClassificationHead.of(settings, 3, ["a", "b"])
        assert isinstance(head.hidden, nn.Sequential) and isinstance(head.hidden[-1], nn.Dropout)
        assert (head.dropout.p, head.hidden[-1].p) == expected
    with pytest.raises(ValidationError, match="head_dropout has 2 rates, but with head_hidden 0 the head has 1 linear"):
        FinetuneSettings(training=SETTINGS.training, head_dropout=[0.4, 0.1])


def targets(*rows: list[float]) -> list[np.ndarray]:
    return [np.asarray(row, dtype=np.float64) for row in rows]


def test_multilabel_loss_is_binary_cross_entropy_of_every_label():
    head = MultilabelHead(2, 3, norm="none")
    outputs = torch.tensor([[0.0, 2.0, -1.0], [1.0, 0.5, 0.0], [3.0, -3.0, 1.0]])
    batch = target_batch(targets([0, 2], [], [1]))
    expected = F.binary_cross_entropy_with_logits(outputs, torch.tensor([[1.0, 0, 1], [0, 0, 0], [0, 1, 0]])).item()
    assert head.loss(outputs, batch).item() == pytest.approx(expected, rel=1e-6)
    head.penalty = 0.5
    weight = head.output.weight.square().sum().item()
    assert head.loss(outputs, batch).item() == pytest.approx(expected + 0.25 * weight, rel=1e-6)
    np.testing.assert_allclose(head.answers(outputs, batch)[0], [0.5, 0.880797, 0.268941], atol=1e-6)
    nothing = MultilabelHead(2, 2, norm="none").loss(torch.zeros(2, 2), target_batch(targets([], [])))
    assert nothing.item() == pytest.approx(np.log(2)), "no row of the batch has a label"


def test_regression_works_on_the_range_of_the_training_targets():
    head = RegressionHead(2, 1, norm="none")
    head.prepare(targets([1], [5], [2]))
    outputs = torch.tensor([[0.0], [0.5], [1.5]])
    assert [row.tolist() for row in head.answers(outputs, {})] == [[1.0], [3.0], [7.0]]
    # Targets on the scale from 0 to 1: 0.25, 0.5, 1.
    loss = head.loss(outputs, target_batch(targets([2], [3], [5]))).item()
    assert loss == pytest.approx((0.25**2 + 0 + 0.5**2) / 3)
    head.prepare(targets([4], [4]))
    assert head.answers(torch.tensor([[0.0]]), {})[0].tolist() == [4.0], "one value has no range"
    assert {"low", "range"} <= head.state_dict().keys(), "the scale is stored with the weights"


def test_choices_are_normalised_within_their_row():
    head = ChoiceHead(2, 1, norm="none")
    outputs = torch.tensor([[1.0], [2.0], [500.0], [501.0], [499.0]])
    batch = {"rows": torch.tensor([0, 0, 1, 1, 1])} | target_batch(targets([1], [0]))
    first, second = torch.tensor([1.0, 2.0]).softmax(0), torch.tensor([0.0, 1.0, -1.0]).softmax(0)
    for actual, expected in zip(head.answers(outputs, {"rows": batch["rows"]}), (first, second), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-6)
    assert head.loss(outputs, batch).item() == pytest.approx(-(first[1].log() + second[0].log()).item() / 2, rel=1e-5)


def solved(head: Head, x: np.ndarray, right: list[np.ndarray], penalty: float, counts: Any = None) -> list[Encoded]:
    """Fit a head to vectors of rows, of `counts` sequences each."""
    parts = np.split(x.astype(np.float32), np.cumsum([1] * len(x) if counts is None else counts)[:-1])
    table = list(map(Encoded.of_vectors, parts))
    head.prepare(right)
    solve_head(head, rows=HeadRows(table, right), candidate=HeadCandidate(None, penalty), steps=500)
    return table


X = np.random.default_rng(3).normal(size=(40, 5))


@pytest.mark.parametrize(("seen", "classes"), [(2, 2), (3, 3), (2, 3)])
def test_the_penalty_of_a_fitted_head_is_that_of_its_loss_and_of_scikit_learn(seen, classes):
    labels = np.arange(30) % seen
    x = np.random.default_rng(0).normal(size=(30, 4)) + 2 * np.eye(4)[labels]
    head = ClassificationHead(4, classes, norm="none", dropout=0.0)
    solved(head, x, targets(*labels[:, None].tolist()), 3.0)
    weights = head.output.weight.detach().numpy()
    actual = weights[1:2] - weights[:1] if seen == 2 else weights
    expected = LogisticRegression(C=1 / 3, tol=1e-8, max_iter=500).fit(x, labels).coef_
    np.testing.assert_allclose(actual, expected, atol=1e-3)
    if seen < classes:  # a class without rows has a small probability, and a gradient
        assert head.penalty == pytest.approx(2 * 3 / 30)
        return
    x_float = torch.from_numpy(x).float()
    head.loss(head(x_float), {"targets": torch.from_numpy(labels[:, None]).double()}).backward()
    assert head.output.weight.grad is not None
    assert head.output.weight.grad.abs().max() < 1e-3


def test_the_solved_regression_is_ridge_regression():
    y = X @ np.asarray([1.0, -2, 0, 0.5, 3]) + np.random.default_rng(4).normal(size=40)
    head = RegressionHead(5, 1, norm="none")
    table = solved(head, X, targets(*y[:, None].tolist()), 3.0)
    expected = Ridge(alpha=3.0).fit(X, (y - y.min()) / np.ptp(y)).predict(X) * np.ptp(y) + y.min()
    with torch.no_grad():
        actual = np.stack(head.answers(head.eval()(matrix(table)), {}))
    np.testing.assert_allclose(actual[:, 0], expected, atol=1e-3)


def test_the_solved_multilabel_head_is_one_logistic_regression_a_label():
    given = np.random.default_rng(5).random((40, 3)) < 0.4
    head = MultilabelHead(5, 3, norm="none")
    solved(head, X, targets(*(np.flatnonzero(row).tolist() for row in given)), 6.0)
    expected = OneVsRestClassifier(LogisticRegression(C=1 / 6.0, tol=1e-8, max_iter=1000)).fit(X, given)
    for label, regression in enumerate(expected.estimators_):
        np.testing.assert_allclose(head.output.weight[label].detach(), regression.coef_[0], atol=1e-3)
        assert head.output.bias[label].item() == pytest.approx(regression.intercept_[0], abs=1e-3)


def test_the_solved_choice_head_is_the_conditional_logit():
    counts = [2, 3] * 8
    right = [number % count for number, count in enumerate(counts)]
    head = ChoiceHead(5, 1, norm="none")
    solved(head, X, targets(*([number] for number in right)), 2.0, counts)
    ends = np.cumsum(counts)

    def objective(weight):
        rows = np.split(X @ weight, ends[:-1])
        return sum(np.logaddexp.reduce(row) - row[index] for row, index in zip(rows, right, strict=True)) + (
            weight @ weight
        )

    expected = minimize(objective, np.zeros(5), tol=1e-10).x
    np.testing.assert_allclose(head.output.weight[0].detach().numpy(), expected, atol=1e-3)


LOG4, NAN = math.log(4), math.nan
# At temperature 2 the model says 1/3, 2/3; the teachers 1/2, 1/2 and 2/3, 1/3.
FIRST, SECOND = 4 * math.log(1.125) / 2, 4 * math.log(2) / 3


@pytest.mark.parametrize(
    ("kind", "outputs", "taught", "rows", "expected"),
    [
        ("classification", [[0.0, LOG4]] * 2, [[0.5, 0.5], [0.8, 0.2]], None, (FIRST + SECOND) / 2),
        ("pair", [[0.0, LOG4]], [[0.2, 0.8]], None, 0),
        # Each label has a distribution of its own: 1/3, 2/3 of the model, 2/3, 1/3 and 1/3, 2/3 of the teacher.
        ("multilabel", [[LOG4, LOG4]], [[0.2, 0.8]], None, SECOND / 2),
        # The second row has one choice, which costs nothing.
        ("choice", [[0.0], [LOG4], [5.0]], [[0.8, 0.2], [1.0, NAN]], [0, 0, 1], SECOND / 2),
        ("regression", [[1.0], [3.0]], [[2.0], [0.0]], None, (1 + 9) / 2),
    ],
)
def test_the_loss_of_distillation_at_temperature_2(kind, outputs, taught, rows, expected):
    head: Any = find_task(kind).head(SETTINGS, 3, ["a", "b"])
    batch: dict[str, Tensor] = {"targets": torch.tensor(taught)} | (
        {} if rows is None else {"rows": torch.tensor(rows)}
    )
    given = torch.tensor(outputs, requires_grad=True)
    loss = head.imitation(given, batch, temperature=2.0)
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    loss.backward()
    assert given.grad is not None and given.grad.isfinite().all()
