"""Launchers: work runs in this process, in its children, or on Ray, with the same results. `launch` runs one training
function on one or more workers; `map_parallel` runs many independent small jobs."""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from components.cluster import ray_cluster
from components.cluster.placement import HIDDEN_GPUS, UNKNOWN_GPU, VISIBLE_GPUS, Node, check_gpus, plan_runs
from components.cluster.session import SessionError, address_of
from components.core import threads
from components.core.clock import check_time, clock, seconds_left, until
from components.core.environment import variables
from components.core.errors import ConfigError, TrainingError
from components.core.processors import cores
from components.settings.cluster import ClusterSettings

if TYPE_CHECKING:
    from components.cluster.distributed import Worker

Job = TypeVar("Job")
Result = TypeVar("Result")

#: Restarts after the loss of a worker before a run fails. The next run of the stage resumes from its checkpoint.
RETRIES = 5


def launch(
    function: Callable[[Job, Worker], None],
    job: Job,
    *,
    settings: ClusterSettings,
    rows: int = 0,
    progress: Callable[[Mapping[str, float]], None] = lambda numbers: None,
) -> None:
    """Run `function(job, worker)` on every worker and return when all have ended; its return value is ignored. If a
    worker dies, all are restarted and `function` is called again: it must resume from its own checkpoints.

    On Ray, `function` is of this package and `job` picklable: relative paths in it become absolute, and complete
    directories that it names are copied to nodes without them (`components.cluster.inputs`). `workers: auto` is one
    worker per GPU, without GPUs one process per node with all of its cores; at most as many as divide `rows`, the rows
    of the global batch (0: no restriction). `progress` is called in this process with the numbers that rank 0
    publishes.

    Raises ConfigError: more workers than the launcher or the cluster can run, or fewer GPUs than `cluster.gpus`. Raises
    TrainingError: workers died more than `RETRIES` times, or the cluster cannot be reached; and what `function` raises.
    """
    if settings.launcher == "ray":
        try:
            ray_cluster.launch(function, job, settings=settings, rows=rows, progress=progress, retries=RETRIES)
            return
        except SessionError as error:
            if settings.workers not in ("auto", 1):
                raise
            print(f"{error}; the training runs in the process of the stage, with the same result", flush=True)
    elif settings.workers not in ("auto", 1):
        raise ConfigError(
            f"cluster.workers: the local launcher runs 1 worker, not {settings.workers}; set cluster.launcher: ray"
        )
    import torch

    from components.cluster.distributed import Worker, World

    check_gpus([_this_machine(_visible_gpus())], settings.gpus)
    threads.use(cores())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    function(job, Worker(World(device=device), progress))


def map_parallel(
    function: Callable[[Job], Result],
    items: Iterable[Job],
    *,
    settings: ClusterSettings,
    most: int | None = None,
    gpu_bytes: int | None = None,
) -> Iterator[tuple[int, Result]]:
    """Run `function(item)` for every item in processes of one thread, so that results are bit-identical; yields (index,
    result). They are children of this process, one per core and at most `most`, or tasks of a Ray cluster if the
    settings contain its address. An item whose process dies is repeated. `gpu_bytes`: memory that an item needs on a
    GPU, of which each process sees one (`components.cluster.placement`); None: items compute on the CPU.

    Raises ConfigError: there are fewer GPUs than `cluster.gpus`. Raises TrainingError: processes died more than
    `RETRIES` times. Raises OutOfTimeError: the limit of `components.core.clock` has passed; and what `function` raises.
    """
    check_time()
    pending, end = dict(enumerate(items)), clock().end
    if settings.launcher == "ray" and address_of(settings) != "local":
        yield from ray_cluster.map_parallel(function, pending, settings=settings, gpu_bytes=gpu_bytes, retries=RETRIES)
        return
    gpus = [] if gpu_bytes is None else _visible_gpus()
    machine = _this_machine(gpus)
    if pending and gpu_bytes is not None:
        check_gpus([machine], settings.gpus)
    plan = plan_runs([machine], runs=len(pending), gpu_bytes=gpu_bytes)
    # One entry per process that may run: its GPU.
    slots = tuple(gpu for _ in range(plan.per_gpu) for gpu in gpus)[: plan.at_once]
    deaths = 0
    while pending:
        try:
            # Not more processes than slots: the others would wait for one for ever.
            size = min(len(pending), most or plan.at_once, len(slots) or sys.maxsize)
            kept = _kept.get() if most is None else None
            with _pool(size, slots=slots, kept=kept, imported=function.__module__) as pool:
                with _without_main(function):
                    futures = {pool.submit(_alone, function, item, end): index for index, item in pending.items()}
                for future in as_completed(futures, timeout=None if end == math.inf else max(0.0, seconds_left())):
                    result = future.result()
                    del pending[futures[future]]
                    yield futures[future], result
        except TimeoutError:
            check_time()
            raise
        except BrokenProcessPool as error:
            check_time()
            deaths += 1
            if deaths > RETRIES:
                raise TrainingError(ray_cluster.gave_up("a process was killed", retries=RETRIES)) from error


