"""Placement of workers and runs on processors and GPUs; on Ray with GPUs that are only pretended."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from components.cluster import launcher as cluster
from components.cluster import ray_cluster
from components.cluster.placement import Node, RunPlan, plan_runs, plan_workers
from components.core.errors import ClusterUnavailableError, ConfigError
from components.data.tasks.data import Fields
from components.serving.parts import LoadableModel, PartOptions, predict_parts
from components.settings.cluster import ClusterSettings
from tests.ray_nodes import connected_nodes
from tests.ray_tasks import call, look

GB = 10**9
RUNS = 18


@pytest.mark.parametrize(
    ("nodes", "workers", "rows", "expected"),
    [
        # (workers, cores of each, GPUs, spread over the nodes)
        ([Node(8)], "auto", 32, (1, 8, False, False)),
        ([Node(8)], 2, 32, (2, 4, False, False)),
        ([Node(8), Node(4)], "auto", 32, (2, 4, False, True)),
        ([Node(8), Node(4), Node(6)], "auto", 32, (2, 4, False, True)),
        ([Node(8), Node(8)], 4, 32, (4, 4, False, False)),
        ([Node(16, 4)], "auto", 32, (4, 4, True, False)),
        ([Node(16, 4), Node(4)], 2, 32, (2, 4, True, False)),
        ([Node(16, 3)], "auto", 32, (2, 5, True, False)),
    ],
)
def test_the_plan_of_workers(nodes, workers, rows, expected):
    plan = plan_workers(nodes, workers=workers, rows=rows)
    assert (plan.workers, plan.cpus, plan.gpu, plan.spread) == expected
    with pytest.raises(ConfigError, match=r"cluster.workers: 99, but the cluster has \d+ GPUs and \d+ processors"):
        plan_workers(nodes, workers=99, rows=99)


def test_gpus_that_are_asked_for_are_used_or_missed():
    nodes = [Node(16, 4), Node(16, 4)]
    assert plan_workers(nodes, workers="auto", rows=32, wanted=2).workers == 2
    assert plan_workers(nodes, workers=8, rows=32, wanted=2).workers == 8
    for held in ([Node(8)], [Node(8, 1), Node(8)]):
        with pytest.raises(
            ConfigError, match=r"^cluster.gpus: 2, but there are \d GPUs on \d node\(s\); add GPUs, or set"
        ):
            plan_workers(held, workers="auto", rows=32, wanted=2)


def nothing(*_: object) -> None:
    pytest.fail("computed on a processor")


def test_on_this_machine_missing_gpus_are_an_error():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    asked = ClusterSettings(launcher="local", gpus=1)
    with pytest.raises(ConfigError, match=r"cluster.gpus: 1, but there are 0 GPUs"):
        cluster.launch(nothing, None, settings=asked)
    with pytest.raises(ConfigError, match=r"cluster.gpus: 1, but there are 0 GPUs"):
        list(cluster.map_parallel(nothing, [None], settings=asked, gpu_bytes=GB))
    # What needs none is computed, and so is nothing at all.
    assert dict(cluster.map_parallel(abs, [-1], settings=asked)) == {0: 1}
    assert list(cluster.map_parallel(nothing, [], settings=asked, gpu_bytes=GB)) == []


@pytest.mark.parametrize(
    ("nodes", "runs", "memory", "expected"),
    [
        # Without GPUs, or for runs that use none: one run per processor.
        ([Node(8), Node(4)], 18, 5 * GB, RunPlan(12)),
        ([Node(8, 2, 80 * GB)], 18, None, RunPlan(8)),
        # Memory limits the number of runs on a GPU: 0.9 of 16 GB for 5 GB each, and of 80 GB for 40 GB each.
        ([Node(16, 2, 16 * GB)], 18, 5 * GB, RunPlan(4, 2)),
        ([Node(64, 8, 80 * GB)], 99, 40 * GB, RunPlan(8, 1)),
        # A run that does not fit has a whole GPU.
        ([Node(16, 2, 16 * GB)], 18, 30 * GB, RunPlan(2, 1)),
        # The processors of the node, and the limit per GPU.
        ([Node(8, 4, 80 * GB)], 18, GB, RunPlan(8, 2)),
        ([Node(64, 2, 80 * GB)], 18, GB, RunPlan(8, 4)),
        ([Node(2, 4, 80 * GB)], 18, GB, RunPlan(2, 1)),
        # Sharing a GPU leaves none idle: 18 runs, 8 GPUs.
        ([Node(64, 8, 80 * GB)], 18, GB, RunPlan(16, 2)),
        ([Node(64, 8, 80 * GB)], 5, GB, RunPlan(8, 1)),
        # The smallest GPU decides; nodes without GPUs do not count.
        ([Node(32, 4, 80 * GB), Node(32, 4, 16 * GB), Node(64)], 99, 5 * GB, RunPlan(16, 2)),
    ],
)
def test_the_plan_of_runs(nodes, runs, memory, expected):
    assert plan_runs(nodes, runs=runs, gpu_bytes=memory) == expected


def test_the_nodes_of_a_ray_cluster(monkeypatch):
    held: list[tuple[bool, dict[str, float]]] = [
        (True, {"CPU": 16.0, "GPU": 4.0, "accelerator_type:H100": 1.0}),
        (True, {"CPU": 8.0, "GPU": 1.0, "accelerator_type:NEW": 1.0}),
        (True, {"CPU": 4.0}),
        (True, {"CPU": 0.0}),
        (False, {"CPU": 4.0}),
    ]
    result = [{"Alive": alive, "Resources": resources} for alive, resources in held]
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(nodes=lambda: result))
    assert ray_cluster.nodes() == [Node(16, 4, 80 * GB), Node(8, 1, 16 * GB), Node(4)]


@dataclass(frozen=True)
class Item:
    """Ends when `processes` processes have begun one in the folder, so that each of them has one."""

    folder: Path
    processes: int


def visible(item: Item) -> tuple[str, int]:
    (item.folder / str(os.getpid())).touch()
    until = time.monotonic() + 120
    while len(list(item.folder.iterdir())) < item.processes and time.monotonic() < until:
        time.sleep(0.05)
    return os.environ["CUDA_VISIBLE_DEVICES"], os.getpid()


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs of 80 GB that do not exist; the user has hidden two others."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: SimpleNamespace(total_memory=80 * GB))
    monkeypatch.setattr(cluster, "cores", lambda: 4)


@pytest.mark.usefixtures("two_gpus")
def test_each_process_on_this_machine_sees_one_gpu(tmp_path):
    local = ClusterSettings(launcher="local")
    with cluster.kept_processes():
        items = [Item(tmp_path, processes=2)] * 3
        seen = dict(cluster.map_parallel(visible, items, settings=local, gpu_bytes=GB)).values()
        gpus = {process: gpu for gpu, process in seen}
        assert sorted(gpus.values()) == ["2", "3"]
        # Items without a GPU have other processes.
        ((gpu, process),) = dict(cluster.map_parallel(visible, items[:1], settings=local)).values()
    assert gpu == "" and process not in gpus


@dataclass(frozen=True)
class Seeing:
    """Loads a classifier whose probabilities are the GPUs that its process sees."""

    def __call__(self) -> Seeing:
        return self

    kind = "classification"
    labels = ("a", "b")

    def answer(self, rows: Sequence[Fields], batch_size: int = 64) -> list[np.ndarray]:
        gpu = int(os.environ["CUDA_VISIBLE_DEVICES"] or 0)
        return [np.array([gpu / 10, 1 - gpu / 10], dtype=np.float32) for _ in rows]


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("gpu", "workers", "seen"), [(True, 4, {0.8, 0.7}), (False, 2, {1.0})])
def test_prediction_in_parts_has_a_gpu_in_each_process(gpu, workers, seen, tmp_path):
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("text\n" + "some text\n" * 60)
    options = PartOptions(ClusterSettings(launcher="local"), workers=workers, part_bytes=30)
    predict_parts(source, output, model=LoadableModel(Seeing(), "classification", "v1", gpu=gpu), options=options)
    result = {round(float(line.rpartition(",")[2]), 3) for line in output.read_text().splitlines()[1:]}
    assert result and result <= seen


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_run_on_ray_waits_for_its_gpus(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ray_cluster, "_alone", call)
    monkeypatch.setattr(ray_cluster, "GPU_WAIT_S", 5.0)
    with connected_nodes([{"num_cpus": 2}, {"num_cpus": 2, "num_gpus": 1}], monkeypatch=monkeypatch):
        import ray

        two, entry = (ClusterSettings(launcher="ray", address="auto", gpus=count) for count in (2, 1))
        message = r"cluster.gpus: 2 GPUs are not free after .* minutes, and the cluster has 1; start GPU nodes, or"
        with pytest.raises(ClusterUnavailableError, match=message):
            list(cluster.map_parallel(nothing, [None], settings=two, gpu_bytes=GB))
        with pytest.raises(ClusterUnavailableError, match=message):
            cluster.launch(nothing, None, settings=two)
        assert "waiting for 2 GPUs (cluster.gpus)" in capsys.readouterr().out
        monkeypatch.setattr(ray_cluster, "GPU_WAIT_S", 60.0)
        busy = ray.remote(num_cpus=0, num_gpus=1)(lambda: time.sleep(4)).remote()
        (run,) = dict(cluster.map_parallel(look, [(tmp_path, 0, 1)], settings=entry, gpu_bytes=GB)).values()
        assert run.gpus == "0"
        ray.get(busy)


@pytest.fixture
def mixed_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A node with processors only, and one with 8 GPUs that do not exist; yields the id of the second."""
    with connected_nodes([{"num_cpus": 8}, {"num_cpus": 16, "num_gpus": 8}], monkeypatch=monkeypatch) as nodes:
        yield nodes[1]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_runs_on_ray_use_all_gpus_and_no_node_without(mixed_cluster, tmp_path, monkeypatch):
    # Without torch, whose import takes most of the time of 18 processes on two cores.
    monkeypatch.setattr(ray_cluster, "_alone", call)
    away = ClusterSettings(launcher="ray", address="auto")
    # 18 runs on 8 GPUs of at least 16 GB: two share a GPU, so 16 compute at once. Each of them waits for the others.
    items = [(tmp_path, number, 16) for number in range(RUNS)]
    seen = list(dict(cluster.map_parallel(look, items, settings=away, gpu_bytes=5 * GB)).values())
    assert {run.node for run in seen} == {mixed_cluster}
    assert all(run.gpus == ",".join(map(str, run.ids)) and len(run.ids) == 1 for run in seen)
    assert {run.gpus for run in seen} == {str(number) for number in range(8)}
    for run in seen:
        assert sum(other.gpus == run.gpus and other.began <= run.began < other.ended for other in seen) <= 2
    plain = dict(cluster.map_parallel(look, [(tmp_path, 0, 0)], settings=away))
    assert {run.gpus for run in plain.values()} == {""}
