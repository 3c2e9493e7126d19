"""Where work runs: in this process, or on Ray. The only file that imports ray, and only when it is used.

`launch` runs one training function on one or more workers; `map_parallel` runs many independent small jobs. The same
functions run in both places, so what is learned does not depend on the launcher.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import secrets
import shutil
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from components import errors
from components.errors import ConfigError, HeadstartError, TrainingError
from components.processors import cores
from components.settings.cluster import ClusterSettings
from components.training import threads
from components.training.distributed import Worker, World

if TYPE_CHECKING:
    from ray.train.torch import TorchTrainer

Job = TypeVar("Job")
Result = TypeVar("Result")

#: How often a run goes on after losing a worker before it gives up; the next run of the stage goes on from there.
RETRIES = 5
#: Seconds between two looks at how far the workers are.
PROGRESS_SECONDS = 0.5
#: Ray's least size; nothing of weight travels through its object store.
OBJECT_STORE_BYTES = 80 * 2**20

#: Set before ray is imported, unless the user has set them. The training ones take seconds off every start.
RAY_ENVIRONMENT = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_TRAIN_ENABLE_STATE_ACTOR_RECONCILIATION": "0",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "120",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Ray's own 15 lets every process of its housekeeping interrupt the training.
    "RAY_worker_niceness": "0",
}


def launch(
    function: Callable[[Job, Worker], None],
    job: Job,
    *,
    settings: ClusterSettings,
    rows: int = 0,
    progress: Callable[[Mapping[str, float]], None] = lambda numbers: None,
) -> None:
    """Run `function(job, worker)` on every worker and return when all have ended.

    A worker that dies is replaced, together with all others, and `function` is called again: it must go on from its
    own checkpoints. On Ray it must be importable, and paths in `job` absolute and the same on every node.

    Args:
        function: leaves its results in storage; what it returns is lost.
        job: must be picklable for Ray.
        settings: `workers: auto` is every GPU there is; without GPUs one process a node with all its processors
            (on two cores, two processes of one thread took 1.25 times as long as one process of two).
        rows: of a global batch; `auto` then takes only as many workers as can share them out equally.
        progress: is called here, now and then, with the numbers that rank 0 publishes.

    Raises:
        HeadstartError: as `function` raised it.
        ConfigError: more workers than the launcher or the cluster can run.
        TrainingError: workers died more than `RETRIES` times, or the cluster cannot be reached.
    """
    if settings.launcher == "ray":
        _launch_on_ray(function, job, settings=settings, rows=rows, progress=progress)
        return
    if settings.workers not in ("auto", 1):
        raise ConfigError(
            f"cluster.workers: the local launcher runs 1 worker, not {settings.workers}; set cluster.launcher: ray"
        )
    threads.own(cores())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    function(job, Worker(World(device=device), progress))


def map_parallel(
    function: Callable[[Job], Result], items: Iterable[Job], *, settings: ClusterSettings
) -> Iterator[tuple[int, Result]]:
    """Run `function(item)` for every item, one single-threaded process a core; yields (index, result) as they end.

    On one machine the processes are its own; with an address they are tasks on that Ray cluster. An item whose
    process dies is run again. One thread whatever the number of items, so that an item gives the same bits beside
    others and alone.

    Raises:
        HeadstartError: as `function` raised it; items that have not been handed out by then are dropped.
        TrainingError: processes died more than `RETRIES` times.
    """
    pending = dict(enumerate(items))
    if settings.launcher == "ray" and _address(settings) != "local":
        yield from _map_on_ray(function, pending, settings=settings)
        return
    deaths = 0
    spawning = multiprocessing.get_context("spawn")
    while pending:
        with _environment(threads.environment(1)):
            processes = min(len(pending), cores())
            pool = ProcessPoolExecutor(processes, mp_context=spawning, initializer=_end_with_parent)
            try:
                futures = {pool.submit(_alone, function, item): index for index, item in pending.items()}
                for future in as_completed(futures):
                    result = future.result()
                    del pending[futures[future]]
                    yield futures[future], result
            except BrokenProcessPool as error:
                deaths += 1
                if deaths > RETRIES:
                    raise TrainingError(_gave_up("a process was killed")) from error
            finally:
                pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """Let a process of the pool end as soon as the one that started it is gone, killed say: it would go on learning
    beside the run that takes over, or keep its memory and wait for ever."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _alone(function: Callable[[Job], Result], item: Job) -> Result:
    threads.own(1)
    return function(item)


