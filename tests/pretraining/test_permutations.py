"""Windows of the permutation language model: content of a row, predicted spans, attention mask."""

from typing import Any

import numpy as np
import pytest
import torch

from components.core.errors import DataError
from components.models.base import Batch
from components.models.xlnet import XLNetConfig
from components.tokenization.special import END, FIRST_ORDINARY, START
from components.training.pretraining.permutations import PermutationSampler
from components.training.pretraining.streams import StreamSampler
from tests.training.helpers import MemoryStore, numbered_store

WINDOW, ROWS = 48, 4
TEXT = WINDOW // 2


def sampler(store: MemoryStore | None = None, **options: Any) -> PermutationSampler:
    values = {"batch_size": ROWS, "window": WINDOW, "seed": 3, "vocabulary": 5000} | options
    return PermutationSampler(store or numbered_store(documents=60), **values)


def batches(steps: int, **options: Any) -> list[Batch]:
    drawn = sampler(**options)
    return [drawn.batch(step) for step in range(steps)]


def test_a_row_is_text_then_two_segments():
    follows = 0
    for batch in batches(30):
        for tokens, segments in zip(batch["tokens"].tolist(), batch["segments"].tolist(), strict=True):
            assert len(tokens) == WINDOW
            assert segments == sorted(segments)
            cut = segments.index(1)
            assert tokens[cut - 1] == tokens[-2] == END
            assert tokens[-1] == START
            assert segments[-1] == 2 and segments.count(2) == 1
            a, b = tokens[TEXT : cut - 1], tokens[cut:-2]
            assert len(a) >= 1 and len(b) >= 1 and len(a) + len(b) == WINDOW - TEXT - 3
            # Pieces are consecutive numbers; END is at the end of a document.
            before = [piece for piece in (*tokens[:TEXT], *a) if piece != END]
            if a[-1] != END and b[0] != END:
                follows += b[0] == before[-1] + 1
    assert 0.35 * 120 < follows < 0.65 * 120


def test_the_text_continues_from_step_to_step():
    """The text is the stream of `StreamSampler` in windows of the text's length; segment a follows it."""
    store = numbered_store(documents=60)
    lanes = StreamSampler(store, batch_size=ROWS, window=TEXT, seed=3, vocabulary=5000)
    for step, batch in enumerate(batches(80)):
        assert torch.equal(batch["tokens"][:, :TEXT], lanes.batch(step)["tokens"])
        assert torch.equal(batch["tokens"][:, TEXT], lanes.batch(step + 1)["tokens"][:, 0])
    drawn = sampler()
    assert [drawn.tokens_before(step) for step in (0, 5)] == [0, 5 * ROWS * WINDOW]
    assert drawn.rate_scale(7) == 1


def test_a_sixth_is_predicted_in_spans():
    spans: set[int] = set()
    for batch in batches(20):
        assert batch["positions"].shape == batch["targets"].shape == (ROWS, WINDOW // 6)
        assert torch.equal(batch["tokens"].gather(1, batch["positions"]), batch["targets"])
        assert (batch["targets"] >= FIRST_ORDINARY).all()
        assert ((batch["positions"] < TEXT).sum(1) == WINDOW // 12).all()
        for row in batch["positions"].numpy():
            assert (np.diff(row) > 0).all()
            assert row.max() < WINDOW - 2, "neither of the last two special pieces"
            spans |= {len(run) for run in np.split(row, np.flatnonzero(np.diff(row) > 1) + 1)}
    assert {1, 2, 3} <= spans


def test_the_attention_mask_is_that_of_the_published_code():
    """The rule of the published code, by loops. Pieces that are not predicted attend to all others of their part;
    predicted and special pieces follow one by one. The text does not attend to a and b, which attend to all of it."""
    for batch in batches(5):
        for row in range(ROWS):
            tokens, order = batch["tokens"][row].tolist(), batch["order"][row].tolist()
            segments, predicted = batch["segments"][row].tolist(), set(batch["positions"][row].tolist())
            framed = {segments.index(1) - 1, WINDOW - 2, WINDOW - 1}
            assert {tokens[place] for place in framed} == {START, END}
            single = predicted | framed
            for i in range(WINDOW):
                for j in range(WINDOW):
                    sees = order[j] < order[i] or (order[j] == order[i] and i not in predicted)
                    if (i < TEXT) != (j < TEXT):
                        assert sees == (i >= TEXT)
                    elif j not in single:
                        assert sees
                    elif i not in single:
                        assert not sees
                    elif i == j:
                        assert sees == (i not in predicted)
                    else:
                        assert sees != (order[i] < order[j])
                        assert order[i] != order[j]
    first, second = (batch["order"][row].gather(0, batch["positions"][row]).tolist() for row in (0, 1))
    assert first != second


def test_every_second_row_can_be_reversed():
    config = XLNetConfig(vocabulary=5000, backward_rows=True)
    lanes = StreamSampler(numbered_store(documents=60), batch_size=ROWS, window=TEXT, seed=3, vocabulary=5000)
    for step, batch in enumerate(batches(20, config=config)):
        assert batch["backward"].tolist() == [0, 1, 0, 1]
        ahead = lanes.batch(step)["tokens"]
        back, _ = lanes._windows(step, 0, 1, backward=True)
        expected = torch.stack([back[row] if row % 2 else ahead[row] for row in range(ROWS)])
        assert torch.equal(batch["tokens"][:, :TEXT], expected)
        for row, sign in enumerate([1, -1, 1, -1]):
            cut = int((batch["segments"][row] == 0).sum())
            for part in (batch["tokens"][row, TEXT : cut - 1], batch["tokens"][row, cut:-2]):
                inside = (part[:-1] >= FIRST_ORDINARY) & (part[1:] >= FIRST_ORDINARY)
                steps = (part[1:] - part[:-1])[inside]
                # Documents are in random order; within one, pieces are consecutive, ascending or descending.
                assert ((steps == sign) | (steps.abs() > 1)).all()
                assert (steps == sign).sum() >= len(steps) - 2
    assert "backward" not in batches(1, config=XLNetConfig(vocabulary=5000))[0]


def test_a_window_that_is_too_small():
    with pytest.raises(DataError, match=r"training.window 5 leaves no room for text and two segments; choose at least"):
        sampler(window=5)
