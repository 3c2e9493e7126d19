"""Two and four workers on one node and on two: the same batches and losses as one worker; and a training that goes on
with another number of workers, from parts of its state that four have stored, or while nodes are added."""

import csv
import hashlib
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from components.cluster import launcher as cluster
from components.cluster import ray_cluster
from components.cluster.distributed import Worker, World
from components.settings.cluster import ClusterSettings
from components.tokenization import load_tokenizer
from components.training.checkpoint import CheckpointStore
from components.training.pretraining import language_model
from components.training.pretraining.language_model import LanguageModelRun, work
from components.training.pretraining.pretrain import PretrainJob
from tests.ray_nodes import connected_nodes
from tests.test_cluster import finish, runs_of
from tests.training.helpers import lm_settings, make_inputs, pretrain_job, weights

#: Several workers store a checkpoint after every tenth step only.
STEPS, STOP = 12, 10
TRAINING = lm_settings(tokens=4 * 8 * STEPS, window_jitter=0, long_window=8)
#: Without dropout, whose masks depend on the rank.
MODEL = {"width": 16, "layers": 2, "positions": 32, "dropout": 0.0, "dropout_attention": 0.0}


class StoppedError(Exception):
    """Ends a training before its last step."""


@dataclass(frozen=True)
class Part:
    """A training that `train_parts` runs, or a part of it.

    Attributes:
        run: the training.
        stop: whether it ends after the checkpoint of step STOP.
        notes: file for the digests of the global batches of all steps.
    """

    run: LanguageModelRun
    stop: bool
    notes: Path


def train_parts(parts: Sequence[Part], worker: Worker) -> None:
    """One after the other, because the start of Ray's processes takes longer than the trainings."""
    world = worker.world
    for part in parts:
        digests = global_batches(part.run, world)
        if world.is_main:
            part.notes.write_text(json.dumps({"digests": digests, "workers": world.size}))
        (Path(tempfile.gettempdir()) / f"rank-{world.rank}-of-{world.size}").touch()
        if not part.stop:
            work(part.run, worker)
            continue
        try:
            work(part.run, Worker(world, stop_after_the_checkpoint))
        except StoppedError:
            store = CheckpointStore(part.run.storage, key=part.run.key)
            while STOP not in store.steps():
                time.sleep(0.05)
            world.broadcast(None)


def stop_after_the_checkpoint(numbers: Mapping[str, float]) -> None:
    if numbers["step"] == STOP + 1:
        raise StoppedError


def global_batches(run: LanguageModelRun, world: World) -> list[str]:
    """Digests of the rows of all workers, of every step."""
    settings = run.training
    sampler = language_model.training_sampler(
        run.family,
        run.text(),
        model=language_model.initial_model(run),
        settings=settings,
        pieces=load_tokenizer(run.tokenizer).pieces,
        seed=run.seed,
    )
    digests = []
    for step in range(STEPS):
        batch = sampler.batch(step, world.rank, world.size)
        rows = [world.gather_rows(batch[name]).numpy().tobytes() for name in sorted(batch)]
        digests.append(hashlib.sha256(b"".join(rows)).hexdigest())
    return digests


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """A cluster of two nodes with two pretended processors each; yields their working folders."""
    folders = [tmp_path / f"node-{number}" for number in range(2)]
    for folder in folders:
        folder.mkdir()
    described = [{"num_cpus": 2, "env_vars": {"TMPDIR": str(folder)}} for folder in folders]
    with connected_nodes(described, monkeypatch=monkeypatch):
        yield folders


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


