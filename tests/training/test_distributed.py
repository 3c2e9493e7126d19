"""Several workers: the same global batches and sums, and a state that any number of workers can resume."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from components.cluster.distributed import World
from components.training.loop import TrainingState
from components.training.optim import decayed
from components.training.pretraining.streams import StreamSampler
from tests.training.helpers import (
    lm_settings,
    losses_until,
    numbered_store,
    one_of_two,
    run_forked,
    same_bits,
    tiny_model,
)

SETTINGS = lm_settings()
STEPS = 6


def fresh_state() -> TrainingState:
    model = tiny_model()
    model.dropout.p = 0.0
    return TrainingState.fresh(model, decayed(model.parameters()), settings=SETTINGS)


def steps(state: TrainingState, world: World, until: int) -> list[float]:
    sampler = StreamSampler(numbered_store(), batch_size=4, window=8, seed=1, vocabulary=32, jitter=1)
    return losses_until(state, sampler, SETTINGS, steps=STEPS, until=until, world=world)


def three_steps(rank: int, folder: Path) -> None:
    with one_of_two(rank, folder) as world:
        state = fresh_state()
        losses = steps(state, world, 3)
        stored = state.tensors(world)
        other = torch.full((3,), float(rank))
        numbers = torch.tensor(rank + 1.0)
        world.average_([other, numbers])
        received = world.broadcast(f"from {rank}")
        assert (other.tolist(), numbers.item(), received) == ([0.5] * 3, 1.5, "from 0")
        assert world.total(torch.tensor([1.0 + rank])).item() == 3.0
        save_file({**stored, "losses": torch.tensor(losses)}, folder / f"{rank}.safetensors")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, torch.Tensor]]:
    """The states of two workers after three steps."""
    folder = tmp_path_factory.mktemp("two")
    run_forked(three_steps, folder)
    return [load_file(folder / f"{rank}.safetensors") for rank in range(2)]


def test_workers_have_bit_identical_weights(two):
    # Each counts the tokens of its own rows.
    two = [dict(held) for held in two]
    first, second = (held.pop("model.seen").item() for held in two)
    assert first == second
    assert same_bits(*two)


def test_two_workers_compute_the_same_as_one(two):
    alone = fresh_state()
    losses = steps(alone, World(), 3)
    assert two[0]["losses"].tolist() == pytest.approx(losses, rel=1e-5)
    held = alone.tensors(World())
    assert two[0]["carry.0"].shape == held["carry.0"].shape == (4, 6)
    torch.testing.assert_close(two[0]["carry.0"], held["carry.0"], rtol=1e-3, atol=1e-4)


def test_one_worker_resumes_the_state_of_two(two):
    alone, taken = fresh_state(), fresh_state()
    losses = steps(alone, World(), STEPS)
    numbers = taken.numbers() | {"step": 3}
    taken.restore(two[0], numbers, world=World())
    assert steps(taken, World(), STEPS) == pytest.approx(losses[3:], rel=1e-3)


class Branches(nn.Module):
    """A table with sparse gradients and linear layers, of which `unused` has none."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(9, 4, sparse=True)
        self.unused, self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.first(self.table(ids)))).square().mean()


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: single.grad.to_dense() for name, single in model.named_parameters() if single.grad is not None}


def exchanging(rank: int, folder: Path) -> None:
    model = Branches()
    loss = model(torch.tensor([rank, 2]))
    loss.backward()
    loss = loss.detach()
    with one_of_two(rank, folder) as world:
        world.average_gradients(list(model.parameters()), loss)
    save_file(gradients(model) | {"loss": loss}, folder / f"{rank}.safetensors")


def test_gradients_are_means_over_the_workers(tmp_path):
    run_forked(exchanging, tmp_path)
    actual = [load_file(tmp_path / f"{rank}.safetensors") for rank in range(2)]
    assert same_bits(actual[0], actual[1])
    model = Branches()
    loss = torch.stack([model(torch.tensor([rank, 2])) for rank in range(2)]).mean()
    loss.backward()
    torch.testing.assert_close(actual[0], gradients(model) | {"loss": loss.detach()})