def _gave_up(reason: str) -> str:
    return (
        f"gave up after {RETRIES} restarts: {reason}; if memory is short, lower training.batch_size, "
        "then run the stage again: it goes on from its last checkpoint"
    )


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Environment variables for the processes started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# --- Ray ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plan:
    """How many workers, and what each owns."""

    workers: int
    cpus: int
    gpu: bool
    spread: bool


@contextmanager
def connected(settings: ClusterSettings) -> Iterator[None]:
    """A Ray cluster: the one at the address, a new one on this machine, or the one already connected to.

    Raises:
        TrainingError: there is none at the address.
    """
    for name, value in RAY_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    address = _address(settings)
    local = address == "local"
    if local and "RAY_AUTH_MODE" not in os.environ:
        # A key of its own: other users of this machine cannot reach the cluster, nor does it meet a stale one.
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    # A driver whose parent is process 1 (in a container, or its shell has ended) else takes a lost raylet for its own
    # parent's death: on the way out of `ray.shutdown` it leaves at once, with 1 and without a word.
    os.environ.setdefault("RAY_RAYLET_PID", str(os.getpid()))
    import ray

    if ray.is_initialized():
        yield
        return
    root = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
    own: dict[str, Any] = (
        {"num_cpus": cores(), "object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False} if local else {}
    )
    try:
        ray.init(
            address=address,
            runtime_env={"env_vars": {"PYTHONPATH": path}},
            logging_level="WARNING",
            # What workers say on their own is Ray's noise: progress and errors come another way.
            log_to_driver=False,
            **own,
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise TrainingError(
            f"cluster.address {address}: no Ray cluster can be reached ({error}); start it, or set "
            "cluster.address: local"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _address(settings: ClusterSettings) -> str:
    """Of the Ray cluster; RAY_ADDRESS wins, as in all of Ray's tools."""
    return os.environ.get("RAY_ADDRESS", settings.address)


def _plan(settings: ClusterSettings, *, rows: int) -> _Plan:
    """Share out the cluster that is connected to."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    cpus = [int(node["CPU"]) for node in nodes]
    gpus = [int(node.get("GPU", 0)) for node in nodes]
    owned = sum(gpus) or sum(cpus)
    if settings.workers == "auto":
        most = sum(gpus) or len(nodes)
        workers = next((count for count in range(most, 1, -1) if rows % count == 0), min(most, 1))
    else:
        workers = settings.workers
    if not 0 < workers <= owned:
        raise ConfigError(
            f"cluster.workers: {workers} wanted, but the cluster has {sum(gpus)} GPUs and {sum(cpus)} processors "
            f"on {len(nodes)} node(s); choose at most {owned}"
        )
    if sum(gpus):
        share = min(cpu // gpu for cpu, gpu in zip(cpus, gpus, strict=True) if gpu)
        return _Plan(workers, max(1, share), gpu=True, spread=False)
    a_node = -(-workers // len(nodes))
    return _Plan(workers, max(1, min(cpus) // a_node), gpu=False, spread=a_node == 1 and workers > 1)


def _launch_on_ray(
    function: Callable[[Job, Worker], None],
    job: Job,
    *,
    settings: ClusterSettings,
    rows: int,
    progress: Callable[[Mapping[str, float]], None],
) -> None:
    with connected(settings):
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig
        from ray.train.v2.api.config import LoggingConfig
        from ray.train.v2.api.exceptions import TrainingFailedError

        plan = _plan(settings, rows=rows)
        name = f"headstart-{secrets.token_hex(8)}"
        # Ray's own notes on the run. Checkpoints are the function's affair, so nobody else needs this folder.
        notes = tempfile.mkdtemp(prefix="headstart-ray-")
        resources = {"CPU": float(plan.cpus)} | ({"GPU": 1.0} if plan.gpu else {})
        trainer = _trainer()(
            _in_worker,
            train_loop_config={"function": function, "job": job, "channel": name, "threads": plan.cpus},
            scaling_config=ScalingConfig(
                num_workers=plan.workers,
                use_gpu=plan.gpu,
                resources_per_worker=resources,
                placement_strategy="STRICT_SPREAD" if plan.spread else "PACK",
            ),
            run_config=RunConfig(
                name=name,
                storage_path=notes,
                failure_config=FailureConfig(max_failures=RETRIES, controller_failure_limit=RETRIES),
                worker_runtime_env={"env_vars": threads.environment(plan.cpus)},
                logging_config=LoggingConfig(log_level="WARNING"),
            ),
            torch_config=TorchConfig(backend="nccl" if plan.gpu else "gloo"),
        )
        try:
            with _watching(name, progress):
                outcome = trainer.fit().return_value
        except TrainingFailedError as error:
            raise TrainingError(_gave_up(f"a worker died ({_last_line(error)})")) from error
        finally:
            shutil.rmtree(notes, ignore_errors=True)
    if outcome:
        raise getattr(errors, outcome["kind"], RuntimeError)(outcome["message"])


def _trainer() -> type[TorchTrainer]:
    """Ray's trainer without two helpers that are processes of their own, some three seconds of a start on two cores:
    one hands out data sets, and there are none; the other frees the workers' places should the controller be lost, and
    so does the end of the driver."""
    from ray.train.torch import TorchTrainer
    from ray.train.v2._internal.callbacks import DatasetsCallback
    from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback

    class Trainer(TorchTrainer):
        def _create_default_callbacks(self) -> list[Any]:
            helpers = (DatasetsCallback, PlacementGroupCleanerCallback)
            return [callback for callback in super()._create_default_callbacks() if not isinstance(callback, helpers)]

    return Trainer


def _in_worker(config: dict[str, Any]) -> dict[str, str] | None:
    """What runs on a Ray worker. Returns what went wrong, if no restart would mend it."""
    import ray.train
    import ray.train.torch

    context = ray.train.get_context()
    threads.own(config["threads"])
    world = World(context.get_world_rank(), context.get_world_size(), ray.train.torch.get_device())
    channel = _Channel(config["channel"])
    if failed := channel.read("failure"):
        # Told by a worker of the attempt before.
        return failed
    try:
        config["function"](config["job"], Worker(world, channel.publish if world.is_main else lambda numbers: None))
    except Exception as error:
        if isinstance(error, HeadstartError):
            failure = {"kind": type(error).__name__, "message": str(error)}
        elif world.size > 1 and isinstance(error, RuntimeError):
            # Very likely another worker was lost in the middle of an exchange: a matter for a restart.
            raise
        else:
            failure = {"kind": "defect", "message": traceback.format_exc()}
        if world.size == 1:
            return failure
        # The others may wait for this worker for ever: it leaves word and dies, so that Ray ends them all.
        channel.write("failure", failure)
        raise
    return None


class _Channel:
    """A few named values that workers and driver share, in the cluster's own key-value table."""

    def __init__(self, name: str) -> None:
        from ray.experimental import internal_kv

        self.table = internal_kv
        self.name = name
        self.published = 0.0

    def write(self, key: str, value: Any) -> None:
        self.table._internal_kv_put(f"{self.name}/{key}", json.dumps(value), overwrite=True)

    def read(self, key: str) -> Any:
        raw = self.table._internal_kv_get(f"{self.name}/{key}")
        return json.loads(raw) if raw else None

    def publish(self, numbers: Mapping[str, float]) -> None:
        """Write progress, not oftener than it is read."""
        now = time.monotonic()
        if now - self.published >= PROGRESS_SECONDS:
            self.published = now
            self.write("progress", dict(numbers))

    def clear(self) -> None:
        for key in ("progress", "failure"):
            self.table._internal_kv_del(f"{self.name}/{key}")


@contextmanager
def _watching(name: str, progress: Callable[[Mapping[str, float]], None]) -> Iterator[None]:
    """Hand on what rank 0 publishes, from a thread, until the block ends."""
    channel = _Channel(name)
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(PROGRESS_SECONDS):
            if numbers := channel.read("progress"):
                progress(numbers)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        channel.clear()


def _map_on_ray(
    function: Callable[[Job], Result], pending: dict[int, Job], *, settings: ClusterSettings
) -> Iterator[tuple[int, Result]]:
    with connected(settings):
        import ray

        environment = {"env_vars": threads.environment(1)}
        task = ray.remote(num_cpus=1, max_retries=RETRIES, runtime_env=environment)(_alone)
        items = iter(pending.items())
        running: dict[Any, int] = {}
        try:
            # Handed over a few at a time, not all at once and cancelled after an error: Ray ends the driver, by a
            # failed check of its own, when a task is cancelled in the moment in which it ends. Twice what the cluster
            # can run, so that nobody waits for this loop and a cluster that can grow sees that it should.
            while True:
                room = 2 * max(1, int(ray.cluster_resources().get("CPU", 1))) - len(running)
                running |= {task.remote(function, item): index for index, item in islice(items, max(0, room))}
                if not running:
                    return
                (done,), _ = ray.wait(list(running), num_returns=1)
                index = running.pop(done)
                yield index, ray.get(done)
        except ray.exceptions.RayTaskError as error:
            raise error.cause or error from error
        except ray.exceptions.WorkerCrashedError as error:
            raise TrainingError(_gave_up("a process was killed")) from error


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
