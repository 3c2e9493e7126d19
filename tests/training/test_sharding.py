"""State that is divided among workers: the same losses, checkpoints that any number of workers reads, killed saves."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

from components.errors import ConfigError
from components.models import FAMILIES
from components.models.base import LanguageModel
from components.models.encoder import build_model
from components.pretraining.samplers import sampler_for
from components.settings.training import Training
from components.training import checkpoint, shards
from components.training.checkpoint import CheckpointStore
from components.training.distributed import World
from components.training.groups import decayed
from components.training.loop import TrainingState
from components.training.saving import Saver
from components.training.sharding import refuse_sharding, shard, whole
from tests.models.conftest import PIECES, ROWS, VOCABULARY, WINDOW, TinyStore
from tests.training.helpers import fork, losses_until, run_forked, same_bits

#: A Transformer in blocks, one with shared blocks, a recurrent model with a carry, a model of two tables.
FAMILIES_TESTED = ("gpt", "albert", "ulmfit", "glove")
SETTINGS = Training(rate=0.01, batch_size=ROWS, precision="float32", clip=0.5, average="ema")
STEPS = 4


def model_of(family: str) -> LanguageModel:
    """The family's test model without dropout, whose masks depend on the rank."""
    fields = FAMILIES[family].config.model_fields
    dropout = dict.fromkeys((name for name in fields if name.startswith("dropout")), 0.0)
    torch.manual_seed(0)
    return build_model(family, vocabulary=VOCABULARY, settings={**FAMILIES[family].tiny, **dropout})


def state_of(family: str, world: World) -> TrainingState:
    model = shard(model_of(family), world)
    return TrainingState.fresh(model, decayed(model.parameters()), settings=SETTINGS)


def losses_of(family: str, state: TrainingState, world: World, until: int = STEPS) -> list[float]:
    model = state.model
    assert isinstance(model, LanguageModel)
    sampler = sampler_for(
        family, TinyStore(), config=model.config, pieces=PIECES, batch_size=ROWS, window=WINDOW, seed=0
    )
    return losses_until(state, sampler, SETTINGS, steps=STEPS, until=until, world=world)


def join(folder: Path, rank: int) -> World:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    return World(rank, 2, sharded=True)


def divided(rank: int, folder: Path) -> None:
    """Trains every family; stores a checkpoint after two steps, and goes on from it."""
    world = join(folder, rank)
    for family in FAMILIES_TESTED:
        store = CheckpointStore(str(folder), key=family)
        state, saver = state_of(family, world), Saver(store, world)
        losses = losses_of(family, state, world, 2)
        saver.save(state, {"family": family})
        losses += losses_of(family, state, world)
        saver.wait()
        after = {name: whole(tensor) for name, tensor in state.tensors(world).items()}
        parts = [parameter.to_local().numel() for parameter in state.model.parameters()]  # type: ignore[operator]
        stored = store.latest_for_all(world)
        assert stored is not None and (stored.step, stored.numbers["family"]) == (2, family)
        again = state_of(family, world)
        again.restore(stored.tensors, stored.numbers["state"], world=world)
        assert losses_of(family, again, world) == losses[2:]
        assert same_bits({name: whole(tensor) for name, tensor in again.tensors(world).items()}, after)
        facts = {"losses": torch.tensor(losses), "part": torch.tensor(sum(parts))}
        save_file(after | facts, folder / f"{family}-{rank}.safetensors")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("divided")
    run_forked(divided, folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES_TESTED)
def test_divided_workers_compute_what_one_computes(trained: Path, family: str) -> None:
    first, second = (load_file(trained / f"{family}-{rank}.safetensors") for rank in range(2))
    state = state_of(family, World())
    assert losses_of(family, state, World()) == pytest.approx(first["losses"].tolist(), rel=1e-5)
    parts = [held.pop("part").item() for held in (first, second)]
    assert same_bits(first, second)
    # Together they store every parameter once.
    assert sum(parts) == sum(parameter.numel() for parameter in state.model.parameters())
    assert max(parts) < 0.7 * sum(parts)
    for name, tensor in state.tensors(World()).items():
        torch.testing.assert_close(first[name], tensor, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES_TESTED)
def test_one_worker_goes_on_from_the_checkpoint_of_two(trained: Path, family: str) -> None:
    stored = CheckpointStore(str(trained), key=family).latest()
    assert stored is not None
    files = sorted(path.name for path in (trained / family / "step-000000002").iterdir())
    assert files == [f"shard-0000{part}-model-00001-of-00001.safetensors" for part in (1, 2)] + ["state.json"]
    alone = state_of(family, World())
    alone.restore(stored.tensors, stored.numbers["state"], world=World())
    expected = load_file(trained / f"{family}-0.safetensors")["losses"].tolist()
    assert losses_of(family, alone, World()) == pytest.approx(expected[2:], rel=1e-5)


