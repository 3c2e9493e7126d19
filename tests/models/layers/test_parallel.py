"""Two parts in parallel: the same bits as sequentially, and the state of threads."""

import multiprocessing
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from components.models.base import Batch
from components.models.encoder import build_model
from components.models.flair import FLAIR
from components.models.layers.softmax import linear_cross_entropy

TOKENS = torch.randint(0, 20, (4, 2, 9), generator=torch.Generator().manual_seed(3))
BATCH: Batch = dict(zip(("tokens", "targets", "backward_tokens", "backward_targets"), TOKENS, strict=True))


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model() -> FLAIR:
    torch.manual_seed(0)
    model = build_model("flair", vocabulary=20, settings={"embedding": 5, "hidden": 6, "dropout": 0.4, "layers": 2})
    return model.train()


def step(model: FLAIR, threads: int, *, bf16: bool) -> list[Tensor]:
    """The loss, the carry and the gradients of one step."""
    torch.set_num_threads(threads)
    torch.manual_seed(7)
    model.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        losses = model.losses(BATCH)
    losses.loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return [losses.loss.detach(), *losses.carry, *gradients, torch.rand(1)]


@pytest.mark.parametrize("bf16", [False, True])
def test_two_threads_give_the_bits_of_one(model, bf16):
    alone, both = step(model, 1, bf16=bf16), step(model, 2, bf16=bf16)
    assert len(alone) == len(both) == 1 + 8 + len(list(model.parameters())) + 1
    assert all(torch.equal(item, other) for item, other in zip(alone, both, strict=True))
    assert alone[1].dtype == (torch.bfloat16 if bf16 else torch.float32)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_gradients_are_those_of_one_graph(model, threads):
    for module in model.modules():
        if hasattr(module, "probability"):
            module.probability = 0.0
    loss, *_ = actual = step(model, threads, bf16=False)
    model.zero_grad()
    total = torch.zeros(())
    for direction, way in ((model.forwards, ""), (model.backwards, "backward_")):
        outputs, _ = direction(BATCH[f"{way}tokens"].t(), ())
        targets = BATCH[f"{way}targets"].t().reshape(-1)
        total = total + linear_cross_entropy(outputs[-1].flatten(0, 1), direction.output, direction.bias, targets)
    mean = total / BATCH["targets"].numel()
    mean.backward()
    torch.testing.assert_close(loss, mean.detach())
    for item, parameter in zip(actual[9:], model.parameters(), strict=False):
        torch.testing.assert_close(item, parameter.grad)


def test_an_error_of_either_part_is_raised(model):
    torch.set_num_threads(2)
    for name in ("tokens", "backward_tokens"):
        with pytest.raises(IndexError):
            model.losses(BATCH | {name: torch.full((2, 9), 99)})
    assert torch.get_num_threads() == 2
    assert torch.isfinite(step(model, 2, bf16=False)[0])


def _forked(model: FLAIR) -> None:
    assert torch.isfinite(step(model, 2, bf16=False)[0])


def test_a_forked_process_has_a_thread_of_its_own(model):
    # One OpenMP thread each, because OpenMP's threads do not survive a fork.
    step(model, 2, bf16=False)
    child = multiprocessing.get_context("fork").Process(target=_forked, args=(model,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
