"""Steps over shards: a function of one shard, in this process, in its children, or as tasks of a Ray cluster.

A step reads files, writes files with names that begin with its key into the work folder of the stage, and returns a few
numbers. The key is a digest of everything that decides the result. A JSON file `KEY.json`, written last, marks a
finished step, so a stage that was killed continues with the steps that are missing; the number of workers and the order
in which they end change nothing. Only keys, counts and names pass through the process of the stage, not text.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.fs

from components.cluster import ray_cluster
from components.cluster.inputs import CACHE_BYTES, node_cache
from components.cluster.launcher import kept_processes, map_parallel
from components.core.artifacts import locked, partial_path, private_folder, sweep, sync, write_atomic
from components.core.errors import StorageError
from components.core.processors import cores
from components.settings.cluster import ClusterSettings

Item = TypeVar("Item")
Facts = dict[str, Any]

#: With less text, starting processes costs more than it saves.
PARALLEL_BYTES = 64 << 20
#: Folder of the work of local runs whose storage is a bucket.
LOCAL: Final = ".headstart/checkpoints"
#: Beginning of the name of a work folder.
PREFIX: Final = "shards-"


def digest_of(*parts: Any) -> str:
    """The key of a step: a digest of JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Work:
    """The work folder of a stage, which all of its workers share.

    Attributes:
        address: an absolute path, or s3://bucket/prefix.
        shared: whether workers on other nodes read it.
    """

    address: str
    shared: bool = False

    @property
    def remote(self) -> bool:
        """Whether files are copied from and to a bucket."""
        return "://" in self.address

    def read(self, name: str) -> Path:
        """A file for reading: in the folder, or a copy in the bounded cache of this node. An absolute name is a file
        that all nodes see.

        Raises:
            StorageError: the file cannot be copied.
        """
        if not self.remote or Path(name).is_absolute():
            return Path(self.address) / name
        cache = self._cache()
        path = cache / name.replace("/", "-")
        if not path.is_file():
            _trim(cache)
            with partial_path(path) as partial:
                files, root = self._files()
                _copy(f"{root}/{name}", str(partial), files, pyarrow.fs.LocalFileSystem())
                partial.replace(path)
        else:
            os.utime(path)
        return path

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder of this node for files that `put` moves."""
        if self.remote:
            with tempfile.TemporaryDirectory(prefix="headstart-shard-") as folder:
                yield Path(folder)
        else:
            with partial_path(Path(self.address) / "scratch", folder=True) as folder:
                yield folder

    def put(self, path: Path, name: str) -> None:
        """Move a file into the work folder under a name, atomically.

        Raises:
            StorageError: the bucket cannot be written.
        """
        if self.remote:
            files, root = self._files()
            _copy(str(path), f"{root}/{name}", pyarrow.fs.LocalFileSystem(), files)
            path.replace(self._cache() / name)
        else:
            sync(path)  # before the step is marked as finished
            path.replace(Path(self.address) / name)

    def fetch(self, name: str, target: Path) -> None:
        """Make a file of the work folder also available at a path of this node: a link if possible, else a copy."""
        if self.remote:
            files, root = self._files()
            _copy(f"{root}/{name}", str(target), files, pyarrow.fs.LocalFileSystem())
            return
        _link(Path(self.address) / name, target)

    def publish(self, path: Path, name: str) -> str:
        """The name under which all workers can read a file of this node; for nodes without its disk it is linked or
        copied into the work folder, once."""
        if not self.remote:
            if not self.shared:
                return str(path.absolute())
            if not (target := Path(self.address) / name).is_file():
                _link(path.resolve(), target)
            return name
        files, root = self._files()
        if files.get_file_info(f"{root}/{name}").type != pyarrow.fs.FileType.File:
            _copy(str(path), f"{root}/{name}", pyarrow.fs.LocalFileSystem(), files)
        return name

    def finished(self, key: str) -> Facts | None:
        """What a finished step has returned; None if it has to run."""
        try:
            if self.remote:
                files, root = self._files()
                with files.open_input_file(f"{root}/{key}.json") as file:
                    return dict(json.loads(file.read()))
            return dict(json.loads((Path(self.address) / f"{key}.json").read_bytes()))
        except (OSError, ValueError):
            return None

    def finish(self, key: str, facts: Facts) -> None:
        """Mark a step as finished."""
        content = json.dumps(facts)
        if not self.remote:
            write_atomic(Path(self.address) / f"{key}.json", content)
            return
        files, root = self._files()
        with _reported(root), files.open_output_stream(f"{root}/{key}.json") as file:
            file.write(content.encode())

    def remove(self) -> None:
        """Remove all files."""
        if self.remote:
            files, root = self._files()
            with _reported(root):
                files.delete_dir_contents(root, missing_dir_ok=True)
        else:
            shutil.rmtree(self.address, ignore_errors=True)

    def _files(self) -> tuple[pyarrow.fs.FileSystem, str]:
        with _reported(self.address):
            files, root = pyarrow.fs.FileSystem.from_uri(self.address)
        return files, str(root)

    def _cache(self) -> Path:
        folder = node_cache() / "shards" / hashlib.sha256(self.address.encode()).hexdigest()[:16]
        private_folder(node_cache())
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _link(source: Path, target: Path) -> None:
    with partial_path(target) as partial:
        partial.unlink()
        try:
            os.link(source, partial)
        except OSError:  # another file system, or one without links
            shutil.copyfile(source, partial)
        partial.replace(target)


def _copy(source: str, target: str, there: pyarrow.fs.FileSystem, here: pyarrow.fs.FileSystem) -> None:
    with _reported(source):
        pyarrow.fs.copy_files(source, target, there, here)


@contextmanager
def _reported(where: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        raise StorageError(f"{where}: cannot be read or written ({error}); check cluster.storage") from error


def _trim(cache: Path) -> None:
    """Remove the files that were not used for the longest time until the cache is within its bound."""
    files = sorted(((path.stat(), path) for path in cache.glob("[!.]*")), key=lambda each: -each[0].st_mtime)
    size = 0
    for state, path in files:
        size += state.st_size
        if size > CACHE_BYTES:
            path.unlink(missing_ok=True)


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
    return settings.launcher == "ray" and ray_cluster.address_of(settings) != "local"


@contextmanager
def sharded(output: Path, *, settings: ClusterSettings, size: int) -> Iterator[Steps]:
    """A block in which the steps of a stage run; its work folder is removed when the block ends without an error.

    Steps run on Ray if `cluster.address` names a cluster, in processes of this machine otherwise; in this process if
    there is little to do.

    Args:
        output: of the stage. Another process that writes it is waited for.
        size: bytes of text that have to be read.
    """
    away = size >= PARALLEL_BYTES and on_cluster(settings)
    processes = size >= PARALLEL_BYTES and (away or cores() > 1)
    storage = settings.storage if away or "://" not in settings.storage else LOCAL
    remote = "://" in storage
    root = storage.rstrip("/") if remote else str(Path(storage).absolute())
    name = f"{PREFIX}{hashlib.sha256(str(output.absolute()).encode()).hexdigest()[:16]}"
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
