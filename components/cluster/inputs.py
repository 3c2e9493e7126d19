"""Inputs of a job on a node that has no disk in common with the driver: the complete directories (with a manifest) that
the job names. A node reads a directory of the same path and digest in place, else in the storage if that is a folder;
of a bucket it copies the directory once to its cache, and checks the copy before every use. Each worker reads every
shard within a few steps."""

import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from components.core.artifacts import (
    MANIFEST,
    Manifest,
    is_intact,
    locked,
    private_folder,
    read_manifest,
    sweep,
    writing,
)
from components.core.errors import ArtifactError, ConfigError, TrainingError

Job = TypeVar("Job")

#: Folders of a node's cache: directories of inputs, files of steps, and files of other kinds.
CACHES = ("inputs", "shards", "other")
#: Copies a file of a directory, by the digest of the directory and the name of the file, to a path.
Fetch = Callable[[str, str, Path], None]


@dataclass(frozen=True)
class Input:
    """A directory that a job reads; `shared`: the same directory in a folder that all nodes mount."""

    path: Path
    digest: str
    shared: Path | None = None


def find_inputs(job: object) -> list[Input]:
    """The complete directories that a job names by absolute paths, each once. A path inside of one stands for it."""
    paths: dict[Path, None] = {}
    relocated(job, lambda path: paths.setdefault(path) or path)
    directories: dict[Path, Input] = {}
    for path in filter(Path.is_absolute, paths):
        for directory in (path, path.parent):
            if (directory / MANIFEST).is_file():
                directories.setdefault(directory, Input(directory, read_manifest(directory).digest))
                break
    return list(directories.values())


def _fields(value: object) -> list[tuple[str, Any]]:
    """Names and values of the fields of a settings object or dataclass; of any other value none."""
    if isinstance(value, BaseModel):
        return [(name, getattr(value, name)) for name in type(value).model_fields]
    if dataclasses.is_dataclass(value):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return []


def relocated(job: Job, place: Callable[[Path], Path]) -> Job:
    """The job with other paths."""
    value: Any = job
    if isinstance(value, Path):
        moved: Any = place(value)
    elif isinstance(value, Mapping):
        moved = {key: relocated(inner, place) for key, inner in value.items()}
    elif isinstance(value, list | tuple):
        moved = type(value)(relocated(inner, place) for inner in value)
    else:
        changes = {name: relocated(inner, place) for name, inner in _fields(value)}
        if isinstance(value, BaseModel):
            moved = value.model_copy(update=changes)
        else:
            moved = dataclasses.replace(value, **changes) if changes else value
    result: Job = moved
    return result


def node_cache() -> Path:
    """The cache of this node, below the folder for temporary files."""
    return Path(tempfile.gettempdir()) / f"headstart-{os.getuid()}"


def on_this_node(job: Job, inputs: Sequence[Input], fetch: Fetch, *, cache: Path | None = None) -> Job:
    """The job with paths that exist on this node; copies the inputs that are missing here.

    An absolute path of the driver that is no input is a cache of the driver (frozen-encoder features): if its folder
    does not exist on this node, a folder of the node's cache takes its place.

    Args:
        cache: of this node; by default `node_cache()`. Only this user may enter it.

    Raises:
        ArtifactError: the cache belongs to another user.
        TrainingError: an input cannot be copied.
    """
    cache = private_folder(cache or node_cache())
    places = {each.path: _obtain(each, fetch, cache) for each in inputs}
    trim(cache / "inputs", keep=set(places.values()))

    def place(path: Path) -> Path:
        for directory in (path, path.parent):
            if directory in places:
                return places[directory] / path.relative_to(directory)
        if not path.is_absolute() or path.exists() or path.parent.is_dir():
            return path
        return cache / "other" / hashlib.sha256(str(path).encode()).hexdigest()[:16] / path.name

    return relocated(job, place)


def _obtain(wanted: Input, fetch: Fetch, cache: Path) -> Path:
    """The directory of an input on this node."""
    for path in (wanted.path, wanted.shared):
        with suppress(ArtifactError, OSError):  # absent here, or another version
            if path is not None and read_manifest(path).digest == wanted.digest:
                return path
    target, locks = cache / "inputs" / wanted.digest, private_folder(cache / "locks")
    # The first worker of a node copies an input; the others wait, and use the copy.
    with locked(locks / wanted.digest):
        if target.is_symlink() or not is_intact(target, digest=wanted.digest):
            target.unlink() if target.is_symlink() else shutil.rmtree(target, ignore_errors=True)
            try:
                _copy(wanted, fetch, target)
            except (ArtifactError, OSError) as error:
                raise TrainingError(f"{wanted.path}: cannot be copied to this node ({error})") from error
        os.utime(target / MANIFEST)
    return target


def _copy(wanted: Input, fetch: Fetch, target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fetch(wanted.digest, MANIFEST, Path(folder) / MANIFEST)
        manifest = Manifest(**json.loads((Path(folder) / MANIFEST).read_bytes()))
    size = sum(entry["bytes"] for entry in manifest.files.values())
    if size > (most := cache_bytes()):
        raise ArtifactError(
            f"{size / 1e9:.0f} GB, and the cache of a node has {most / 1e9:.0f}; set HEADSTART_CACHE_GB, or "
            "cluster.storage to a folder that all nodes mount"
        )
    with writing(target, kind=manifest.kind, replace=False) as draft:
        draft.facts |= manifest.facts
        for name in manifest.files:
            file = draft.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            fetch(wanted.digest, name, file)
    if read_manifest(target).digest != wanted.digest:
        shutil.rmtree(target, ignore_errors=True)
        raise ArtifactError("its files changed meanwhile; run the stage again")


def cache_bytes() -> int:
    """Size limit in bytes of each of a node's two caches, for inputs and for files of steps (HEADSTART_CACHE_GB). The
    least recently used entries are removed first.

    Raises:
        ConfigError: the variable is not a positive number.
    """
    given = os.environ.get("HEADSTART_CACHE_GB") or "50"
    try:
        if (gigabytes := float(given)) > 0:
            return int(1e9 * gigabytes)
    except (ValueError, OverflowError):
        pass
    raise ConfigError(f"HEADSTART_CACHE_GB: {given!r} is not a positive number of gigabytes")


def trim(cache: Path, *, keep: Collection[Path] = (), most: int | None = None) -> None:
    """Remove the least recently used directories of a cache until it has at most `most` bytes, except those in use."""
    sweep(cache)
    directories = []
    for manifest in cache.glob(f"[!.]*/{MANIFEST}"):
        size = sum(file.stat().st_size for file in manifest.parent.rglob("*") if file.is_file())
        directories.append((manifest.stat().st_mtime, size, manifest.parent))
    kept, most = 0, cache_bytes() if most is None else most
    for _, size, directory in sorted(directories, reverse=True):
        kept += size
        if kept > most and directory not in keep:
            shutil.rmtree(directory, ignore_errors=True)
