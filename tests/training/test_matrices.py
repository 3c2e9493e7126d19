"""Muon and SOAP against numpy in float64; which parameters are hidden matrices; resumed training of every family."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from components.models import FAMILIES
from components.models.base import LanguageModel
from components.models.encoder import build_model
from components.pretraining.pretrain import pretrain
from components.training.distributed import World
from components.training.groups import decayed
from components.training.loop import TrainingState
from components.training.matrices import SOAP, Muon, hidden_matrices, newton_schulz
from components.training.optim import make_optimizer
from tests.training.helpers import lm_settings, make_inputs, pretrain_job, run_with_kills, same_bits, weights

Array = NDArray[np.float64]
RATE, DECAY, BETAS, EPS = 0.02, 0.1, (0.9, 0.97), 1e-8


def gradients(steps: int, shape: tuple[int, int], seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape) for _ in range(steps)]


def numpy_muon(weight: Array, grads: Sequence[Array]) -> Array:
    """Jordan et al. 2024: momentum 0.95, Nesterov, five iterations; the scale is that of Liu et al. 2025."""
    buffer = np.zeros_like(weight)
    for grad in grads:
        buffer = 0.95 * buffer + 0.05 * grad
        x = 0.05 * grad + 0.95 * buffer
        x = x / np.sqrt((x**2).sum())
        for _ in range(5):
            gram = x @ x.T
            x = 3.4445 * x - 4.7750 * gram @ x + 2.0315 * gram @ gram @ x
        weight = weight - RATE * DECAY * weight - RATE * 0.2 * max(weight.shape) ** 0.5 * x
    return weight


def numpy_soap(weight: Array, grads: Sequence[Array], every: int = 10) -> Array:
    """Algorithm 3 of Vyas et al. 2024 and its first step in the authors' code, with explicit loops over both sides."""
    first, second = BETAS
    left, right = (1 - second) * grads[0] @ grads[0].T, (1 - second) * grads[0].T @ grads[0]
    bases = [np.linalg.eigh(side)[1][:, ::-1] for side in (left, right)]
    mean, square = np.zeros_like(weight), np.zeros_like(weight)
    for step, grad in enumerate(grads[1:], start=1):
        mean = first * mean + (1 - first) * grad
        square = second * square + (1 - second) * (bases[0].T @ grad @ bases[1]) ** 2
        inner = bases[0].T @ (mean / (1 - first**step)) @ bases[1]
        inner = inner / (np.sqrt(square / (1 - second**step)) + EPS)
        weight = weight * (1 - RATE * DECAY) - RATE * bases[0] @ inner @ bases[1].T
        left = second * left + (1 - second) * grad @ grad.T
        right = second * right + (1 - second) * grad.T @ grad
        if step % every == 0:
            for axis, side in enumerate((left, right)):
                basis = bases[axis]
                values = [basis[:, k] @ side @ basis[:, k] for k in range(len(side))]
                order = np.argsort(values)[::-1]
                square = square[order] if axis == 0 else square[:, order]
                bases[axis] = np.linalg.qr(side @ basis[:, order])[0]
    return weight


def trained(kind: type[Muon] | type[SOAP], start: Array, grads: Sequence[Array], *, stacked: int = 1) -> Array:
    weight = torch.nn.Parameter(torch.from_numpy(start).clone())
    groups: list[dict[str, Any]] = [{"params": [weight], "weight_decay": DECAY}]
    optimizer = kind(groups, hidden={id(weight): stacked}, rate=RATE, betas=BETAS, eps=EPS)
    for grad in grads:
        weight.grad = torch.from_numpy(grad)
        optimizer.step()
    return weight.detach().numpy()


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
def test_exact_values_of_muon(shape: tuple[int, int]) -> None:
    start, grads = gradients(1, shape, seed=1)[0], gradients(4, shape)
    # The iteration itself is computed in float32 or bf16.
    assert trained(Muon, start, grads) == pytest.approx(numpy_muon(start, grads), abs=1e-6)


# With a difference of two or more, the first gradient would not determine the eigenvectors of the longer side.
@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (4, 4)])
def test_exact_values_of_soap(shape: tuple[int, int]) -> None:
    start, grads = gradients(1, shape, seed=1)[0], gradients(25, shape)
    # The signs of eigenvectors cancel.
    assert trained(SOAP, start, grads) == pytest.approx(numpy_soap(start, grads), abs=1e-8)


@pytest.mark.parametrize(("kind", "reference"), [(Muon, numpy_muon), (SOAP, numpy_soap)])
def test_stacked_matrices_are_separate_ones(kind: Any, reference: Any) -> None:
    start, grads = gradients(1, (6, 3), seed=1)[0], gradients(12, (6, 3))
    parts = [reference(start[rows], [grad[rows] for grad in grads]) for rows in (slice(0, 3), slice(3, 6))]
    assert trained(kind, start, grads, stacked=2) == pytest.approx(np.concatenate(parts), abs=1e-6)


def test_newton_schulz_makes_the_singular_values_alike() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 20, 12)
    values = torch.linalg.svdvals(newton_schulz(x))
    assert values.min() > 0.6 and values.max() < 1.3
    assert newton_schulz(x.mT) == pytest.approx(newton_schulz(x).mT, abs=1e-6)


