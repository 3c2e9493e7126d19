"""Launchers on Ray. Nodes need no checkout and no disk in common: Ray distributes this package, and nodes copy the
inputs that they lack (`components.cluster.inputs`)."""

from __future__ import annotations

import secrets
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from components.cluster.inputs import Input, find_inputs, on_this_node, relocated
from components.cluster.placement import (
    HIDDEN_GPUS,
    UNKNOWN_GPU,
    Node,
    WorkerPlan,
    check_gpus,
    plan_runs,
    plan_workers,
)
from components.cluster.session import SessionError, address_of, prepare, python_path, session, session_address
from components.cluster.work import fetch_input, mark_folder, mark_of, publish_inputs
from components.core import errors, threads
from components.core.errors import ClusterUnavailableError, ConfigError, HeadstartError, TrainingError
from components.core.measurements import run_id
from components.settings.cluster import ClusterSettings

if TYPE_CHECKING:
    from components.cluster.distributed import Worker

Job = TypeVar("Job")
Result = TypeVar("Result")

#: Seconds between two progress reports of the workers.
PROGRESS_SECONDS = 0.5
#: Seconds for which the last progress report is waited for.
END_S = 10.0
#: Seconds between two looks at whether a cluster has room for another number of workers; and how often nodes may be
#: taken away, which is not counted as the loss of a worker.
RESIZE_S, PREEMPTIONS = 10.0, 100
#: Seconds for which a run waits for the GPUs of `cluster.gpus`; a cloud starts a node within minutes.
GPU_WAIT_S = 900.0

#: Prefix of the resource by which Ray names the type of a node's GPUs, and the memory of the types in gigabytes
#: (`ray.util.accelerators`); `A100` may be either size.
GPU_TYPE = "accelerator_type:"
GPU_GIGABYTES = {
    "T4": 16,
    "V100": 16,
    "A10G": 24,
    "L4": 24,
    "L40S": 48,
    "A100": 40,
    "A100-40G": 40,
    "A100-80G": 80,
    "H100": 80,
    "H200": 141,
    "B200": 180,
}


