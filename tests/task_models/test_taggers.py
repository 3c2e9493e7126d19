"""The three heads of tagging, on rows of one and of several windows."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.learners.task_models import taggers
from components.learners.task_models.taggers import Tagger
from components.models.base import Batch
from components.models.layers.chunks import Texts
from components.models.layers.host import fixed_shapes
from components.models.layers.lstm import BiLSTM
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training

LABELS = ["B-X", "I-X", "O"]
KINDS = ("linear", "crf", "bilstm_crf")


def settings(tagger: str, **more: object) -> FinetuneSettings:
    training = Training(rate=0.01, batch_size=4)
    return FinetuneSettings(tagger=tagger, head_dropout=0.0, training=training, **more)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taggers, "LSTM_WIDTH", 5)


def made(tagger: str, *, seed: int = 0) -> Tagger:
    torch.manual_seed(seed)
    head = Tagger(4, LABELS, settings(tagger))
    if head.crf is not None:
        with torch.no_grad():
            for parameter in head.crf.parameters():
                parameter.normal_()
    return head.eval()


def batch_of(features: list[Tensor], rows: list[int], tags: list[list[int]]) -> tuple[Tensor, Batch]:
    """Padded features of the sequences, and the rest of a batch as the sampler makes it."""
    targets = torch.full((len(tags), max(map(len, tags))), math.nan, dtype=torch.float64)
    for row, given in zip(targets, tags, strict=True):
        row[: len(given)] = torch.tensor(given)
    return nn.utils.rnn.pad_sequence(features, batch_first=True), {
        "unit_lengths": torch.tensor([len(sequence) for sequence in features]),
        "rows": torch.tensor(rows),
        "targets": targets,
        "target_lengths": torch.tensor([len(given) for given in tags]),
    }


def random_rows(*lengths: int) -> tuple[list[Tensor], list[list[int]]]:
    torch.manual_seed(7)
    return [torch.randn(length, 4) for length in lengths], [[2] * length for length in lengths]


def test_the_linear_head_is_a_softmax_per_word():
    head = made("linear")
    vectors, _ = random_rows(3, 1)
    tags = [[0, 1, 2], [2]]
    features, batch = batch_of(vectors, [0, 1], tags)
    outputs = head(features, batch["unit_lengths"])
    expected = F.cross_entropy(head.output(torch.cat(vectors)), torch.tensor([0, 1, 2, 2]))
    assert outputs.shape == (2, 3, 3)
    assert head.loss(outputs, batch).item() == pytest.approx(expected.item(), abs=1e-6)


@pytest.mark.parametrize("kind", ["linear", "crf"])
def test_windows_of_a_row_are_one_sequence(kind):
    head = made(kind)
    vectors, _ = random_rows(5, 2)
    tags = [[0, 1, 1, 2, 0], [2, 0]]
    whole, batch = batch_of(vectors, [0, 1], tags)
    parts, windowed = batch_of([vectors[0][:2], vectors[0][2:], vectors[1]], [0, 0, 1], tags)
    first, second = head(whole, batch["unit_lengths"]), head(parts, windowed["unit_lengths"])
    assert head.loss(first, batch).item() == pytest.approx(head.loss(second, windowed).item(), abs=1e-6)
    answers = [[answer.tolist() for answer in head.answers(*pair)] for pair in ((first, batch), (second, windowed))]
    assert answers[0] == answers[1]
    assert [len(answer) for answer in answers[0]] == [5, 2]


@pytest.mark.parametrize("fixed", [False, True])
def test_the_lstm_reads_the_windows_of_a_row_as_one_sequence(fixed):
    head = made("bilstm_crf")
    vectors, _ = random_rows(5, 4)
    tags = [[0, 1, 1, 2, 0], [2, 0, 0, 1]]
    whole, batch = batch_of(vectors, [0, 1], tags)
    parts, windowed = batch_of([vectors[0][:2], vectors[0][2:], vectors[1][:1], vectors[1][1:]], [0, 0, 1, 1], tags)
    with torch.no_grad(), fixed_shapes() if fixed else nullcontext():
        first, second = head.of_batch(whole, batch), head.of_batch(parts, windowed)
        torch.testing.assert_close(second[0, :2], first[0, :2], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(second[1, :3], first[0, 2:5], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(second[3, :3], first[1, 1:4], atol=1e-6, rtol=1e-5)
        # Read window by window, the states begin anew at the border.
        apart = head(parts, windowed["unit_lengths"])
    assert not torch.allclose(apart[1, :3], first[0, 2:5], atol=1e-4)
    assert head.loss(first, batch).item() == pytest.approx(head.loss(second, windowed).item(), abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_legal_for_any_scores(kind):
    head = made(kind, seed=3)
    with torch.no_grad():
        # Begs for an I-X first.
        head.output.bias[1] += 5
    vectors, tags = random_rows(6, 4, 1)
    features, batch = batch_of(vectors, [0, 1, 2], tags)
    for answer in head.answers(head(features, batch["unit_lengths"]), batch):
        assert answer.dtype == np.float32
        before = "O"
        for tag in (LABELS[int(number)] for number in answer):
            assert tag != "I-X" or before != "O"
            before = tag


def test_the_lstm_equals_torch_on_single_rows():
    torch.manual_seed(0)
    ours = BiLSTM(4, 3)
    theirs = nn.LSTM(4, 3, bidirectional=True)
    with torch.no_grad():
        for part, suffix in ((ours.ahead, ""), (ours.back, "_reverse")):
            getattr(theirs, f"weight_ih_l0{suffix}").copy_(part.weight_ih)
            getattr(theirs, f"weight_hh_l0{suffix}").copy_(part.weight_hh)
            getattr(theirs, f"bias_ih_l0{suffix}").copy_(part.bias)
            getattr(theirs, f"bias_hh_l0{suffix}").zero_()
    vectors, _ = random_rows(5, 2, 1)
    features = nn.utils.rnn.pad_sequence(vectors, batch_first=True, padding_value=1e3)
    actual = ours(features, Texts(torch.tensor([5, 2, 1])))
    for row, vector in zip(actual, vectors, strict=True):
        expected, _ = theirs(vector[:, None])
        torch.testing.assert_close(row[: len(vector)], expected[:, 0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("norm", ["fixed", "batch", "none"])
def test_the_normalisation_sees_words_not_padding(norm):
    torch.manual_seed(0)
    head = Tagger(4, LABELS, settings("linear", head_norm=norm, head_hidden=3))
    vectors, tags = random_rows(3, 1)
    head.fit_norm(torch.cat(vectors))
    features, batch = batch_of(vectors, [0, 1], tags)
    far = features.clone()
    far[1, 1:] = 1e6
    for mode in (head.train(), head.eval()):
        assert torch.equal(mode(features, batch["unit_lengths"]), mode(far, batch["unit_lengths"]))
