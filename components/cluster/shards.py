"""Steps over shards: a function of one shard, in this process, in its children, or as tasks of a Ray cluster.

A step writes files with names that begin with its key, a digest of everything that decides the result, into the work
folder of the stage, and returns a few numbers. A JSON file `KEY.json`, written last, marks a finished step, so a stage
that was killed continues; the number of workers and their order change nothing.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from components.cluster import ray_cluster
from components.cluster.launcher import kept_processes, map_parallel
from components.cluster.session import address_of
from components.cluster.work import SHARDS, Facts, Work
from components.core.artifacts import locked, sweep
from components.core.processors import cores
from components.settings.cluster import ClusterSettings

Item = TypeVar("Item")
#: With less text, starting processes costs more than it saves.
PARALLEL_BYTES = 64 << 20
#: Folder of the work of local runs whose storage is a bucket.
LOCAL: Final = ".headstart/checkpoints"


def digest_of(*parts: Any) -> str:
    """The key of a step: a digest of JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class _Step:
    function: Callable[[Any, str, Work], Facts]
    item: Any
    key: str
    work: Work


def _run(step: _Step) -> Facts:
    facts = step.function(step.item, step.key, step.work)
    step.work.finish(step.key, facts)
    return facts


def _run_alone(step: _Step) -> Facts:
    # The libraries of the tokenizers and of MinHash read them when they are first used.
    os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    # A step is repeated if another process was killed before this one could report its end.
    return step.work.finished(step.key) or _run(step)


@dataclass(frozen=True)
class Steps:
    """Runs the steps of a stage.

    Attributes:
        processes: whether steps run in several processes; otherwise in this one, one after the other.
    """

    work: Work
    settings: ClusterSettings
    processes: bool

    def map(
        self,
        function: Callable[[Item, str, Work], Facts],
        items: Mapping[str, Item],
        *,
        advance: Callable[[Item], object] = lambda item: None,
        gpu_bytes: int | None = None,
    ) -> list[Facts]:
        """Run `function(item, key, work)` for every item that no earlier run has finished; the results are in the order
        of the items.

        Args:
            function: a function of a module. It writes its files with `work.put`.
            items: key -> item, picklable. Directories with a manifest that it names by absolute paths are copied to
                nodes without them.
            advance: called for each item when it is finished.
            gpu_bytes: memory that an item needs on a GPU; None: items compute on processors.

        Raises:
            HeadstartError: raised by `function`.
            TrainingError: processes died too often.
        """
        results: dict[str, Facts] = {}
        pending: dict[str, _Step] = {}
        for key, item in items.items():
            if (facts := self.work.finished(key)) is None:
                pending[key] = _Step(function, item, key, self.work)
            else:
                results[key] = facts
                advance(item)
        if self.processes and (len(pending) > 1 or self.work.remote):
            steps = list(pending.values())
            for index, facts in map_parallel(_run_alone, steps, settings=self.settings, gpu_bytes=gpu_bytes):
                results[steps[index].key] = facts
                advance(steps[index].item)
        else:
            for key, step in pending.items():
                results[key] = _run(step)
                advance(step.item)
        return [results[key] for key in items]


def on_cluster(settings: ClusterSettings) -> bool:
    """Whether `cluster.address` names a cluster."""
    return settings.launcher == "ray" and address_of(settings) != "local"


@contextmanager
def sharded(output: Path, *, settings: ClusterSettings, size: int) -> Iterator[Steps]:
    """A block in which the steps of a stage run, on Ray, in processes, or if there is little to do in this one; its
    work folder is removed at an end without an error. `output`: of the stage; another process that writes it is waited
    for. `size`: bytes of text to read."""
    away = size >= PARALLEL_BYTES and on_cluster(settings)
    processes = size >= PARALLEL_BYTES and (away or cores() > 1)
    storage = settings.storage if away or "://" not in settings.storage else LOCAL
    remote = "://" in storage
    root = storage.rstrip("/") if remote else str(Path(storage).absolute())
    name = f"{SHARDS}{hashlib.sha256(str(output.absolute()).encode()).hexdigest()[:16]}"
    work = Work(f"{root}/{name}", shared=away)
    with ExitStack() as stack:
        if not remote:
            folder = Path(work.address)
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder.with_name(f".{name}.lock")))
            folder.mkdir(exist_ok=True)
            sweep(folder)
        stack.enter_context(ray_cluster.connected(settings) if away else kept_processes())
        yield Steps(work, settings, processes)
        work.remove()