@contextmanager
def connected(settings: ClusterSettings) -> Iterator[None]:
    """A connection to a Ray cluster: the existing connection, else the cluster at the address, else (`local`) the
    session of the run, or a new one.

    Raises:
        SessionError: no session starts on this machine.
        TrainingError: no cluster can be reached at the address.
    """
    address = address_of(settings)
    local = address == "local"
    prepare(local=local)
    import ray

    if ray.is_initialized():
        yield
        return
    with session(settings, needed=local):
        try:
            ray.init(
                address=session_address() if local else address,
                runtime_env=_code(local=local),
                job_config=ray.job_config.JobConfig(metadata={"headstart_run": run_id()}),
                logging_level="WARNING",
                # Workers print only Ray's own messages; progress and errors have their own channel.
                log_to_driver=False,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            if local:
                raise SessionError(f"Ray does not answer ({_last_line(error)})") from error
            kind = ClusterUnavailableError if isinstance(error, ConnectionError) else TrainingError
            raise kind(
                f"cluster.address {address}: no Ray cluster can be reached ({error}); start it, or set "
                "cluster.address: local"
            ) from error
        try:
            yield
        finally:
            ray.shutdown()


@contextmanager
def _translated(settings: ClusterSettings) -> Iterator[None]:
    """A block in which the loss of the cluster (its head, or the node of this process) is a transient error."""
    import ray

    try:
        yield
    except ray.exceptions.RayTaskError:
        raise  # an error of the task itself
    except ray.exceptions.RayError as error:
        raise ClusterUnavailableError(
            f"cluster.address {address_of(settings)}: the Ray cluster was lost ({_last_line(error)}); run the stage "
            "again when it is back: it resumes from its last checkpoint"
        ) from error


def _code(*, local: bool) -> dict[str, Any]:
    """The runtime environment that gives workers this package: its folder on this machine, or a package that Ray
    distributes."""
    if not local:
        return {"py_modules": [str(Path(__file__).resolve().parents[1])], "excludes": ["**/__pycache__/"]}
    return {"env_vars": {"PYTHONPATH": python_path()}}


def nodes() -> list[Node]:
    """The nodes of the connected cluster that have a processor."""
    import ray

    resources = (node["Resources"] for node in ray.nodes() if node["Alive"])
    return [
        Node(int(held["CPU"]), int(held.get("GPU", 0)), _gpu_bytes(held))
        for held in resources
        if held.get("CPU", 0) >= 1
    ]


def _gpu_bytes(resources: Mapping[str, float]) -> int:
    """Memory of a node's GPUs, by the type that Ray has detected."""
    types = (name.removeprefix(GPU_TYPE) for name in resources if name.startswith(GPU_TYPE))
    return min((GPU_GIGABYTES[name] * 10**9 for name in types if name in GPU_GIGABYTES), default=UNKNOWN_GPU)


def _await_gpus(settings: ClusterSettings) -> None:
    """Ask the cluster for `cluster.gpus`, and wait until they are free; ClusterUnavailableError after `GPU_WAIT_S`."""
    if settings.gpus is None or address_of(settings) == "local":  # whose number does not change
        return
    from ray.util.placement_group import placement_group, remove_placement_group

    # Ends with this driver, so that no node is kept for a run that was killed.
    group = placement_group([{"CPU": 1, "GPU": 1}] * settings.gpus)
    try:
        if not group.wait(PROGRESS_SECONDS):
            print(f"waiting for {settings.gpus} GPUs (cluster.gpus), at most {GPU_WAIT_S / 60:g} minutes", flush=True)
            if not group.wait(GPU_WAIT_S):
                held = sum(node.gpus for node in nodes())
                raise ClusterUnavailableError(
                    f"cluster.gpus: {settings.gpus} GPUs are not free after {GPU_WAIT_S / 60:g} minutes, and the "
                    f"cluster has {held}; start GPU nodes, or set it to null to compute on what there is"
                )
    finally:
        remove_placement_group(group)


def launch(
    function: Callable[[Job, Worker], None],
    job: Job,
    *,
    settings: ClusterSettings,
    rows: int,
    progress: Callable[[Mapping[str, float]], None],
    retries: int,
) -> None:
    """`components.cluster.launcher.launch` on Ray; `retries` is the number of restarts after the loss of a worker."""
    job = relocated(job, Path.absolute)  # workers have another working directory
    with connected(settings), _translated(settings):
        _await_gpus(settings)
        elastic = address_of(settings) != "local"
        plan = plan_workers(nodes(), workers=settings.workers, rows=rows, wanted=settings.gpus, grows=elastic)
        run = _on_one_worker if plan.workers == 1 else partial(_on_workers, least=1 if elastic else plan.workers)
        with _exchange([job], settings, values=plan.workers > 1) as exchange:
            work = {"function": function, "job": job, "exchange": exchange, "threads": plan.cpus, "gpu": plan.gpu}
            work |= {"rows": rows}
            outcome = run(work, plan, progress=progress, retries=retries)
    if outcome:
        raise getattr(errors, outcome["kind"], RuntimeError)(outcome["message"])


def _on_one_worker(
    work: dict[str, Any], plan: WorkerPlan, *, progress: Callable[[Mapping[str, float]], None], retries: int
) -> dict[str, str] | None:
    """Run the function in an actor, which Ray starts again after its loss; arguments and result as of `_on_workers`."""
    import ray

    # Two methods at a time: the training, and the wait for its progress.
    options: dict[str, Any] = {"max_restarts": retries, "max_task_retries": retries, "max_concurrency": 2}
    options |= {"num_cpus": plan.cpus, "num_gpus": int(plan.gpu)}
    actor = ray.remote(**options, runtime_env={"env_vars": threads.environment(plan.cpus)})(TrainingWorker).remote()

    def watch() -> None:
        count = 0
        # If the actor or the cluster is lost, the other thread raises the error.
        with suppress(ray.exceptions.RayError):
            while (latest := ray.get(actor.progress.remote(count))) is not None:
                count, numbers = latest
                progress(numbers)

    def attempt() -> dict[str, str] | None:
        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        outcome: dict[str, str] | None = ray.get(actor.train.remote(work))
        # Ray prints a line about a call that `ray.kill` interrupts.
        thread.join(END_S)
        return outcome

    try:
        for _ in range(retries):
            try:
                return attempt()
            except ray.exceptions.ActorUnavailableError:
                # Its node is lost or does not answer. It starts again, and a process that still runs must not train
                # beside it.
                ray.kill(actor, no_restart=False)
        return attempt()
    except ray.exceptions.ActorDiedError as error:
        raise TrainingError(gave_up(f"a worker died ({_last_line(error)})", retries=retries)) from error
    finally:
        with suppress(ray.exceptions.RayError):
            ray.kill(actor)


class TrainingWorker:
    """Actor that is the only worker of a training."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count, self._numbers, self._ended = 0, dict[str, float](), False

    def train(self, work: dict[str, Any]) -> dict[str, str] | None:
        """`_attempt` with this worker."""
        import torch

        from components.cluster.distributed import Worker, World

        device = torch.device("cuda" if work["gpu"] else "cpu")
        try:
            return _attempt(work, Worker(World(device=device), _limited(self._publish)))
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def progress(self, count: int) -> tuple[int, dict[str, float]] | None:
        """The number of reports and the newest one, when there are other than `count`; None after the end. A
        worker that has started again has none at first."""
        with self._changed:
            self._changed.wait_for(lambda: self._count not in (0, count) or self._ended)
            return None if self._ended else (self._count, self._numbers)

    def _publish(self, numbers: dict[str, float]) -> None:
        with self._changed:
            self._count, self._numbers = self._count + 1, numbers
            self._changed.notify_all()


def _on_workers(
    work: dict[str, Any],
    plan: WorkerPlan,
    *,
    progress: Callable[[Mapping[str, float]], None],
    retries: int,
    least: int,
) -> dict[str, str] | None:
    """Run the function on workers that compute together; returns the error, as `kind` and `message`, if a restart
    cannot help. Ray starts them again, and they resume, where their number changes between `least` and that of the
    plan, with the nodes of a cluster.

    Ray's own checkpoints (`ray.train.report`) are not used: they would copy the files of a step to a second place, and
    a training that a stage repeats, on Ray or without it, would not resume from them.

    Args:
        work: function, job, exchange, rows of the global batch, number of threads and whether there is a GPU, of a
            worker.

    Raises:
        TrainingError: workers died more than `retries` times.
    """
    from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.torch import TorchConfig, TorchTrainer

    # The id of the retraining links the training in Ray's pages and logs to its run in Prefect and MLflow.
    name = "-".join(["headstart", *([run_id()] if run_id() else []), secrets.token_hex(8)])
    # Only for Ray's own files: the function writes the checkpoints elsewhere.
    ray_files = tempfile.mkdtemp(prefix="headstart-ray-")
    resources = {"CPU": float(plan.cpus)} | ({"GPU": 1.0} if plan.gpu else {})
    trainer = TorchTrainer(
        _in_worker,
        train_loop_config=work,
        scaling_config=ScalingConfig(
            num_workers=plan.workers if least == plan.workers else (least, plan.workers),
            elastic_resize_monitor_interval_s=RESIZE_S,
            use_gpu=plan.gpu,
            resources_per_worker=resources,
            placement_strategy="STRICT_SPREAD" if plan.spread else "PACK",
        ),
        run_config=RunConfig(
            name=name,
            storage_path=ray_files,
            failure_config=FailureConfig(
                max_failures=retries, controller_failure_limit=retries, max_preemption_failures=PREEMPTIONS
            ),
            worker_runtime_env={"env_vars": threads.environment(plan.cpus)},
            logging_config=LoggingConfig(log_level="WARNING"),
        ),
        torch_config=TorchConfig(backend="nccl" if plan.gpu else "gloo"),
    )
    try:
        with _watching(work["exchange"], progress):
            outcome: dict[str, str] | None = trainer.fit().return_value
            return outcome
    except TrainingFailedError as error:
        raise TrainingError(gave_up(f"a worker died ({_last_line(error)})", retries=retries)) from error
    finally:
        shutil.rmtree(ray_files, ignore_errors=True)


def _in_worker(work: dict[str, Any]) -> dict[str, str] | None:
    """Entry point of a worker of Ray Train; returns an error of the previous attempt, as `_attempt` does."""
    import ray.train
    import ray.train.torch
    import torch

    from components.cluster.distributed import Worker, World

    context = ray.train.get_context()
    device, rank, size = ray.train.torch.get_device(), context.get_world_rank(), context.get_world_size()
    # Of an elastic number of workers, those compute that divide the batch; the others wait for the next change.
    used = next((count for count in range(size, 1, -1) if work["rows"] % count == 0), 1)
    group = torch.distributed.new_group(range(used)) if 1 < used < size else None
    if rank >= used:
        return None
    world = World(rank, used, device, group)
    exchange: _Exchange = work["exchange"]
    if failed := exchange.get("failure"):
        # Written by a worker of the previous attempt.
        return dict(failed)
    publish = partial(exchange.put, "progress")
    failure = _attempt(work, Worker(world, _limited(publish) if world.is_main else lambda numbers: None))
    if failure is not None:
        # Other workers may wait for this one forever, so it stores the error and fails: Ray then ends all workers.
        exchange.put("failure", failure)
        raise RuntimeError(failure["message"])
    return None


def _attempt(work: dict[str, Any], worker: Worker) -> dict[str, str] | None:
    """Call the function. Returns the error, as `kind` and `message`, if a restart cannot help; else None."""
    import torch

    threads.use(work["threads"])
    try:
        work["function"](work["exchange"].on_this_node(work["job"]), worker)
    except Exception as error:
        if isinstance(error, HeadstartError):
            return {"kind": type(error).__name__, "message": str(error)}
        if worker.world.size > 1 and (isinstance(error, RuntimeError) or not torch.distributed.is_initialized()):
            # Another worker was lost during an exchange, or Ray ends this one and has ended its process group: restart.
            raise
        return {"kind": "defect", "message": traceback.format_exc()}
    return None


@dataclass(frozen=True)
class _Exchange:
    """What workers and driver share. `actor`: holds named values. `inputs`: of all jobs; None if all workers are on the
    driver's node. `mark`: content of the file MARK in the storage, if that is a folder; else empty."""

    actor: str
    inputs: tuple[Input, ...] | None = None
    storage: str = ""
    mark: str = ""

    def get(self, key: str) -> Any:
        """A value that was put; None without one."""
        import ray

        return ray.get(ray.get_actor(self.actor).get.remote(key))

    def put(self, key: str, value: Any) -> None:
        import ray

        ray.get(ray.get_actor(self.actor).put.remote(key, value))

    def on_this_node(self, job: Job) -> Job:
        """The job with paths that exist on the node of this worker.

        Raises:
            ConfigError: the storage is a folder that this node does not share.
            TrainingError: an input cannot be copied.
        """
        import ray

        if self.inputs is None:
            return job
        if self.mark and mark_of(Path(self.storage)) != self.mark:
            raise ConfigError(
                f"cluster.storage {self.storage}: node {ray.util.get_node_ip_address()} does not share this folder; "
                "set cluster.storage or HEADSTART_STORAGE to s3://bucket/prefix or to a folder that all nodes mount"
            )
        return on_this_node(job, self.inputs, partial(fetch_input, self.storage))


class _Hub:
    """Actor on the driver's node that holds values."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        """The value of a key; None without one."""
        return self.values.get(key)

    def put(self, key: str, value: Any) -> None:
        self.values[key] = value


@contextmanager
def _exchange(jobs: Sequence[object], settings: ClusterSettings, *, values: bool = False) -> Iterator[_Exchange]:
    """A block in which workers obtain the inputs of jobs on other nodes, and may exchange values with the driver."""
    import ray

    name, alone = f"headstart-{secrets.token_hex(8)}", len([node for node in ray.nodes() if node["Alive"]]) == 1
    inputs = () if alone else tuple(find_inputs(jobs))
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    actor = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(_Hub)
    # Its process takes a second to start.
    hub = actor.options(name=name, scheduling_strategy=here).remote() if values else None
    storage, mark = settings.storage, ""
    if not alone and "://" not in storage:
        storage = str(Path(storage).absolute())
        mark = mark_folder(Path(storage))
    published = tuple(publish_inputs(inputs, storage))
    try:
        yield _Exchange(name, None if alone else published, storage, mark)
    finally:
        with suppress(ray.exceptions.RayError):
            if hub is not None:
                ray.kill(hub)


def _limited(put: Callable[[dict[str, float]], None]) -> Callable[[Mapping[str, float]], None]:
    """Publish progress at most once per `PROGRESS_SECONDS`."""
    published = 0.0

    def publish(numbers: Mapping[str, float]) -> None:
        nonlocal published
        if time.monotonic() - published >= PROGRESS_SECONDS:
            published = time.monotonic()
            put(dict(numbers))

    return publish


@contextmanager
def _watching(exchange: _Exchange, progress: Callable[[Mapping[str, float]], None]) -> Iterator[None]:
    """Forward the progress of rank 0 to `progress` from a thread, until the block ends."""
    from ray.exceptions import RayError

    ended = threading.Event()

    def watch() -> None:
        # If the cluster is lost, the block raises the error.
        with suppress(RayError, ValueError):
            while not ended.wait(PROGRESS_SECONDS):
                if numbers := exchange.get("progress"):
                    progress(numbers)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def map_parallel(
    function: Callable[[Job], Result],
    pending: dict[int, Job],
    *,
    settings: ClusterSettings,
    gpu_bytes: int | None,
    retries: int,
) -> Iterator[tuple[int, Result]]:
    """`components.cluster.launcher.map_parallel` as tasks of a Ray cluster; `retries` is the number of repetitions of a
    task."""
    pending = relocated(pending, Path.absolute)  # workers have another working directory
    with connected(settings), _translated(settings), _exchange(list(pending.values()), settings) as exchange:
        import ray

        if pending and gpu_bytes is not None:
            _await_gpus(settings)
            check_gpus(nodes(), settings.gpus)
        plan = plan_runs(nodes(), runs=len(pending), gpu_bytes=gpu_bytes)
        environment = threads.environment(1)
        if plan.per_gpu:
            # Ray sets CUDA_VISIBLE_DEVICES. A process that has used a GPU keeps it, so it serves one task.
            resources: dict[str, Any] = {"num_gpus": plan.gpus, "max_calls": 1}
        else:
            resources, environment = {}, environment | HIDDEN_GPUS
        task = ray.remote(num_cpus=1, max_retries=retries, runtime_env={"env_vars": environment}, **resources)(_alone)
        if run_id():
            task = task.options(name=f"headstart-{run_id()}")
        items = iter(pending.items())
        running: dict[Any, int] = {}
        try:
            # Tasks are submitted in small numbers, so that none has to be cancelled after an error: Ray aborts the
            # driver (a failed internal check) if a task is cancelled while it ends. Twice the capacity of the cluster,
            # so that no node is idle and an autoscaler sees pending tasks.
            while True:
                capacity = plan_runs(nodes(), runs=len(pending), gpu_bytes=gpu_bytes).at_once
                room = max(0, 2 * capacity - len(running))
                running |= {task.remote(function, item, exchange): index for index, item in islice(items, room)}
                if not running:
                    return
                (done,), _ = ray.wait(list(running), num_returns=1)
                index = running.pop(done)
                yield index, ray.get(done)
        except ray.exceptions.RayTaskError as error:
            raise error.cause or error from error
        except ray.exceptions.WorkerCrashedError as error:
            raise TrainingError(gave_up("a process was killed", retries=retries)) from error


def _alone(function: Callable[[Job], Result], item: Job, exchange: _Exchange) -> Result:
    if "torch" in sys.modules:  # the function is loaded, and what it imports
        threads.use(1)
    return function(exchange.on_this_node(item))


def gave_up(reason: str, *, retries: int) -> str:
    """The message about workers that died too often."""
    return (
        f"failed after {retries} restarts: {reason}; if memory is exhausted, lower training.batch_size, "
        "then run the stage again: it resumes from its last checkpoint"
    )


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