def first_loss(job: PretrainJob) -> float:
    with (job.output / "curve.csv").open(encoding="utf-8") as file:
        return float(next(iter(csv.DictReader(file)))["loss"])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_number_of_workers_changes_neither_batches_nor_losses(nodes, inputs, tmp_path, monkeypatch):
    torch.set_num_threads(1)
    jobs = {
        name: pretrain_job(inputs, "gpt", tmp_path / name, training=TRAINING, model=MODEL)
        for name in ("four", "elastic", "two", "alone")
    }
    runs = dict(zip(jobs, runs_of(list(jobs.values()), monkeypatch), strict=True))

    def parts(*names, stop=""):
        notes = {name: tmp_path / (f"{name}-begun.json" if name == stop else f"{name}.json") for name in names}
        return [Part(runs[name], name == stop, notes[name]) for name in names]

    away = ClusterSettings(launcher="ray", storage=str(tmp_path), workers=4)
    rows = TRAINING.batch_size
    # Four workers; then two take over one of the trainings.
    cluster.launch(train_parts, parts("four", "elastic", stop="elastic"), settings=away, rows=rows)
    fewer = away.model_copy(update={"workers": 2})
    cluster.launch(train_parts, parts("two", "elastic"), settings=fewer, rows=rows)
    cluster.launch(train_parts, parts("alone"), settings=ClusterSettings(launcher="local"))
    finish(list(jobs.values()), monkeypatch)

    notes = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    workers = {name: note["workers"] for name, note in notes.items()}
    assert workers == {"four": 4, "elastic-begun": 4, "two": 2, "elastic": 2, "alone": 1}
    for number in (4, 2):
        ranks = [len(list(folder.glob(f"rank-*-of-{number}"))) for folder in nodes]
        assert ranks == [number // len(nodes)] * len(nodes)
    assert len({json.dumps(note["digests"]) for note in notes.values()}) == 1
    expected = first_loss(jobs["alone"])
    last = {name: json.loads((job.output / "metrics.json").read_text()) for name, job in jobs.items()}
    for name, job in jobs.items():
        assert first_loss(job) == pytest.approx(expected, rel=1e-6), name
        for number in ("loss", "training_loss", "gradient_norm"):
            assert last[name][number] == pytest.approx(last["alone"][number], rel=1e-4), (name, number)


class Here:
    """The exchange of a node that has all inputs."""

    def on_this_node(self, job):
        return job


def exchange_value(job: str, worker: Worker) -> None:
    worker.world.broadcast(job)


def fail(job: str, worker: Worker) -> None:
    raise ValueError(job)


def test_a_worker_whose_process_group_has_ended_is_restarted():
    attempt = {"exchange": Here(), "job": "text", "threads": 1}
    worker = Worker(World(size=2))
    with pytest.raises(ValueError, match="process group"):
        ray_cluster._attempt(attempt | {"function": exchange_value}, worker)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        outcome = ray_cluster._attempt(attempt | {"function": fail}, worker)
    finally:
        torch.distributed.destroy_process_group()
    assert outcome["kind"] == "defect"
    assert "ValueError: text" in outcome["message"]


def test_a_worker_that_has_started_again_reports_only_what_it_has():
    worker = ray_cluster.TrainingWorker()
    with ThreadPoolExecutor(1) as executor:
        latest = executor.submit(worker.progress, 7)  # of its earlier process
        with pytest.raises(TimeoutError):
            latest.result(timeout=0.1)
        worker._publish({"step": 3.0})
        assert latest.result(timeout=10) == (1, {"step": 3.0})


#: Steps of a training that nodes are added to, and seconds of each.
MANY, STEP_S = 150, 1.0


def noting_sizes(run: LanguageModelRun, worker: Worker) -> None:
    """`work`, at a slow pace until all nodes are there, with a line for each start in a file beside the checkpoints."""
    if worker.world.is_main:
        with (Path(run.storage).parent / "sizes").open("a") as file:
            file.write(f"{worker.world.size}\n")
    work(run, Worker(worker.world, lambda numbers: time.sleep(STEP_S * (worker.world.size < 4))))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_number_of_workers_follows_the_nodes_during_a_training(inputs, tmp_path, monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.setattr(ray_cluster, "RESIZE_S", 1.0)
    training = lm_settings(tokens=4 * 8 * MANY, window_jitter=0, long_window=8)
    away = ClusterSettings(
        launcher="ray", storage=str(tmp_path / "checkpoints"), workers=4, address="head:6379", checkpoint_seconds=1e-9
    )
    _, alone = jobs = [
        pretrain_job(inputs, "gpt", tmp_path / name, training=training, model=MODEL, cluster=settings)
        for name, settings in (("grown", away), ("alone", ClusterSettings(launcher="local")))
    ]
    first, second = runs_of(jobs, monkeypatch)
    sizes = tmp_path / "sizes"

    with connected_nodes([{"num_cpus": 1}], monkeypatch=monkeypatch) as nodes, ThreadPoolExecutor(1) as executor:
        training_ends = executor.submit(cluster.launch, noting_sizes, first, settings=away, rows=training.batch_size)
        # Nodes are added by the main thread, because Ray sets a signal handler.
        store = CheckpointStore(first.storage, key=first.key)
        for size, more in (("1", 1), ("2", 2)):
            while not sizes.exists() or size not in sizes.read_text().split() or not store.steps():
                assert not training_ends.done()
                time.sleep(0.1)
            for _ in range(more):
                nodes.add(num_cpus=1)
        training_ends.result()
    cluster.launch(work, second, settings=alone.cluster)
    finish(jobs, monkeypatch)
    seen = sizes.read_text().split()
    assert [size for number, size in enumerate(seen) if size not in seen[:number]] == ["1", "2", "4"]
    last, expected = (json.loads((job.output / "metrics.json").read_text()) for job in jobs)
    for number in ("loss", "training_loss", "gradient_norm"):
        assert last[number] == pytest.approx(expected[number], rel=1e-4), number
    grown, expected_weights = (weights(job.output) for job in jobs)
    for name, values in expected_weights.items():
        # Biases of keys have no gradient, only its rounding errors, which Adam scales up.
        torch.testing.assert_close(grown[name], values, rtol=1e-3, atol=5e-3)
