"""Launchers: work runs in this process, in its children, or on Ray (`components.ray_cluster`).

`launch` runs one training function on one or more workers; `map_parallel` runs many independent small jobs. Both
launchers run the same functions, so results do not depend on the launcher.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import TypeVar

import torch

from components import ray_cluster
from components.errors import ConfigError, TrainingError
from components.processors import cores
from components.settings.cluster import ClusterSettings
from components.training import threads
from components.training.distributed import Worker, World

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
    """Run `function(job, worker)` on every worker and return when all have ended.

    If a worker dies, all are restarted and `function` is called again: it must resume from its own checkpoints. On Ray
    it must be a function of this package, and paths in `job` must be absolute.

    Args:
        function: must store its results; its return value is ignored.
        job: picklable, for Ray. Complete directories that it names by absolute paths are copied to nodes without them
            (`components.inputs`).
        settings: `workers: auto` is one worker per GPU; without GPUs one process per node with all of its cores
            (on two cores, two processes with one thread took 1.25 times as long as one process with two).
        rows: rows of the global batch; `auto` uses the largest number of workers that divides it. 0: no restriction.
        progress: called in this process, from time to time, with the numbers that rank 0 publishes.

    Raises:
        HeadstartError: raised by `function`.
        ConfigError: more workers than the launcher or the cluster can run.
        TrainingError: workers died more than `RETRIES` times, or the cluster cannot be reached.
    """
    if settings.launcher == "ray":
        ray_cluster.launch(function, job, settings=settings, rows=rows, progress=progress, retries=RETRIES)
        return
    if settings.workers not in ("auto", 1):
        raise ConfigError(
            f"cluster.workers: the local launcher runs 1 worker, not {settings.workers}; set cluster.launcher: ray"
        )
    threads.own(cores())
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    function(job, Worker(World(device=device), progress))


def map_parallel(
    function: Callable[[Job], Result],
    items: Iterable[Job],
    *,
    settings: ClusterSettings,
    most: int | None = None,
) -> Iterator[tuple[int, Result]]:
    """Run `function(item)` for every item in single-threaded processes, one per core; yields (index, result).

    The processes are children of this one, or tasks of a Ray cluster if the settings contain its address. An item whose
    process dies is repeated. Each process has one thread, whatever the number of items, so that results are
    bit-identical.

    Args:
        function: of an item.
        items: its arguments.
        settings: where the processes are.
        most: maximum number of processes on this machine; None: one per core.

    Raises:
        HeadstartError: raised by `function`; pending items are cancelled.
        TrainingError: processes died more than `RETRIES` times.
    """
    pending = dict(enumerate(items))
    if settings.launcher == "ray" and ray_cluster.address_of(settings) != "local":
        yield from ray_cluster.map_parallel(function, pending, settings=settings, retries=RETRIES)
        return
    deaths = 0
    while pending:
        try:
            with _pool(min(len(pending), most or cores()), kept=_kept.get() if most is None else None) as pool:
                with _without_main(function):
                    futures = {pool.submit(_alone, function, item): index for index, item in pending.items()}
                for future in as_completed(futures):
                    result = future.result()
                    del pending[futures[future]]
                    yield futures[future], result
        except BrokenProcessPool as error:
            deaths += 1
            if deaths > RETRIES:
                raise TrainingError(ray_cluster.gave_up("a process was killed", retries=RETRIES)) from error


@dataclass
class _Kept:
    """Processes that wait for the next call of `map_parallel`.

    Attributes:
        pool: the processes; None before the first call.
        size: their number.
    """

    pool: ProcessPoolExecutor | None = None
    size: int = 0

    def close(self) -> None:
        """End the processes; items that have not begun are cancelled."""
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
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
def _pool(size: int, *, kept: _Kept | None) -> Iterator[ProcessPoolExecutor]:
    """At least `size` processes of one thread each. They end with the block; `kept` processes end with it only if it
    raises an error."""
    own = kept or _Kept()
    if own.pool is None or own.size < size:
        own.close()
        spawning = multiprocessing.get_context("spawn")
        own.pool, own.size = ProcessPoolExecutor(size, mp_context=spawning, initializer=_end_with_parent), size
    finished = False
    try:
        with _environment(threads.environment(1)):
            yield own.pool
        finished = True
    finally:
        if kept is None or not finished:
            own.close()


@contextmanager
def _without_main(function: Callable[..., object]) -> Iterator[None]:
    """A block in which processes start without the program's main module, unless the function is defined in it.

    A spawned process executes the main module again. A script that calls this package outside of
    `if __name__ == "__main__"` would therefore call it again in every process.
    """
    main = sys.modules["__main__"]
    if function.__module__ == "__main__":
        yield
        return
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _end_with_parent() -> None:
    """End this process of the pool when its parent ends. Otherwise, after the parent is killed, it would keep training
    next to the resumed run, or wait forever and occupy memory."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _alone(function: Callable[[Job], Result], item: Job) -> Result:
    threads.own(1)
    return function(item)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """A block with these environment variables, for the child processes that it starts."""
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
