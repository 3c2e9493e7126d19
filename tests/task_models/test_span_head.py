"""The head of question answering: best spans compared with enumeration, windows, no answer, the threshold."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.learners.task_models.span_head import NEVER, Answering, best_spans, best_threshold
from components.models.base import Batch
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training


def head_of(longest: int = 160) -> Answering:
    training = Training(rate=0.01, batch_size=4)
    settings = FinetuneSettings(head_dropout=0.0, head_norm="none", training=training)
    torch.manual_seed(0)
    head = Answering(3, settings).eval()
    head.longest = longest
    return head


def batch_of(offsets: list[list[tuple[int, int]]], rows: list[int], targets: list[list[float]] | None = None) -> Batch:
    """Sequences whose first unit represents the whole sequence."""
    told = [torch.tensor([(0, 0), *units]) for units in offsets]
    batch = {
        "offsets": nn.utils.rnn.pad_sequence(told, batch_first=True, padding_value=-1),
        "unit_lengths": torch.tensor([len(units) for units in told]),
        "rows": torch.tensor(rows),
    }
    if targets is not None:
        padded = torch.full((len(targets), max(map(len, targets))), math.nan, dtype=torch.float64)
        for row, given in zip(padded, targets, strict=True):
            row[: len(given)] = torch.tensor(given, dtype=torch.float64)
        batch |= {"targets": padded, "target_lengths": torch.tensor([len(given) for given in targets])}
    return batch


def scores(*sequences: list[tuple[float, float]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(sequence) for sequence in sequences], batch_first=True)


WORDS = [(0, 3), (4, 6), (7, 12), (12, 13)]


@pytest.mark.parametrize("longest", [1, 5, 8, 160])
def test_best_spans_equals_enumeration(longest):
    torch.manual_seed(longest)
    offsets = [WORDS, WORDS[:2], [(2, 9)]]
    batch = batch_of(offsets, [0, 1, 2])
    outputs = torch.randn(3, 5, 2)
    actual = best_spans(outputs, batch["offsets"], batch["unit_lengths"], longest=longest)
    for row, units in enumerate(offsets):
        every = {
            (units[i][0], units[j][1]): float(outputs[row, i + 1, 0] + outputs[row, j + 1, 1])
            for i in range(len(units))
            for j in range(i, len(units))
            # One unit may be longer than an answer: otherwise there would be no span.
            if i == j or units[j][1] - units[i][0] <= longest
        }
        best = max(every, key=lambda span: every[span])
        assert actual[row, :2].tolist() == list(best)
        assert actual[row, 2].item() == pytest.approx(every[best], abs=1e-6)


def test_the_windows_of_a_row_become_one_answer():
    # Row 0 in two windows, row 1 in one; no answer scores 5 and 1, then 4.
    batch = batch_of([WORDS[:2], WORDS[1:], WORDS], [0, 0, 1])
    outputs = scores(
        [(2.5, 2.5), (1.0, 0.0), (0.0, 1.0)],
        [(0.5, 0.5), (0.0, 0.0), (3.0, 0.0), (0.0, 1.0)],
        [(2.0, 2.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (0.0, 3.0)],
    )
    first, second = head_of().answers(outputs, batch)
    assert first.dtype == np.float32
    assert first.tolist() == [7, 13, 4.0, 1.0]
    assert second.tolist() == [0, 0, 3.0, 4.0]


def test_targets_of_a_window():
    # "one two three!" as WORDS; the answer is "two three", characters 4 to 12: units 2 and 3.
    offsets = [WORDS, WORDS[:2], WORDS[2:], WORDS, []]
    batch = batch_of(offsets, [0, 0, 0, 1, 2], targets=[[4, 12, 0, 3], [], [4, 12]])
    outputs = torch.randn(5, 5, 2, generator=torch.Generator().manual_seed(0))
    expected = []
    for row, (start, end) in enumerate([(2, 3), (0, 0), (0, 0), (0, 0), (0, 0)]):
        length = len(offsets[row]) + 1
        for side, unit in ((0, start), (1, end)):
            expected.append(F.cross_entropy(outputs[row, :length, side], torch.tensor(unit)))
    assert head_of().loss(outputs, batch).item() == pytest.approx(torch.stack(expected).mean().item(), abs=1e-6)


def test_the_threshold_maximises_the_sum():
    margin = np.asarray([3.0, -1.0, 2.0, 0.5])
    given, refused = np.asarray([1.0, 0.0, 0.0, 1.0]), np.asarray([0.0, 1.0, 1.0, 0.0])
    # In the order of margins -1, 0.5, 2, 3 it is best to refuse the first only: 3 rows right.
    assert best_threshold(margin, given, refused) == -0.25
    for threshold in np.linspace(-3, 5, 100):
        total = np.where(margin >= threshold, given, refused).sum()
        assert total <= 3


def test_calibration_sets_the_threshold_and_keeps_it_with_the_weights():
    head = head_of()
    batch = batch_of([WORDS, WORDS, WORDS], [0, 1, 2])
    outputs = torch.zeros(3, 5, 2)
    outputs[:, 1, 0] = torch.tensor([2.0, 3.0, 6.0])
    outputs[:, 0, 0] = 4.0
    assert [answer[1] > 0 for answer in head.answers(outputs, batch)] == [False, False, True]

    def score(actual):
        # Only the first question has no answer.
        return np.asarray([(answer[1] > 0) == (row > 0) for row, answer in enumerate(actual)], dtype=np.float64)

    head.decides = False
    actual = head.calibrate(head.answers(outputs, batch), score)
    assert head.threshold.item() == -1.5
    assert score(actual).tolist() == [1, 1, 1]
    again = head_of()
    again.load_state_dict(head.state_dict())
    for first, second in zip(actual, again.answers(outputs, batch), strict=True):
        assert first.tolist() == second.tolist()
    assert actual[1].tolist() == [0, 3, 3.0, 2.5]


def test_a_sequence_without_context_has_no_span():
    batch = batch_of([[], WORDS[:1]], [0, 1])
    outputs = scores([(9.0, 9.0)], [(0.0, 0.0), (1.0, 2.0)])
    actual = best_spans(outputs, batch["offsets"], batch["unit_lengths"], longest=9)
    assert actual.tolist() == [[0, 0, NEVER], [0, 3, 3.0]]
    answers = head_of().answers(outputs, batch)
    assert answers[0].tolist() == [0, 0, NEVER, 18.0]
    assert answers[1].tolist() == [0, 3, 3.0, 0.0]


def test_an_answer_within_a_unit_is_that_unit():
    batch = batch_of([WORDS], [0], targets=[[8, 10]])
    outputs = torch.randn(1, 5, 2, generator=torch.Generator().manual_seed(1))
    loss = head_of().loss(outputs, batch)
    expected = (
        F.cross_entropy(outputs[0, :, 0], torch.tensor(3)) + F.cross_entropy(outputs[0, :, 1], torch.tensor(3))
    ) / 2
    assert loss.item() == pytest.approx(expected.item(), abs=1e-6)


def test_thresholds_for_answering_always_and_never():
    margin = np.asarray([0.0, 1.0])
    ones, zeros = np.ones(2), np.zeros(2)
    assert best_threshold(margin, ones, zeros) == NEVER
    assert best_threshold(margin, zeros, ones) == 2.0
    # Nothing is gained by refusing: it is not done.
    assert best_threshold(margin, zeros, zeros) == NEVER
    # No threshold separates two rows with the same margin.
    assert best_threshold(np.asarray([1.0, 1.0]), np.asarray([1.0, 0.0]), np.asarray([0.0, 0.6])) == NEVER
