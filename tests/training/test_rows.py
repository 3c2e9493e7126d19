"""Tables with sparse gradients: the same updates as dense ones, few rows of state, resume and workers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from components.models import FAMILIES
from components.models.encoder import build_model
from components.models.fasttext import FastText
from components.pretraining.samplers import sampler_for
from components.settings.training import Training
from components.tokenization.segmenters import Segmentation
from components.tokenization.special import SPECIAL_PIECES
from components.tokenization.word import WordTokenizer
from components.training.distributed import World
from components.training.groups import ParameterGroup, decayed
from components.training.loop import TrainingState, train
from components.training.optim import make_optimizer
from components.training.rows import RowOptimizer
from tests.training.helpers import lm_settings, numbered_store, run_forked

ROWS, WIDTH = 12, 3
PIECES = [*SPECIAL_PIECES, *(f"word{number}" for number in range(400))]
OPTIMIZERS = ("adamw", "adagrad", "sgd")
SGD = {"optimizer": "sgd", "weight_decay": 0}


def settings(optimizer: str = "adamw", **changes: object) -> Training:
    return Training(rate=0.1, batch_size=4, optimizer=optimizer, weight_decay=0.1, **changes)


def gradient(step: int, rows: list[int]) -> Tensor:
    return torch.randn(len(rows), WIDTH, generator=torch.Generator().manual_seed(step))


def sparse_steps(optimizer: str, steps: list[list[int]], *, dense: nn.Parameter | None = None) -> Tensor:
    torch.manual_seed(0)
    table = nn.Parameter(torch.randn(ROWS, WIDTH))
    group = ParameterGroup([table] if dense is None else [table, dense])
    used = make_optimizer([group], settings=settings(optimizer), rows={id(table)})
    for number, rows in enumerate(steps):
        values = gradient(number, rows)
        table.grad = torch.sparse_coo_tensor([rows], values, table.shape, check_invariants=False).coalesce()
        if dense is not None:
            dense.grad = torch.ones_like(dense)
        used.step()
    return table.detach()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rows_that_every_step_reads_are_trained_as_by_torch(optimizer: str) -> None:
    everything = list(range(ROWS))
    torch.manual_seed(0)
    table = nn.Parameter(torch.randn(ROWS, WIDTH))
    used = make_optimizer([ParameterGroup([table])], settings=settings(optimizer))
    other, alone = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
    apart = make_optimizer([ParameterGroup([alone])], settings=settings(optimizer))
    for number in range(4):
        table.grad, alone.grad = gradient(number, everything), torch.ones_like(alone)
        used.step()
        apart.step()
    found = sparse_steps(optimizer, [everything] * 4, dense=other)
    torch.testing.assert_close(found, table.detach(), rtol=1e-5, atol=1e-6)
    # Parameters with dense gradients are trained by torch's optimizer.
    assert torch.equal(other, alone)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_row_is_trained_in_the_steps_that_read_it_only(optimizer: str) -> None:
    """Row 7 is read in steps 0 and 2, as a parameter of its own would be."""
    torch.manual_seed(0)
    row = nn.Parameter(torch.randn(ROWS, WIDTH)[7:8].clone())
    used = make_optimizer([ParameterGroup([row])], settings=settings(optimizer))
    for number in (0, 2):
        row.grad = gradient(number, [7, 3])[:1].clone() if number == 0 else gradient(number, [2, 7])[1:].clone()
        used.step()
    # Coalesced gradients are in the order of rows.
    torch.manual_seed(0)
    start = torch.randn(ROWS, WIDTH)
    found = sparse_steps(optimizer, [[7, 3], [5], [2, 7]])
    torch.testing.assert_close(found[7], row[0].detach(), rtol=1e-5, atol=1e-6)
    untouched = [0, 1, 4, 6, 8, 9, 10, 11]
    assert torch.equal(found[untouched], start[untouched])


def test_the_state_has_only_rows_that_were_read_and_can_be_stored() -> None:
    table = nn.Parameter(torch.zeros(5000, 2))

    def used() -> RowOptimizer:
        made = make_optimizer([ParameterGroup([table])], settings=settings(), rows={id(table)})
        assert isinstance(made, RowOptimizer)
        return made

    def step(optimizer: RowOptimizer, rows: Tensor) -> None:
        values = rows[:, None].float().expand(-1, 2)
        table.grad = torch.sparse_coo_tensor(rows[None], values, table.shape, check_invariants=False).coalesce()
        optimizer.step()

    first = used()
    step(first, torch.tensor([4000, 7]))
    step(first, torch.arange(2000))
    state = first.state_dict()["state"][0]
    assert state["rows"].tolist() == [7, 4000, *(row for row in range(2000) if row != 7)]
    assert state["exp_avg"].shape == (2001, 2) and state["count"].flatten().tolist() == [2.0, *[1.0] * 2000]
    stored = {name: value.clone() for name, value in state.items()}
    before = table.detach().clone()
    step(first, torch.tensor([3, 4000, 4999]))
    expected = table.detach().clone()
    with torch.no_grad():
        table.copy_(before)
    second = used()
    second.load_state_dict({"state": {0: stored}, "param_groups": second.state_dict()["param_groups"]})
    step(second, torch.tensor([3, 4000, 4999]))
    assert torch.equal(table, expected)
    assert second.state_dict()["state"][0]["rows"].dtype == torch.int64


def fasttext(*, sparse: bool, buckets: int = 300) -> FastText:
    torch.manual_seed(2)
    tiny = {**FAMILIES["fasttext"].tiny, "buckets": buckets, "sparse": sparse}
    model = build_model("fasttext", vocabulary=len(PIECES), settings=tiny)
    assert isinstance(model, FastText)
    with torch.no_grad():
        nn.init.normal_(model.output)
    model.bind(WordTokenizer(PIECES, segmentation=Segmentation("none"), lowercase=True, strip_accents=True))
    return model


def state_after(model: FastText, world: World, *, steps: int = 4, **changes: object) -> TrainingState:
    used = lm_settings(rate=0.05, **changes)
    state = TrainingState.fresh(model, decayed(model.parameters()), settings=used)
    sampler = sampler_for(
        "fasttext", numbered_store(), config=model.config, pieces=PIECES, batch_size=4, window=8, seed=1
    )
    for _ in train(state, sampler, settings=used, total_steps=steps, seed=5, world=world):
        pass
    return state


def test_sparse_gradients_of_fasttext_are_the_dense_ones() -> None:
    dense, sparse = fasttext(sparse=False), fasttext(sparse=True)
    sampler = sampler_for(
        "fasttext", numbered_store(), config=dense.config, pieces=PIECES, batch_size=4, window=8, seed=1
    )
    for model in (dense, sparse):
        model.losses(sampler.batch(0)).loss.backward()
    assert dense.gram.grad is not None and sparse.gram.grad is not None and sparse.gram.grad.is_sparse
    torch.testing.assert_close(sparse.gram.grad.to_dense(), dense.gram.grad)
    assert [id(one) for one in sparse.sparse_parameters()] == [id(sparse.gram)] and dense.sparse_parameters() == []


def test_training_by_sgd_is_the_same_with_sparse_gradients() -> None:
    """SGD without weight decay leaves untouched rows as they are; the clipped norm is that of the dense gradients."""
    dense, sparse = (state_after(fasttext(sparse=one), World(), **SGD) for one in (False, True))
    for (name, value), (_, other) in zip(dense.model.named_parameters(), sparse.model.named_parameters(), strict=True):
        torch.testing.assert_close(other, value, rtol=1e-4, atol=1e-6, msg=name)


def one_of_two(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    world = World(rank, 2)
    own = torch.sparse_coo_tensor([[rank, 3 - rank, 1]], torch.tensor([[1.0], [2.0], [4.0]]), (4, 1))
    mean = world.average_rows(own)
    assert mean.to_dense().flatten().tolist() == [0.5, 0.5 + 4.0, 1.0, 1.0]
    state = state_after(fasttext(sparse=True), world)
    save_file(state.tensors(world), folder / f"{rank}.safetensors")
    # The exchange is that of dense gradients.
    dense, sparse = (state_after(fasttext(sparse=one), world, **SGD) for one in (False, True))
    for value, other in zip(dense.model.parameters(), sparse.model.parameters(), strict=True):
        torch.testing.assert_close(other, value, rtol=1e-4, atol=1e-6)
    dist.destroy_process_group()


def test_two_workers_have_bit_identical_states(tmp_path: Path) -> None:
    run_forked(one_of_two, tmp_path)
    first, second = (load_file(tmp_path / f"{rank}.safetensors") for rank in range(2))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
