"""Folders that the workers of a stage share: on a disk that all nodes mount, or in a bucket."""

import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs

from components.cluster.inputs import Input, cache_bytes, node_cache
from components.core.artifacts import (
    MANIFEST,
    link_or_copy,
    partial_path,
    private_folder,
    read_manifest,
    sync,
    write_atomic,
)
from components.core.errors import StorageError

Facts = dict[str, Any]

#: Beginnings of the names of folders in the storage: work of a stage, and inputs of jobs.
SHARDS: Final = "shards-"
INPUTS: Final = "inputs-"
#: File in a folder of checkpoints by which workers recognise that their node shares the folder.
MARK: Final = ".headstart-storage"


@dataclass(frozen=True)
class Work:
    """The work folder of a stage, which all of its workers share.

    Attributes:
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
            _trim(cache.parent)
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
                target.parent.mkdir(parents=True, exist_ok=True)
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


def publish_inputs(inputs: Sequence[Input], storage: str) -> list[Input]:
    """Copy inputs of jobs to the storage, where nodes without the driver's disk read them. Files on the same disk are
    linked. Returns the inputs; if the storage is a folder, with their paths in it."""
    published = []
    for each in inputs:
        work = _of_input(storage, each.digest)
        # The manifest is last: without it the directory is not complete.
        for name in (*read_manifest(each.path).files, MANIFEST):
            work.publish(each.path / name, name)
        published.append(each if work.remote else replace(each, shared=Path(work.address)))
    return published


def fetch_input(storage: str, digest: str, name: str, target: Path) -> None:
    """Copy a file of an input from the storage to a path of this node."""
    _of_input(storage, digest).fetch(name, target)


def _of_input(storage: str, digest: str) -> Work:
    return Work(f"{storage.rstrip('/')}/{INPUTS}{digest[:32]}", shared=True)


def mark_folder(folder: Path) -> str:
    """The content of the file MARK in a folder of checkpoints: created once, different in another folder.

    Raises:
        ArtifactError: the folder cannot be written.
    """
    if not (content := mark_of(folder)):
        with suppress(OSError):  # the file cannot be written either, which has a message
            folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / MARK, secrets.token_hex(16))
        content = mark_of(folder)
    return content


def mark_of(folder: Path) -> str:
    """The content of the file MARK in a folder; empty without one."""
    try:
        return (folder / MARK).read_text(encoding="utf-8")
    except OSError:
        return ""


def _link(source: Path, target: Path) -> None:
    with partial_path(target) as partial:
        partial.unlink()
        link_or_copy(source, partial)
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
    """Remove the files of steps that were not used for the longest time until the cache is within its bound."""
    files = sorted(((path.stat(), path) for path in cache.glob("*/[!.]*")), key=lambda each: -each[0].st_mtime)
    size, most = 0, cache_bytes()
    for state, path in files:
        size += state.st_size
        if size > most:
            path.unlink(missing_ok=True)
