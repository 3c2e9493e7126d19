"""Bidirectional attention between question and context: its definition, units of the question, what it can learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from components.models.encoder import load_encoder
from components.settings.finetune import FinetuneSettings
from components.settings.training import Training
from components.task_models.bidaf import AttentionFlow, question_units
from components.task_models.kinds import find_task
from components.task_models.model import TaskModel
from components.task_models.sampler import collate, some_windows
from components.task_models.span_head import NEVER, Answering

QUESTIONS = find_task("questions")


def settings(**changes: object) -> FinetuneSettings:
    values = {"answering": "bidaf", "answering_hidden": 4, "layers": "last", "head_norm": "none", "head_dropout": 0.0}
    return FinetuneSettings(training=Training(rate=0.01, batch_size=4), **values | changes)


def batch_of(*units: list[tuple[int, int]]) -> dict[str, torch.Tensor]:
    """Offsets of the units after the first; (0, 0) for those of the question."""
    told = [torch.tensor([(0, 0), *parts]) for parts in units]
    return {
        "offsets": torch.nn.utils.rnn.pad_sequence(told, batch_first=True, padding_value=-1),
        "unit_lengths": torch.tensor([len(part) for part in told]),
        "rows": torch.arange(len(told)),
    }


LONG = [(0, 0), (0, 0), (0, 3), (4, 6), (7, 9)]
SHORT = [(0, 0), (0, 5)]


def test_the_units_of_the_question() -> None:
    batch = batch_of(LONG, SHORT)
    found = question_units(batch["offsets"], batch["unit_lengths"])
    assert found.tolist() == [[False, True, True, False, False, False], [False, True, False, False, False, False]]


def test_the_scores_by_their_definition() -> None:
    torch.manual_seed(0)
    head = AttentionFlow(3, settings()).eval()
    batch = batch_of(LONG, SHORT)
    features = torch.randn(2, 6, 3)
    scores = head.of_batch(features, batch)
    for row, asked in enumerate((2, 1)):
        length = int(batch["unit_lengths"][row])
        question = features[row, 1 : 1 + asked]
        context = torch.cat([features[row, :1], features[row, 1 + asked : length]])
        u = head.lstm(question[None], torch.tensor([asked]))[0]
        h = head.lstm(context[None], torch.tensor([len(context)]))[0]
        weight = head.similarity.weight[0]
        similarity = torch.stack([torch.stack([weight @ torch.cat([t, j, t * j]) for j in u]) for t in h])
        seen = similarity.softmax(1) @ u
        summary = similarity.amax(1).softmax(0) @ h
        flow = torch.cat([h, seen, h * seen, h * summary], 1)[None]
        modeled, lengths = flow, torch.tensor([len(context)])
        for layer in head.modeling:
            modeled = layer(modeled, lengths)
        ended = head.ending(modeled, lengths)
        expected = torch.cat([head.output(torch.cat([flow, modeled], -1)), head.end(torch.cat([flow, ended], -1))], -1)
        found = torch.cat([scores[row, :1], scores[row, 1 + asked : length]])
        torch.testing.assert_close(found, expected[0], atol=1e-5, rtol=1e-4)
        assert (scores[row, 1 : 1 + asked] == NEVER).all() and (scores[row, length:] == 0).all()


def test_a_sequence_does_not_depend_on_the_others_or_on_padding() -> None:
    torch.manual_seed(0)
    head = AttentionFlow(3, settings()).eval()
    features = torch.randn(2, 6, 3)
    together = head.of_batch(features, batch_of(LONG, SHORT))
    alone = head.of_batch(features[1:, :3], batch_of(SHORT))
    torch.testing.assert_close(together[1, :3], alone[0], atol=1e-6, rtol=1e-5)


def test_a_question_without_pieces_and_a_context_without_pieces() -> None:
    head = AttentionFlow(3, settings()).eval()
    for batch in (batch_of([(0, 3)]), batch_of([(0, 0)]), batch_of([])):
        with torch.inference_mode():
            outputs = head.of_batch(torch.randn(1, int(batch["unit_lengths"][0]), 3), batch)
        assert outputs.isfinite().all()
        (answer,) = head.answers(outputs, batch)
        assert answer[1] <= 3


@pytest.mark.parametrize("family", ["ulmfit", "word2vec", "bert", "xlnet", "gpt"])
def test_the_pieces_of_the_question_are_units_after_the_first(make_encoder, family: str) -> None:
    encoder = load_encoder(make_encoder(family))
    row = ("what is the old goat", "the old goat is here")
    TaskModel(encoder.model, task=QUESTIONS, settings=settings(), labels=[])
    (found,) = QUESTIONS.encode([row], encoder.tokenizer, encoder.model, settings())
    (plain,) = QUESTIONS.encode([row], encoder.tokenizer, encoder.model, settings(answering="linear"))
    question = encoder.tokenizer.encode_batch([row[0]])[0].tolist()
    units, asked = found.units[0], len(question)
    np.testing.assert_array_equal(found.pieces[0], plain.pieces[0])
    assert found.pieces[0][units[1 : 1 + asked, 0]].tolist() == question
    np.testing.assert_array_equal(np.delete(units, slice(1, 1 + asked), axis=0), plain.units[0])
    assert (found.offsets[0][1 : 1 + asked] == 0).all()
    np.testing.assert_array_equal(np.delete(found.offsets[0], slice(1, 1 + asked), axis=0), plain.offsets[0])


def test_answers_lie_in_the_context_and_a_truncated_answer_is_no_target(make_encoder) -> None:
    encoder = load_encoder(make_encoder("ulmfit"))
    changes = settings(max_length=16, stride=4)
    context = "the old goat is here the red horse is there a small cat is here " * 2
    (row,) = QUESTIONS.encode([("the red horse", context)], encoder.tokenizer, encoder.model, changes)
    assert len(row.pieces) > 3
    start = context.index("horse")
    target = np.asarray([start, start + 5], dtype=np.float64)
    for seed in range(5):
        chosen = some_windows(row, target, most=1, rng=np.random.default_rng(seed))
        inside = chosen.offsets[0][chosen.offsets[0][:, 1] > 0]
        assert inside[0, 0] <= start and inside[-1, 1] >= start + 5
    model = TaskModel(encoder.model, task=QUESTIONS, settings=changes, labels=[]).eval()
    batch = collate([row], [target])
    with torch.inference_mode():
        (answer,) = model.head.answers(model(batch), batch)
        assert torch.isfinite(model.losses(batch).loss)
    assert 0 <= answer[0] <= answer[1] <= len(context)


@pytest.mark.parametrize(("answering", "solved"), [("bidaf", True), ("linear", False)])
def test_attention_finds_what_the_question_names_over_word_vectors(make_encoder, answering: str, solved: bool) -> None:
    """The answer is the word of the question; without attention a word vector knows nothing of the question."""
    encoder = load_encoder(make_encoder("word2vec"))
    words = ["apple", "iron", "horse", "gold"]
    rows, targets = [], []
    for shift in range(4):
        context = " ".join(words[shift:] + words[:shift])
        for word in words:
            rows.append((word, context))
            targets.append(np.asarray([context.index(word), context.index(word) + len(word)], dtype=np.float64))
    torch.manual_seed(0)
    torch.nn.init.normal_(encoder.model.layer_groups()[0][0])
    chosen = settings(answering=answering, answering_hidden=12)
    model = TaskModel(encoder.model, task=QUESTIONS, settings=chosen, labels=[])
    assert isinstance(model.head, AttentionFlow if solved else Answering)
    batch = collate(QUESTIONS.encode(rows, encoder.tokenizer, encoder.model, chosen), targets)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        loss = model.losses(batch).loss
        loss.backward()
        optimizer.step()
    assert (loss.item() < 0.1) is solved