#: Pools that a limit of time has ended: a process that is still starting needs the pool's semaphores.
_late: list[ProcessPoolExecutor] = []


@dataclass
class _Kept:
    """Processes that wait for the next call of `map_parallel`."""

    pool: ProcessPoolExecutor | None = None
    size: int = 0
    slots: tuple[str, ...] = ()
    #: Children of this process that are not those of the pool.
    others: Collection[BaseProcess] = ()

    def close(self) -> None:
        """End the processes; items that have not begun are cancelled. Others end at the limit of time by themselves."""
        if self.pool is not None:
            in_time = seconds_left() > 0
            self.pool.shutdown(wait=in_time, cancel_futures=True)
            _late.extend([] if in_time else [self.pool])
        self.pool, self.size = None, 0


_kept: ContextVar[_Kept | None] = ContextVar("kept", default=None)


@contextmanager
def kept_processes() -> Iterator[None]:
    """A block in which all calls of `map_parallel` use the same processes, which import their modules once."""
    kept = _Kept()
    token = _kept.set(kept)
    try:
        yield
    finally:
        _kept.reset(token)
        kept.close()


@contextmanager
def _pool(size: int, *, slots: tuple[str, ...], kept: _Kept | None, imported: str) -> Iterator[ProcessPoolExecutor]:
    """At least `size` processes of one thread each, which end with the block; `kept` ones only if it raises an
    error. The first call decides what they have imported when they start: a module, and torch if this process has."""
    processes = kept or _Kept()
    if kept is not None and not slots:
        # Processes start when items need them; a larger pool, later, would start all of them again.
        size = max(size, cores())
    if processes.pool is None or processes.size < size or processes.slots != slots:
        processes.close()
        starting = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
        starting.set_forkserver_preload(
            [name for name in (imported, "torch") if name in sys.modules and name != "__main__"]
        )
        queue = starting.SimpleQueue()
        for slot in slots or [HIDDEN_GPUS[VISIBLE_GPUS]] * size:
            queue.put(slot)
        environment = dict(os.environ) | threads.environment(1)
        start = (queue, Path.cwd(), environment)
        processes.others = multiprocessing.active_children()
        processes.pool = ProcessPoolExecutor(size, mp_context=starting, initializer=_begin, initargs=start)
        processes.size, processes.slots = size, slots
    finished = False
    try:
        with variables(threads.environment(1)):
            yield processes.pool
        finished = True
    except (BrokenProcessPool, KeyboardInterrupt, SystemExit, GeneratorExit):
        # The pool ends its processes when one of them dies, without one that `submit` starts at that moment, and would
        # wait for it for ever. At an interruption it would wait for the items that run.
        for child in {*multiprocessing.active_children()}.difference(processes.others):
            child.kill()
        raise
    finally:
        if kept is None or not finished:
            processes.close()


@contextmanager
def _without_main(function: Callable[..., object]) -> Iterator[None]:
    """A block whose spawned processes do not execute the main module, which may call this package, unless it defines
    `function`."""
    main = sys.modules["__main__"]
    if function.__module__ == "__main__":
        yield
        return
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _begin(queue: SimpleQueue[str], directory: Path, environment: Mapping[str, str]) -> None:
    """Prepare this process of the pool: the next free GPU is the only one that it sees. Before CUDA is initialised.
    The server that it comes from may have another working directory and older variables."""
    os.chdir(directory)
    os.environ.update(environment)
    os.environ[VISIBLE_GPUS] = queue.get()
    _end_with_parent()


def _visible_gpus() -> list[str]:
    """The GPUs of this process, as CUDA_VISIBLE_DEVICES names them."""
    import torch  # takes a second, which work without GPUs need not wait for

    count = torch.cuda.device_count()
    named = [name.strip() for name in os.environ.get(VISIBLE_GPUS, "").split(",") if name.strip()]
    return named[:count] if named else [str(number) for number in range(count)]


def _this_machine(gpus: Sequence[str]) -> Node:
    if not gpus:
        return Node(cores())
    import torch

    memory = [torch.cuda.get_device_properties(number).total_memory for number in range(len(gpus))]
    return Node(cores(), len(gpus), min(memory, default=UNKNOWN_GPU))


def _end_with_parent() -> None:
    """End this process when its parent ends. It would keep training beside the resumed run, or wait forever."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _alone(function: Callable[[Job], Result], item: Job, end: float) -> Result:
    """`function(item)`; the process ends at the limit of time."""
    if "torch" in sys.modules:  # the function is loaded, and what it imports
        threads.use(1)
    if end == math.inf:
        return function(item)
    with until(end):
        timer = threading.Timer(max(0.0, seconds_left()), os._exit, (1,))
        timer.daemon = True
        timer.start()
        try:
            return function(item)
        finally:
            timer.cancel()
