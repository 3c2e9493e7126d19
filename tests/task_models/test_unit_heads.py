"""Heads that read units: the three taggers, and spans of answers, on rows of one and of several windows."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.data.scoring.spans import legal_transitions
from components.learners.task_models import taggers
from components.learners.task_models.span_head import NEVER, Answering, best_spans, best_threshold
from components.learners.task_models.taggers import Tagger
from components.models.base import Batch
from components.models.layers.chunks import Texts
from components.models.layers.lstm import BiLSTM
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training

LABELS = ["B-X", "I-X", "O"]
KINDS = ("linear", "crf", "bilstm_crf")
SETTINGS = FinetuneSettings(head_dropout=0.0, training=Training(rate=0.01, batch_size=4))
padded = nn.utils.rnn.pad_sequence


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taggers, "LSTM_WIDTH", 5)


def made(tagger: str, *, seed: int = 0, **more: Any) -> Tagger:
    torch.manual_seed(seed)
    head = Tagger(SETTINGS.model_copy(update={"tagger": tagger, **more}), 4, LABELS)
    if head.crf is not None:
        with torch.no_grad():
            for parameter in head.crf.parameters():
                parameter.normal_()
    return head.eval()


def target_batch(targets: list[list[float]]) -> Batch:
    rows = [torch.tensor(given, dtype=torch.float64) for given in targets]
    return {"targets": padded(rows, batch_first=True, padding_value=math.nan)}


def batch_of(features: list[Tensor], rows: list[int], tags: list[list[int]]) -> tuple[Tensor, Batch]:
    """Padded features of the sequences, and the rest of a batch as the sampler makes it."""
    lengths = torch.tensor([len(sequence) for sequence in features])
    return padded(features, batch_first=True), {"unit_lengths": lengths, "rows": torch.tensor(rows)} | target_batch(
        tags
    )


def random_rows(*lengths: int) -> list[Tensor]:
    torch.manual_seed(7)
    return [torch.randn(length, 4) for length in lengths]


def test_the_linear_head_is_a_softmax_per_word():
    head, vectors = made("linear"), random_rows(3, 1)
    features, batch = batch_of(vectors, [0, 1], [[0, 1, 2], [2]])
    outputs, scores = head(features, batch), head.output(torch.cat(vectors))
    assert outputs.shape == (2, 3, 3)
    expected = F.cross_entropy(scores, torch.tensor([0, 1, 2, 2])).item()
    assert head.loss(outputs, batch).item() == pytest.approx(expected, abs=1e-6)
    # A student learns the probabilities of a teacher, which may be its own.
    taught = head.taught(outputs.detach(), batch)
    np.testing.assert_allclose(np.concatenate(taught).reshape(4, 3), scores.softmax(-1).detach(), atol=1e-6)
    own = batch | target_batch([each.tolist() for each in taught])
    assert head.imitation(outputs, own, temperature=2.0).item() == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_windows_of_a_row_are_one_sequence(kind):
    head, (first, second) = made(kind), random_rows(5, 4)
    tags = [[0, 1, 1, 2, 0], [2, 0, 0, 1]]
    whole, batch = batch_of([first, second], [0, 1], tags)
    parts, windowed = batch_of([first[:2], first[2:], second[:1], second[1:]], [0, 0, 1, 1], tags)
    with torch.no_grad():
        of_whole, of_parts = head(whole, batch), head(parts, windowed)
    for row, sequence, units in ((0, 0, slice(0, 2)), (0, 1, slice(2, 5)), (1, 2, slice(0, 1)), (1, 3, slice(1, 4))):
        expected = of_whole[row, units]
        torch.testing.assert_close(of_parts[sequence, : len(expected)], expected, atol=1e-6, rtol=1e-5)
    if kind == "bilstm_crf":
        # Read window by window, the states begin anew at the border.
        apart = head(parts, windowed | {"rows": torch.arange(4)})
        assert not torch.allclose(apart[1, :3], of_whole[0, 2:5], atol=1e-4)
    assert head.loss(of_whole, batch).item() == pytest.approx(head.loss(of_parts, windowed).item(), abs=1e-6)
    answers = [[answer.tolist() for answer in head.answers(*of)] for of in ((of_whole, batch), (of_parts, windowed))]
    assert answers[0] == answers[1] and [len(answer) for answer in answers[0]] == [5, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_legal_for_any_scores(kind):
    head = made(kind, seed=3)
    with torch.no_grad():
        # Begs for an I-X first.
        head.output.bias[1] += 5
    features, batch = batch_of(random_rows(6, 4, 1), [0, 1, 2], [[2] * 6, [2] * 4, [2]])
    for answer in head.answers(head(features, batch), batch):
        assert answer.dtype == np.float32
        tags = ["O", *(LABELS[int(number)] for number in answer)]
        assert not [pair for pair in zip(tags, tags[1:], strict=False) if pair == ("O", "I-X")]


def test_the_lstm_equals_torch_on_single_rows():
    torch.manual_seed(0)
    ours, theirs = BiLSTM(4, 3), nn.LSTM(4, 3, bidirectional=True)
    with torch.no_grad():
        for part, suffix in ((ours.ahead, ""), (ours.back, "_reverse")):
            getattr(theirs, f"weight_ih_l0{suffix}").copy_(part.weight_ih)
            getattr(theirs, f"weight_hh_l0{suffix}").copy_(part.weight_hh)
            getattr(theirs, f"bias_ih_l0{suffix}").copy_(part.bias)
            getattr(theirs, f"bias_hh_l0{suffix}").zero_()
    vectors = random_rows(5, 2, 1)
    actual = ours(padded(vectors, batch_first=True, padding_value=1e3), Texts(torch.tensor([5, 2, 1])))
    for row, vector in zip(actual, vectors, strict=True):
        torch.testing.assert_close(row[: len(vector)], theirs(vector[:, None])[0][:, 0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("norm", ["fixed", "batch", "none"])
def test_the_normalisation_sees_words_not_padding(norm):
    head, vectors = made("linear", head_norm=norm, head_hidden=3), random_rows(3, 1)
    head.norm.fit(torch.cat(vectors))
    features, batch = batch_of(vectors, [0, 1], [[2] * 3, [2]])
    far = features.clone()
    far[1, 1:] = 1e6
    for mode in (head.train(), head.eval()):
        assert torch.equal(mode(features, batch), mode(far, batch))


def test_legal_transitions():
    bio = ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]
    legal, opens = legal_transitions(bio), {"B-LOC", "B-PER", "O"}
    assert {bio[tag] for tag in range(5) if legal.start[tag]} == opens and legal.end.all()
    for row, before in enumerate(bio):
        inside = {f"I-{before[2:]}"} if before != "O" else set()
        assert {bio[tag] for tag in range(5) if legal.step[row, tag]} == opens | inside
    free = legal_transitions(["NOUN", "VERB", "O"])
    assert free.start.all() and free.step.all() and free.end.all()


# Spans. The first unit of a sequence represents the whole sequence.

WORDS = [(0, 3), (4, 6), (7, 12), (12, 13)]


def answering() -> Answering:
    torch.manual_seed(0)
    return Answering.of(SETTINGS.model_copy(update={"head_norm": "none"}), 3, ()).eval()


def spans_of(offsets: list[list[tuple[int, int]]], rows: list[int], targets: list[list[float]] | None = None) -> Batch:
    told = [torch.tensor([(0, 0), *units]) for units in offsets]
    batch = {
        "offsets": padded(told, batch_first=True, padding_value=-1),
        "unit_lengths": torch.tensor([len(units) for units in told]),
        "rows": torch.tensor(rows),
    }
    return batch if targets is None else batch | target_batch(targets)


def scores(*sequences: list[tuple[float, float]]) -> Tensor:
    return padded([torch.tensor(sequence) for sequence in sequences], batch_first=True)


@pytest.mark.parametrize("longest", [1, 5, 8, 160])
def test_best_spans_equals_enumeration(longest):
    torch.manual_seed(longest)
    offsets = [WORDS, WORDS[:2], [(2, 9)]]
    batch, outputs = spans_of(offsets, [0, 1, 2]), torch.randn(3, 5, 2)
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
        assert actual[row].tolist() == [*best, pytest.approx(every[best], abs=1e-6)]


def test_the_windows_of_a_row_become_one_answer():
    # Row 0 in two windows, row 1 in one; no answer scores 5 and 1, then 4.
    batch = spans_of([WORDS[:2], WORDS[1:], WORDS], [0, 0, 1])
    outputs = scores(
        [(2.5, 2.5), (1.0, 0.0), (0.0, 1.0)],
        [(0.5, 0.5), (0.0, 0.0), (3.0, 0.0), (0.0, 1.0)],
        [(2.0, 2.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (0.0, 3.0)],
    )
    first, second = answering().answers(outputs, batch)
    assert first.dtype == np.float32
    assert (first.tolist(), second.tolist()) == ([7, 13, 4.0, 1.0], [0, 0, 3.0, 4.0])
    # A sequence without context has no span.
    batch, outputs = spans_of([[], WORDS[:1]], [0, 1]), scores([(9.0, 9.0)], [(0.0, 0.0), (1.0, 2.0)])
    answers = [answer.tolist() for answer in answering().answers(outputs, batch)]
    assert answers == [[0, 0, NEVER, 18.0], [0, 3, 3.0, 0.0]]


def test_targets_of_a_window():
    # "one two three!" as WORDS; the answer is "two three", characters 4 to 12: units 2 and 3; then within unit 3.
    offsets = [WORDS, WORDS[:2], WORDS[2:], WORDS, [], WORDS]
    batch = spans_of(offsets, [0, 0, 0, 1, 2, 3], targets=[[4, 12, 0, 3], [], [4, 12], [8, 10]])
    outputs = torch.randn(6, 5, 2, generator=torch.Generator().manual_seed(0))
    expected = [
        F.cross_entropy(outputs[row, : len(offsets[row]) + 1, side], torch.tensor(unit))
        for row, span in enumerate([(2, 3), (0, 0), (0, 0), (0, 0), (0, 0), (3, 3)])
        for side, unit in enumerate(span)
    ]
    assert answering().loss(outputs, batch).item() == pytest.approx(torch.stack(expected).mean().item(), abs=1e-6)


def test_the_threshold_maximises_the_sum():
    margin = np.asarray([3.0, -1.0, 2.0, 0.5])
    given, refused = np.asarray([1.0, 0.0, 0.0, 1.0]), np.asarray([0.0, 1.0, 1.0, 0.0])
    # In the order of margins -1, 0.5, 2, 3 it is best to refuse the first only: 3 rows right.
    assert best_threshold(margin, given, refused) == -0.25
    assert max(np.where(margin >= value, given, refused).sum() for value in np.linspace(-3, 5, 100)) == 3
    margin, ones, zeros = np.asarray([0.0, 1.0]), np.ones(2), np.zeros(2)
    assert best_threshold(margin, ones, zeros) == NEVER
    assert best_threshold(margin, zeros, ones) == 2.0
    # Nothing is gained by refusing: it is not done.
    assert best_threshold(margin, zeros, zeros) == NEVER
    # No threshold separates two rows with the same margin.
    assert best_threshold(np.asarray([1.0, 1.0]), np.asarray([1.0, 0.0]), np.asarray([0.0, 0.6])) == NEVER


def test_calibration_sets_the_threshold_and_keeps_it_with_the_weights():
    head, again = answering(), answering()
    batch, outputs = spans_of([WORDS, WORDS, WORDS], [0, 1, 2]), torch.zeros(3, 5, 2)
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
    again.load_state_dict(head.state_dict())
    assert [each.tolist() for each in actual] == [each.tolist() for each in again.answers(outputs, batch)]
    assert actual[1].tolist() == [0, 3, 3.0, 2.5]
