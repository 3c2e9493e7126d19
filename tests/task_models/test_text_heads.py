"""Heads with one vector per sequence: hand-computed losses and answers, optima of independent implementations."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from torch import Tensor
from torch.nn import functional as F

from components.learners.task_models.features import FeatureTable
from components.learners.task_models.heads import ImitatingHead, RegressionHead, TextHead
from components.learners.task_models.kinds import find_task
from components.learners.task_models.kinds.choice import ChoiceHead
from components.learners.task_models.kinds.multilabel import MultilabelHead
from components.learners.task_models.probe import HeadCandidate, HeadRows, solve_head
from components.learners.task_models.sampler import target_batch
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training


def targets(*rows: list[float]) -> list[np.ndarray]:
    return [np.asarray(row, dtype=np.float64) for row in rows]


def flat_table(x: np.ndarray, sequences: list[int] | None = None) -> FeatureTable:
    ends = np.cumsum([1] * len(x) if sequences is None else sequences)
    return FeatureTable.of(np.split(x.astype(np.float32), ends[:-1]))


def test_multilabel_loss_is_binary_cross_entropy_of_every_label():
    head = MultilabelHead(2, 3, norm="none")
    outputs = torch.tensor([[0.0, 2.0, -1.0], [1.0, 0.5, 0.0], [3.0, -3.0, 1.0]])
    batch = target_batch(targets([0, 2], [], [1]))
    given = torch.tensor([[1.0, 0, 1], [0, 0, 0], [0, 1, 0]])
    assert head.loss(outputs, batch).item() == pytest.approx(
        F.binary_cross_entropy_with_logits(outputs, given).item(), rel=1e-6
    )
    head.penalty = 0.5
    weight = head.output.weight.square().sum().item()
    assert head.loss(outputs, batch).item() == pytest.approx(
        F.binary_cross_entropy_with_logits(outputs, given).item() + 0.25 * weight, rel=1e-6
    )
    np.testing.assert_allclose(head.answers(outputs, batch)[0], [0.5, 0.880797, 0.268941], atol=1e-6)


def test_rows_without_any_label_in_a_whole_batch():
    head = MultilabelHead(2, 2, norm="none")
    outputs = torch.zeros(2, 2)
    assert head.loss(outputs, target_batch(targets([], []))).item() == pytest.approx(np.log(2))


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
    actual = head.answers(outputs, batch)
    np.testing.assert_allclose(actual[0], first, atol=1e-6)
    np.testing.assert_allclose(actual[1], second, atol=1e-6)
    assert head.loss(outputs, batch).item() == pytest.approx(-(first[1].log() + second[0].log()).item() / 2, rel=1e-5)
    unlabelled = head.answers(outputs, {"rows": batch["rows"]})
    np.testing.assert_allclose(np.concatenate(unlabelled), np.concatenate(actual))


def solved(head: TextHead, table: FeatureTable, right: list[np.ndarray], penalty: float) -> np.ndarray:
    solve_head(head, rows=HeadRows(table, right), candidate=HeadCandidate(None, penalty), steps=500)
    with torch.no_grad():
        return (
            np.stack(head.answers(head.eval()(table.matrix()), {})) if isinstance(head, RegressionHead) else np.zeros(0)
        )


def random_features(rows: int = 40, width: int = 5) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(rows, width))


def test_the_solved_regression_is_ridge_regression():
    x = random_features()
    y = x @ np.asarray([1.0, -2, 0, 0.5, 3]) + np.random.default_rng(4).normal(size=40)
    head = RegressionHead(5, 1, norm="none")
    head.prepare(targets(*y[:, None].tolist()))
    actual = solved(head, flat_table(x), targets(*y[:, None].tolist()), 3.0)
    scaled = (y - y.min()) / np.ptp(y)
    expected = Ridge(alpha=3.0).fit(x, scaled).predict(x) * np.ptp(y) + y.min()
    np.testing.assert_allclose(actual[:, 0], expected, atol=1e-3)


def test_the_solved_multilabel_head_is_one_logistic_regression_a_label():
    x = random_features()
    given = np.random.default_rng(5).random((40, 3)) < 0.4
    right = targets(*(np.flatnonzero(row).tolist() for row in given))
    head = MultilabelHead(5, 3, norm="none")
    solved(head, flat_table(x), right, 6.0)
    expected = OneVsRestClassifier(LogisticRegression(C=1 / 6.0, tol=1e-8, max_iter=1000)).fit(x, given)
    for label, regression in enumerate(expected.estimators_):
        np.testing.assert_allclose(head.output.weight[label].detach(), regression.coef_[0], atol=1e-3)
        assert head.output.bias[label].item() == pytest.approx(regression.intercept_[0], abs=1e-3)


def test_the_solved_choice_head_is_the_conditional_logit():
    x, counts = random_features(), [2, 3] * 8
    right = [number % count for number, count in enumerate(counts)]
    head = ChoiceHead(5, 1, norm="none")
    table = flat_table(x, counts)
    solved(head, table, targets(*([number] for number in right)), 2.0)
    starts = np.cumsum([0, *counts])

    def objective(weight):
        scores = x @ weight
        rows = [scores[a:b] for a, b in zip(starts, starts[1:], strict=False)]
        return sum(np.logaddexp.reduce(row) - row[index] for row, index in zip(rows, right, strict=True)) + (
            weight @ weight
        )

    expected = minimize(objective, np.zeros(5), tol=1e-10).x
    np.testing.assert_allclose(head.output.weight[0].detach().numpy(), expected, atol=1e-3)


# The loss of distillation by hand.


SETTINGS = FinetuneSettings(training=Training(rate=0.1, batch_size=2), head_norm="none", head_dropout=0.0)


def loss(kind: str, outputs: list[list[float]], targets: list[list[float]], **batch: Tensor) -> float:
    """The loss at temperature 2."""
    head = find_task(kind).head(SETTINGS, 3, ["a", "b"])
    assert isinstance(head, ImitatingHead)
    result = head.imitation(torch.tensor(outputs), {"targets": torch.tensor(targets), **batch}, temperature=2.0)
    return float(result)


def test_exclusive_labels():
    # At temperature 2 the model says 1/3, 2/3; the teachers 1/2, 1/2 and 2/3, 1/3.
    outputs = [[0.0, math.log(4)]] * 2
    first, second = 4 * math.log(1.125) / 2, 4 * math.log(2) / 3
    assert loss("classification", outputs, [[0.5, 0.5], [0.8, 0.2]]) == pytest.approx((first + second) / 2)
    assert loss("pair", [[0.0, math.log(4)]], [[0.2, 0.8]]) == pytest.approx(0, abs=1e-6)


def test_several_labels():
    # Each label has a distribution of its own: 1/3, 2/3 of the model, 2/3, 1/3 and 1/3, 2/3 of the teacher.
    result = loss("multilabel", [[math.log(4), math.log(4)]], [[0.2, 0.8]])
    assert result == pytest.approx(4 * math.log(2) / 3 / 2)


def test_choices():
    # The second row has one choice, which costs nothing.
    outputs, targets = [[0.0], [math.log(4)], [5.0]], [[0.8, 0.2], [1.0, math.nan]]
    result = loss("choice", outputs, targets, rows=torch.tensor([0, 0, 1]))
    assert result == pytest.approx(4 * math.log(2) / 3 / 2)


def test_numbers():
    head = find_task("regression").head(SETTINGS, 3, [])
    assert isinstance(head, ImitatingHead)
    result = head.imitation(torch.tensor([[1.0], [3.0]]), {"targets": torch.tensor([[2.0], [0.0]])}, temperature=2.0)
    assert float(result) == pytest.approx((1 + 9) / 2)
