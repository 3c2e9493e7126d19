"""The training loop: the computation of a step, and bit-identical training from a stored state."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from components.cluster.distributed import World
from components.core.errors import TrainingError
from components.models.base import Losses
from components.settings.training import Training
from components.training.loop import TrainingState, train
from components.training.optim import ParameterGroup, WeightAverage, decayed, non_monotone
from components.training.pretraining.streams import StreamSampler
from tests.training.helpers import TinyModel, lm_settings, numbered_store, same_bits, tiny_model

STEPS = 7


def stream() -> StreamSampler:
    return StreamSampler(numbered_store(), batch_size=4, window=8, seed=1, vocabulary=32, jitter=1)


def state_of(model: torch.nn.Module, settings: Training, **changes: object) -> TrainingState:
    return TrainingState.fresh(model, decayed(model.parameters()), settings=settings, **changes)


def run(state: TrainingState, settings: Training, *, until: int = STEPS) -> list[float]:
    losses = []
    for report in train(state, stream(), settings=settings, total_steps=STEPS, seed=5):
        losses.append(report.loss)
        if report.step == until:
            break
    return losses


@pytest.mark.parametrize(
    ("optimizer", "precision"),
    [*((name, "float32") for name in ("adamw", "adagrad", "sgd", "asgd")), ("adamw", "bf16")],
)
def test_training_from_a_restored_state_is_bit_identical(optimizer, precision):
    settings = lm_settings(optimizer=optimizer)

    def fresh():
        state = state_of(tiny_model(), settings, precision=precision)
        if state.average is not None:
            state.average.begins = 2
        return state

    losses = run(whole := fresh(), settings)
    for stop in (1, 4):
        head = run(first := fresh(), settings, until=stop)
        # Through bytes, as in a checkpoint.
        stored, numbers = load(save(first.tensors(World()))), first.numbers()
        second = state_of(tiny_model(seed=9), settings)
        second.restore(stored, numbers, world=World())
        assert head + run(second, settings) == losses
        assert same_bits(second.tensors(World()), whole.tensors(World()))
        assert optimizer != "asgd" or second.average.count == STEPS - 2


def test_a_step_is_adam_by_hand():
    """One weight, gradient 2 clipped to 0.5: AdamW's first step is the rate itself, after decoupled decay."""

    class One(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([[3.0]]))

        def losses(self, batch, carry=()):
            return Losses((2 * self.weight).sum(), {})

    settings = lm_settings(schedule="constant", rate=0.1, clip=0.5, weight_decay=0.01)
    sampler = StreamSampler(numbered_store(), batch_size=4, window=8, seed=1, vocabulary=32)
    state = state_of(model := One(), settings)
    (report,) = train(state, sampler, settings=settings, total_steps=1, seed=0)
    assert report.gradient_norm == pytest.approx(2.0)
    assert report.loss == pytest.approx(6.0)
    assert (report.step, report.rate, report.tokens) == (1, 0.1, 32)
    assert model.weight.item() == pytest.approx(3.0 * (1 - 0.1 * 0.01) - 0.1, abs=1e-6)

    state = state_of(model := One(), settings := settings.model_copy(update={"optimizer": "sgd", "weight_decay": 0.0}))
    list(train(state, sampler, settings=settings, total_steps=1, seed=0))
    assert model.weight.item() == pytest.approx(3.0 - 0.1 * 0.5, abs=1e-6)

    # AdaGrad divides by the root of all squared gradients so far: 0.5 / 0.5, then 0.5 / sqrt(0.5^2 + 0.5^2).
    state = state_of(model := One(), settings := settings.model_copy(update={"optimizer": "adagrad"}))
    list(train(state, sampler, settings=settings, total_steps=2, seed=0))
    assert model.weight.item() == pytest.approx(3.0 - 0.1 * (1 + 0.5**0.5), abs=1e-6)


def test_a_group_is_trained_in_its_spans_at_its_rate():
    model = tiny_model()
    weight, bias = model.cell.weight, model.cell.bias
    groups = [
        ParameterGroup([weight], spans=((0, 2), (5, None))),
        ParameterGroup([bias], scale=0.5, spans=((2, 4), (5, 6))),
    ]
    settings = lm_settings()
    held = {"weight": weight.clone(), "bias": bias.clone()}
    moved: dict[str, list[int]] = {"weight": [], "bias": []}
    state = TrainingState.fresh(model, groups, settings=settings)
    for report in train(state, stream(), settings=settings, total_steps=STEPS, seed=5):
        for name, tensor in (("weight", weight), ("bias", bias)):
            if not torch.equal(tensor, held[name]):
                moved[name].append(report.step - 1)
            held[name] = tensor.detach().clone()
        assert state.optimizer.param_groups[1]["lr"] == pytest.approx(report.rate / 2)
        if report.step == 5:
            # No group is trained in step 4: there is no gradient, but the loss is reported.
            assert report.gradient_norm == 0 and report.loss is not None
    assert moved == {"weight": [0, 1, 5, 6], "bias": [2, 3, 5]}
    assert not model.embedding.weight.requires_grad


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_the_run(value):
    class Breaks(TinyModel):
        def losses(self, batch, carry=()):
            losses = super().losses(batch, carry)
            return replace(losses, loss=losses.loss * value) if self.seen > 100 else losses

    settings = lm_settings(schedule="constant", rate=0.25)
    state = state_of(Breaks(), settings)
    message = rf"the loss became {value} at step \d+ \(learning rate 0.\d+\); lower training.rate or training.clip, "
    with pytest.raises(TrainingError, match=message):
        run(state, settings)
    assert all(tensor.isfinite().all() for tensor in state.tensors(World()).values())


def test_a_state_of_another_model_is_refused():
    settings = lm_settings()
    stored = state_of(tiny_model(), settings)
    other = state_of(TinyModel(width=8), settings)
    with pytest.raises(TrainingError, match="belongs to another model; remove it to restart training"):
        other.restore(stored.tensors(World()), stored.numbers(), world=World())


def test_exact_values_of_averages():
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    plain, late, begun = (WeightAverage([weight], begins=step) for step in (0, 2, None))
    for step, value in enumerate([2.0, 4.0, 9.0], start=1):
        weight.data.fill_(value)
        for average in (plain, late, begun):
            average.update(step)
        if step == 2:
            begun.begin(step)
    # Sum of w_T .. w_K over K - T + 1, with T = 2 and K = 3.
    assert begun.tensors[0].item() == pytest.approx((4 + 9) / 2)
    assert plain.tensors[0].item() == pytest.approx(5.0)
    assert late.tensors[0].item() == pytest.approx(9.0)
    plain.swap()
    assert (weight.item(), plain.tensors[0].item()) == (pytest.approx(5.0), 9.0)
    plain.swap()
    assert weight.item() == 9.0


def algorithm_1(losses: list[float], n: int) -> int | None:
    """The check at which NT-ASGD starts the average, as written in the paper."""
    logs: list[float] = []
    for t, v in enumerate(losses):
        if t > n and v > min(logs[: t - n]):
            return t
        logs.append(v)
    return None


def test_the_non_monotone_trigger_is_that_of_the_paper():
    rng = np.random.default_rng(0)
    began = []
    for _ in range(200):
        # Decreasing at first, then about constant.
        losses = list(3 * np.exp(-np.arange(20) / 3) + rng.normal(0, 0.1, 20))
        expected = algorithm_1(losses, 5)
        actual = [count - 1 for count in range(1, 21) if non_monotone(losses[:count])]
        assert (actual[0] if actual else None) == expected
        began.append(expected)
    assert None in began and len(set(began)) > 8