def test_a_long_side_has_no_preconditioner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("components.training.matrices.LONGEST_SIDE", 4)
    weight = torch.nn.Parameter(torch.zeros(6, 3))
    optimizer = SOAP([{"params": [weight]}], hidden={id(weight): 1}, rate=RATE, betas=BETAS, eps=EPS)
    for grad in gradients(12, (6, 3)):
        weight.grad = torch.from_numpy(grad).float()
        optimizer.step()
    assert {"right", "basis_right"} <= optimizer.state[weight].keys()
    assert not {"left", "basis_left"} & optimizer.state[weight].keys()
    assert weight.abs().max() > 0


def test_other_parameters_are_trained_by_adamw() -> None:
    torch.manual_seed(0)
    starts = [torch.randn(4, 3), torch.randn(5)]
    ended = {}
    for name in ("adamw", "muon", "soap"):
        parameters = [torch.nn.Parameter(start.clone()) for start in starts]
        optimizer = make_optimizer(decayed(parameters), settings=lm_settings(optimizer=name, weight_decay=0.1))
        for step in range(3):
            for parameter in parameters:
                parameter.grad = torch.full_like(parameter, step + 1.0)
            optimizer.step()
        ended[name] = parameters
    for name in ("muon", "soap"):
        assert all(torch.equal(*pair) for pair in zip(ended[name], ended["adamw"], strict=True))


def test_the_factor_of_the_rate_applies_to_hidden_matrices() -> None:
    changes = []
    for factor in (1.0, 3.0):
        hidden, other = (torch.nn.Parameter(torch.ones(3, 3)) for _ in range(2))
        settings = lm_settings(optimizer="muon", matrix_rate=factor, weight_decay=0)
        optimizer = make_optimizer(decayed([hidden, other]), settings=settings, hidden={id(hidden): 1})
        hidden.grad = other.grad = torch.eye(3) + 0.1
        optimizer.step()
        changes.append([(parameter - 1).norm().item() for parameter in (hidden, other)])
    assert changes[1] == pytest.approx([3 * changes[0][0], changes[0][1]], rel=1e-4)


def tiny(family: str) -> LanguageModel:
    return build_model(family, vocabulary=40, settings=FAMILIES[family].tiny)


def test_hidden_matrices_of_an_lstm_and_of_a_transformer() -> None:
    for family, expected in {
        "ulmfit": {f"lstms.{layer}.weight_{kind}": 4 for layer in (0, 1) for kind in ("ih", "hh")},
        "gpt": {
            f"blocks.{layer}.{name}.weight": count
            for layer in (0, 1)
            for name, count in (
                ("attention.query_key_value", 3),
                ("attention.output", 1),
                ("expand", 1),
                ("contract", 1),
            )
        },
    }.items():
        model = tiny(family)
        hidden = hidden_matrices(model)
        found = {name: hidden[id(weight)] for name, weight in model.named_parameters() if id(weight) in hidden}
        assert found == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_embeddings_and_biases_are_not_hidden(family: str) -> None:
    model = tiny(family)
    hidden = hidden_matrices(model)
    for name, parameter in model.named_parameters():
        if id(parameter) in hidden:
            assert parameter.ndim == 2 and not name.endswith("bias") and name not in model.piece_parameters
            assert len(parameter) % hidden[id(parameter)] == 0


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.mark.parametrize(
    ("family", "optimizer"), [("ulmfit", "soap"), ("elmo", "muon"), ("bert", "muon"), ("transformer-xl", "soap")]
)
def test_a_killed_run_ends_bit_identical(inputs: Path, tmp_path: Path, family: str, optimizer: str) -> None:
    # The carry of an LSTM with bigrams has the last pieces.
    model = dict(FAMILIES[family].tiny) | ({"bigrams": 97} if family in ("ulmfit", "bert") else {})
    model |= {"value_embeddings": 1} if family == "bert" else {}
    training = lm_settings(
        optimizer=optimizer, tokens=4 * 8 * 14, late_batches=3 if family in ("ulmfit", "elmo") else 1
    )
    changes = {"training": training, "model": model}
    whole = pretrain_job(inputs, family, tmp_path / "whole", **changes)
    pretrain(whole)
    killed = pretrain_job(inputs, family, tmp_path / "killed", **changes)
    run_with_kills(pretrain, killed, checkpoints=tmp_path / "killed" / "checkpoints", seed=len(family), kills=2)
    assert same_bits(weights(killed.output), weights(whole.output))


def test_a_restored_run_computes_in_the_stored_precision() -> None:
    model = tiny("ulmfit")
    settings = lm_settings(optimizer="muon")
    stored = TrainingState.fresh(model, decayed(model.parameters()), settings=settings, precision="bf16")
    restored = TrainingState.fresh(model, decayed(model.parameters()), settings=settings)
    restored.restore(stored.tensors(World()), stored.numbers(), world=World())
    assert isinstance(restored.optimizer, Muon)
    assert restored.optimizer.precision == "bf16"
