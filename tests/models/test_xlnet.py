"""XLNet against an independent implementation with the same weights, and its masks against loops over the rule."""

import pytest
import torch
from torch import Tensor

from components.interchange.huggingface import CONVERTERS
from components.models.xlnet import XLNet, remembered
from components.tokenization.special import END, MASK, START
from tests.models.peers import peer_of, wild_model

VOCABULARY = 40
SMALL = {"width": 16, "layers": 3, "heads": 4, "feedforward": 40, "memory": 7}
ROWS, LENGTH = 3, 10
Batch = dict[str, Tensor]


@pytest.fixture
def model() -> XLNet:
    return wild_model("xlnet", vocabulary=VOCABULARY, **SMALL)


@pytest.fixture
def batch() -> Batch:
    return make_batch()


def make_batch() -> Batch:
    """5 pieces of text, then a, b and the end; positions 1, 3, 6 and 8 are predicted, each row in another order."""
    order = torch.tensor([0, 0, 0, 0, 0, 3, 3, 3, 3, 3]).repeat(ROWS, 1)
    positions = torch.tensor([[1, 3, 6, 8]]).repeat(ROWS, 1)
    order[:, [1, 3]] = torch.tensor([[1, 2], [2, 1], [1, 2]])
    order[:, [6, 8, 9]] = torch.tensor([[4, 5, 6], [5, 6, 4], [6, 4, 5]])
    return {
        "tokens": torch.randint(5, VOCABULARY, (ROWS, LENGTH)),
        "segments": torch.tensor([0, 0, 0, 0, 0, 0, 0, 1, 1, 2]).repeat(ROWS, 1),
        "order": order,
        "positions": positions,
        "targets": torch.randint(5, VOCABULARY, (ROWS, 4)),
    }


def as_theirs(batch: Batch) -> dict[str, Tensor]:
    """The batch as `XLNetLMHeadModel` reads it; `perm_mask`, by loops over the rule, is 1 where i does not attend to j.

    Its single mask is for the query stream, in which a predicted piece does not attend to itself; the class allows that
    in the content stream.
    """
    hidden = torch.zeros(ROWS, LENGTH, LENGTH)
    chosen = torch.zeros(ROWS, batch["positions"].shape[1], LENGTH)
    for row in range(ROWS):
        predicted = batch["positions"][row].tolist()
        for number, position in enumerate(predicted):
            chosen[row, number, position] = 1
        for i in range(LENGTH):
            for j in range(LENGTH):
                before = batch["order"][row, j] < batch["order"][row, i]
                together = batch["order"][row, j] == batch["order"][row, i] and i not in predicted
                hidden[row, i, j] = float(not (before or together))
    return {
        "input_ids": batch["tokens"],
        "token_type_ids": batch["segments"],
        "perm_mask": hidden,
        "target_mapping": chosen,
        "labels": batch["targets"],
    }


def memories() -> tuple[Tensor, ...]:
    return tuple(torch.randn(ROWS, 7, 16) for _ in range(3))


def turned(carry: tuple[Tensor, ...]) -> list[Tensor]:
    return [memory.transpose(0, 1) for memory in carry]


@pytest.mark.parametrize("with_memory", [False, True])
def test_the_same_loss_and_gradients(model, batch, with_memory):
    peer = peer_of(model)
    carry = memories() if with_memory else ()
    mems = {"mems": turned(carry), "use_mems": True} if with_memory else {}
    expected = peer(**as_theirs(batch), **mems)
    result = model.losses(batch, carry)
    torch.testing.assert_close(result.loss, expected.loss, atol=1e-5, rtol=1e-5)
    assert int(result.sums["tokens"][1]) == 12
    result.loss.backward()
    expected.loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.grad)
    mine = CONVERTERS["xlnet"].to_huggingface(model)[1]
    theirs = {name: parameter.grad for name, parameter in peer.named_parameters()}
    torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)