def test_a_damaged_part_is_not_read(trained: Path, tmp_path: Path) -> None:
    source, target = trained / "gpt" / "step-000000002", tmp_path / "run" / "step-000000002"
    target.mkdir(parents=True)
    for file in source.iterdir():
        target.joinpath(file.name).write_bytes(file.read_bytes())
    store = CheckpointStore(str(tmp_path), key="run")
    assert store.latest() is not None
    part = next(target.glob("shard-00002-*"))
    part.write_bytes(part.read_bytes()[:-1] + b"\x01")
    assert store._load(2) is None


def test_what_cannot_be_divided_is_refused() -> None:
    table = build_model("fasttext", vocabulary=VOCABULARY, settings={**FAMILIES["fasttext"].tiny, "sparse": True})
    with pytest.raises(ConfigError, match=r"cluster.sharded: a table with sparse gradients cannot be divided"):
        refuse_sharding(table)
    refuse_sharding(model_of("gpt"))


# --- saves that are killed ---------------------------------------------------------------------------------------


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 120
    while not file.exists():
        assert time.monotonic() < deadline, file
        time.sleep(0.01)


def stalled(_: int, folder: Path) -> None:
    """Stores step 1; the disk then stops in the middle of step 2, while training goes on."""
    torch.set_num_threads(1)
    world, store = World(), CheckpointStore(str(folder), key="run")
    state, saver = state_of("gpt", world), Saver(store, world)
    losses_of("gpt", state, world, 1)
    saver.save(state, {})
    saver.wait()
    write = checkpoint.save_file

    def half(tensors: Any, path: Path) -> None:
        write(tensors, path)
        os.truncate(path, path.stat().st_size // 2)
        (folder / "half").touch()
        time.sleep(600)

    checkpoint.save_file = half
    losses_of("gpt", state, world, 2)
    saver.save(state, {})
    wait_for(folder / "half")
    losses_of("gpt", state, world, 3)
    (folder / "went-on").write_text(str(state.step))
    time.sleep(600)


def test_training_does_not_wait_for_the_disk_and_a_killed_save_leaves_the_previous_one(tmp_path: Path) -> None:
    (process,) = fork(stalled, tmp_path, workers=1)
    try:
        wait_for(tmp_path / "went-on")
        assert (tmp_path / "went-on").read_text() == "3"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    store = CheckpointStore(str(tmp_path), key="run")
    stored = store.latest()
    assert stored is not None and (store.steps(), stored.step) == ([1], 1)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["step-000000001"]


def stalled_part(rank: int, folder: Path) -> None:
    """Two workers store step 1; worker 1 stops after its part of step 2 is written, before it tells worker 0."""
    world, store = join(folder, rank), CheckpointStore(str(folder), key="run")
    state, saver = state_of("gpt", world), Saver(store, world)
    losses_of("gpt", state, world, 1)
    saver.save(state, {})
    saver.wait()
    digest = shards.digest_file

    def stop(file: Path) -> str:
        if rank == 1:
            (folder / "half").touch()
            time.sleep(600)
        return digest(file)

    shards.digest_file = stop
    losses_of("gpt", state, world, 2)
    saver.save(state, {})
    losses_of("gpt", state, world, 3)
    (folder / f"went-on-{rank}").touch()
    time.sleep(600)


def resumed(rank: int, folder: Path) -> None:
    """The same two workers, started again; they store step 2 where a part of it was left."""
    world, store = join(folder, rank), CheckpointStore(str(folder.parent), key="run")
    state, saver = state_of("gpt", world), Saver(store, world)
    stored = store.latest_for_all(world)
    assert stored is not None and stored.step == 1
    state.restore(stored.tensors, stored.numbers["state"], world=world)
    losses_of("gpt", state, world, 2)
    saver.save(state, {})
    saver.wait()
    dist.destroy_process_group()


def test_a_killed_save_of_one_worker_leaves_the_previous_checkpoint(tmp_path: Path) -> None:
    processes = fork(stalled_part, tmp_path)
    try:
        for file in ("half", "went-on-0", "went-on-1"):
            wait_for(tmp_path / file)
    finally:
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
            process.join()
    store = CheckpointStore(str(tmp_path), key="run")
    assert store.steps() == [1]
    assert list((tmp_path / "run" / "step-000000002").glob("shard-*"))
    (tmp_path / "again").mkdir()
    run_forked(resumed, tmp_path / "again")
    stored = store.latest()
    assert stored is not None and stored.step == 2
