"""What Headstart wrote below `cluster.storage` and its caches: an entry has an exact form of name and a mark inside.

Everything else that lies there belongs to others and is never deleted."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.fs

from components.cluster.work import INPUTS, SHARDS
from components.core.artifacts import MANIFEST, is_complete
from components.core.errors import StorageError

#: A file of an entry, relative to the storage: a checkpoint of a run or of a fold (of earlier versions in the name of
#: the run), a file of a stage's work folder, a published input. Files of a checkpoint that was being written have a
#: partial folder's name.
_FILE: Final = re.compile(
    r"(?P<run>(?:[\w@.+-]+-)?[0-9a-f]{24}(?:-(?:all|fold\d+))*|transferability-[0-9a-f]+-\w+-\d+)"
    r"(?:/(?:all|\d+))?/\.?step-\d+[^/]*/state\.(?:json|safetensors)"
    rf"|(?P<shards>{SHARDS}[0-9a-f]{{16}})/.+"
    rf"|(?P<inputs>{INPUTS}[0-9a-f]{{32}})/.+"
)
#: The file that marks an entry as Headstart's, relative to the storage.
_MARK: Final = re.compile(
    r"[^/]+/(?:(?:all|\d+)/)?step-\d+/state\.json"
    rf"|{SHARDS}[0-9a-f]{{16}}/[0-9a-f]{{32}}\.json"
    rf"|{INPUTS}[0-9a-f]{{32}}/{MANIFEST}"
)
_FEATURES: Final = re.compile(r"[0-9a-f]{24}-[0-9a-f]{24}")


@dataclass(frozen=True)
class Entry:
    """A folder of the storage: name relative to it, bytes, and seconds since the epoch of its newest file."""

    name: str
    size: int
    written: float


def file_system(storage: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """The file system of a storage, a folder or s3://bucket/prefix, and its path there.

    Raises:
        StorageError: it cannot be used.
    """
    try:
        files, root = pyarrow.fs.FileSystem.from_uri(storage if "://" in storage else str(Path(storage).absolute()))
    except (OSError, pa.ArrowInvalid) as error:
        raise StorageError(f"cluster.storage {storage}: cannot be read ({error})") from error
    return files, str(root).rstrip("/")


def entries(storage: str) -> Iterator[Entry]:
    """The folders of a storage that Headstart wrote, by name. A folder with any other file is left out.

    Raises:
        StorageError: the storage cannot be read.
    """
    files, root = file_system(storage)
    try:
        infos = files.get_file_info(pyarrow.fs.FileSelector(root, recursive=True, allow_not_found=True))
    except OSError as error:
        raise StorageError(f"cluster.storage {storage}: cannot be read ({error})") from error
    folders: dict[str, list[pyarrow.fs.FileInfo]] = {}
    for info in infos:
        if info.type == pyarrow.fs.FileType.File:
            name = info.path[len(root) + 1 :]
            folders.setdefault(name.partition("/")[0], []).append(info)
    for name, inside in sorted(folders.items()):
        paths = [info.path[len(root) + 1 :] for info in inside]
        if all(map(_FILE.fullmatch, paths)) and any(map(_MARK.fullmatch, paths)):
            newest = max(info.mtime.timestamp() if info.mtime else 0.0 for info in inside)
            yield Entry(name, sum(info.size or 0 for info in inside), newest)


def feature_tables(folder: Path) -> list[Path]:
    """The cached feature tables of a folder."""
    return [
        path
        for path in sorted(folder.glob("*"))
        if _FEATURES.fullmatch(path.name) and is_complete(path, kind="features")
    ]