def test_the_memory_of_three_segments(model):
    """Memory and losses; `transformers` also keeps the first `reuse_len` positions of each segment."""
    peer = peer_of(model)
    peer.transformer.reuse_len = remembered(LENGTH)
    carry: tuple[Tensor, ...] = ()
    mems = None
    for _ in range(3):
        batch = make_batch()
        expected = peer(**as_theirs(batch), mems=mems, use_mems=True)
        result = model.losses(batch, carry)
        torch.testing.assert_close(result.loss, expected.loss, atol=1e-5, rtol=1e-5)
        carry, mems = result.carry, expected.mems
        assert carry[0].shape[1] <= 7
        torch.testing.assert_close(turned(carry), list(mems), atol=1e-5, rtol=1e-5)
    assert carry[0].shape == (ROWS, 7, 16)


@pytest.mark.parametrize("settings", [{}, {"clamp": 3}])
def test_the_same_hidden_states(settings):
    model = wild_model("xlnet", vocabulary=VOCABULARY, **SMALL, **settings)
    lengths = torch.tensor([10, 6, 3])
    mask = torch.arange(LENGTH) < lengths[:, None]
    tokens = torch.randint(5, VOCABULARY, (ROWS, LENGTH)) * mask
    kinds = torch.zeros_like(tokens)
    for row, length in enumerate(lengths):
        tokens[row, length - 2 : length] = torch.tensor([END, START])
        kinds[row, length - 1] = 2
    expected = peer_of(model).transformer(
        tokens, attention_mask=mask.long(), token_type_ids=kinds, output_hidden_states=True
    )
    actual = model.hidden_states(tokens, lengths)
    assert len(actual) == len(expected.hidden_states) == 4
    for left, right in zip(actual, expected.hidden_states, strict=True):
        torch.testing.assert_close(left[mask], right[mask], atol=1e-5, rtol=1e-5)
    summary = model.summary(actual[-1], lengths)
    assert torch.equal(summary, torch.stack([actual[-1][row, length - 1] for row, length in enumerate(lengths)]))


def test_rows_that_are_read_from_their_end(model, batch):
    peer = peer_of(model)
    # `transformers` reads the second half of a batch backwards.
    peer.transformer.bi_data = True
    twice = {name: torch.cat([rows[:1], rows[:1]]) for name, rows in batch.items()}
    theirs = {name: torch.cat([rows[:1], rows[:1]]) for name, rows in as_theirs(batch).items() if name != "labels"}
    carry = tuple(torch.cat([memory[:1], memory[:1]]) for memory in memories())
    logits = peer(**theirs, mems=turned(carry), use_mems=True).logits
    for row, backward in enumerate([0, 1]):
        item = {name: rows[row : row + 1] for name, rows in twice.items()} | {"backward": torch.tensor([backward])}
        nats = model.losses(item, tuple(memory[:1] for memory in carry)).loss
        expected = torch.nn.functional.cross_entropy(logits[row], twice["targets"][row])
        torch.testing.assert_close(nats, expected, atol=1e-5, rtol=1e-5)
    both = model.losses(twice | {"backward": torch.tensor([0, 1])}, carry).loss
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), twice["targets"].flatten())
    torch.testing.assert_close(both, expected, atol=1e-5, rtol=1e-5)


def test_filling_in(model):
    """Each [MASK] is predicted from the visible pieces only, independently of the other."""
    tokens = torch.randint(5, VOCABULARY, (2, 8))
    tokens[:, [2, 5]] = MASK
    logits, carry = model.predict(tokens)
    assert logits.shape == (2, 8, VOCABULARY)
    hidden, chosen = torch.zeros(2, 8, 8), torch.zeros(2, 2, 8)
    hidden[:, :, [2, 5]] = 1
    chosen[:, 0, 2] = chosen[:, 1, 5] = 1
    expected = peer_of(model)(tokens, perm_mask=hidden, target_mapping=chosen).logits
    torch.testing.assert_close(logits[:, [2, 5]], expected, atol=1e-4, rtol=1e-5)
    assert carry[0].shape == (2, 7, 16)
    assert model.predict(tokens, carry)[1][0].shape == (2, 7, 16)
