"""Tables with sparse gradients: the same updates as dense ones, resume and workers."""

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from components.cluster.distributed import World
from components.data.segmenters import Segmentation
from components.models import FAMILIES
from components.models.encoder import build_model
from components.models.fasttext import FastText
from components.settings.training import Training
from components.tokenization.special import SPECIAL_PIECES
from components.tokenization.word import WordTokenizer
from components.training.loop import TrainingState, train
from components.training.optim import ParameterGroup, decayed, make_optimizer
from components.training.pretraining.samplers import sampler_for
from tests.training.helpers import lm_settings, numbered_store, one_of_two, run_forked, same_bits

ROWS, WIDTH = 12, 3
PIECES = [*SPECIAL_PIECES, *(f"word{number}" for number in range(400))]
SETTINGS = Training(rate=0.1, batch_size=4, weight_decay=0.1)


def gradient(step: int, rows: list[int]) -> Tensor:
    return torch.randn(len(rows), WIDTH, generator=torch.Generator().manual_seed(step))


def sparse_steps(steps: list[list[int]], *, dense: nn.Parameter | None = None) -> Tensor:
    torch.manual_seed(0)
    table = nn.Parameter(torch.randn(ROWS, WIDTH))
    group = ParameterGroup([table] if dense is None else [table, dense])
    used = make_optimizer([group], settings=SETTINGS)
    for number, rows in enumerate(steps):
        values = gradient(number, rows)
        table.grad = torch.sparse_coo_tensor([rows], values, table.shape, check_invariants=False).coalesce()
        if dense is not None:
            dense.grad = torch.ones_like(dense)
        used.step()
    return table.detach()


def test_rows_that_every_step_reads_are_trained_as_by_torch():
    everything = list(range(ROWS))
    torch.manual_seed(0)
    table = nn.Parameter(torch.randn(ROWS, WIDTH))
    used = make_optimizer([ParameterGroup([table])], settings=SETTINGS)
    other, alone = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
    apart = make_optimizer([ParameterGroup([alone])], settings=SETTINGS)
    for number in range(4):
        table.grad, alone.grad = gradient(number, everything), torch.ones_like(alone)
        used.step()
        apart.step()
    actual = sparse_steps([everything] * 4, dense=other)
    torch.testing.assert_close(actual, table.detach(), rtol=1e-5, atol=1e-6)
    # Parameters with dense gradients are trained by torch's optimizer.
    assert torch.equal(other, alone)


def test_a_row_is_trained_in_the_steps_that_read_it_only():
    """Row 7 is read in steps 0 and 2, as a parameter of its own would be."""
    torch.manual_seed(0)
    row = nn.Parameter(torch.randn(ROWS, WIDTH)[7:8].clone())
    used = make_optimizer([ParameterGroup([row])], settings=SETTINGS)
    for number in (0, 2):
        row.grad = gradient(number, [7, 3])[:1].clone() if number == 0 else gradient(number, [2, 7])[1:].clone()
        used.step()
    # Coalesced gradients are in the order of rows.
    torch.manual_seed(0)
    start = torch.randn(ROWS, WIDTH)
    actual = sparse_steps([[7, 3], [5], [2, 7]])
    torch.testing.assert_close(actual[7], row[0].detach(), rtol=1e-5, atol=1e-6)
    untouched = [0, 1, 4, 6, 8, 9, 10, 11]
    assert torch.equal(actual[untouched], start[untouched])


def fasttext(*, sparse: bool, buckets: int = 300) -> FastText:
    torch.manual_seed(2)
    tiny = {**FAMILIES["fasttext"].tiny, "buckets": buckets, "sparse": sparse}
    model = build_model("fasttext", vocabulary=len(PIECES), settings=tiny)
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


def sparse_steps_of(rank: int, folder: Path) -> None:
    with one_of_two(rank, folder) as world:
        local = torch.sparse_coo_tensor([[rank, 3 - rank, 1]], torch.tensor([[1.0], [2.0], [4.0]]), (4, 1))
        mean = world.average_rows(local)
        assert mean.to_dense().flatten().tolist() == [0.5, 0.5 + 4.0, 1.0, 1.0]
        state = state_after(fasttext(sparse=True), world)
        save_file(state.tensors(world), folder / f"{rank}.safetensors")


def test_two_workers_have_bit_identical_states(tmp_path):
    run_forked(sparse_steps_of, tmp_path)
    assert same_bits(*(load_file(tmp_path / f"{rank}.safetensors") for rank in range(2)))
