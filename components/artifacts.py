"""Directories that are whole or absent.

A stage writes its output into a directory beside the final one, forces it to disk, writes `manifest.json` last and
then renames the whole. So a directory is complete if and only if its manifest exists, whatever killed the process.
"""

from __future__ import annotations

import fcntl
import fnmatch
import glob
import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.errors import ArtifactError

MANIFEST = "manifest.json"
SCHEMA = 1
_PARTIAL = re.compile(r"\.partial-[0-9a-f]{32}\.(?P<target>.+)")


@dataclass
class Draft:
    """A directory being written: put files under `path`, numbers worth keeping into `facts`."""

    path: Path
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """What a complete directory holds.

    `files` maps a relative path to its size in bytes and its SHA-256; `facts` are the stage's own (row and token
    counts, configuration, the digests of what it was made from).
    """

    kind: str
    schema: int
    files: dict[str, dict[str, Any]]
    facts: dict[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 over the names and contents of all files; the same content has the same digest anywhere."""
        listing = "".join(f"{name}\0{entry['sha256']}\n" for name, entry in sorted(self.files.items()))
        return hashlib.sha256(listing.encode()).hexdigest()


def digest_file(path: Path) -> str:
    """SHA-256 of a file's bytes, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_text(text: str) -> str:
    """SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_files(files: Iterable[Path]) -> str:
    """SHA-256 over the names and contents of those of the files that exist."""
    listing = "".join(f"{path.name}\0{digest_file(path)}\n" for path in sorted(files) if path.is_file())
    return hashlib.sha256(listing.encode()).hexdigest()


def digest_tree(path: Path) -> str:
    """SHA-256 over the relative names and contents of every file under `path` (or of one file)."""
    if path.is_file():
        return digest_file(path)
    if not path.is_dir():
        raise ArtifactError(f"{path}: does not exist")
    files = sorted(file for file in path.rglob("*") if file.is_file())
    listing = "".join(f"{file.relative_to(path).as_posix()}\0{digest_file(file)}\n" for file in files)
    return hashlib.sha256(listing.encode()).hexdigest()


def sweep(folder: Path, *, target: str = "*") -> None:
    """Remove the partial files and folders of killed writers in `folder`: created by `partial_path`, no longer locked.

    On file systems without file locks nothing is removed, because the writer could be alive.

    Args:
        target: pattern (fnmatch) of the target names.
    """
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        name = _PARTIAL.fullmatch(entry.name)
        if name is None or not fnmatch.fnmatchcase(name["target"], target):
            continue
        with suppress(OSError):  # BlockingIOError: its writer is alive. FileNotFoundError: another process was faster.
            descriptor = os.open(entry, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(entry)
            finally:
                os.close(descriptor)


@contextmanager
def partial_path(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Create a file (or folder) next to `path`, to be written and then renamed to `path`.

    Its name is unique and has the suffix of `path`. It is locked until the block ends, so that `sweep` distinguishes it
    from partial files of killed writers, which are removed first. If it is not renamed, it is removed at the end.

    Raises:
        OSError: no space, no access, or no such directory.
    """
    sweep(path.parent, target=glob.escape(path.name))
    descriptor = None
    while descriptor is None:
        aside = _unique(path)
        if folder:
            aside.mkdir()
        else:
            aside.touch(exist_ok=False)
        descriptor = _lock(aside)
    try:
        yield aside
    finally:
        _remove(aside)
        os.close(descriptor)


def _unique(path: Path) -> Path:
    return path.with_name(f".partial-{uuid.uuid4().hex}.{path.name}")


def _lock(path: Path) -> int | None:
    """Lock a file or folder; None if a sweep has removed it already. The kernel releases the lock with the process."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with suppress(OSError):  # a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    if os.fstat(descriptor).st_nlink and path.exists():
        return descriptor
    os.close(descriptor)
    return None


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Raises:
        ArtifactError: the disk is full or the path cannot be written.
    """
    try:
        with partial_path(path) as aside:
            with aside.open("wb") as file:
                file.write(data.encode() if isinstance(data, str) else data)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
    except OSError as error:
        raise ArtifactError(
            f"{path}: cannot be written ({error.strerror}); free space or choose another place"
        ) from error


@contextmanager
def writing(path: Path, *, kind: str, keep: bool = False, replace: bool = True) -> Iterator[Draft]:
    """Write the directory `path` as a whole: `with writing(path, kind="encoder") as draft: ...`.

    With `keep`, the draft starts with the files of a complete earlier directory (hard links, so nothing is copied):
    append-only outputs add theirs and leave the old ones alone. A linked file must be replaced, never written into.
    Without `replace`, a complete directory that another process has written meanwhile stays. If the block raises,
    nothing of the draft remains and the earlier directory stays as it was.

    Raises:
        ArtifactError: the disk is full or the directory cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial_path(path, folder=True) as aside:
            if keep and (path / MANIFEST).is_file():
                shutil.copytree(
                    path, aside, copy_function=os.link, ignore=shutil.ignore_patterns(MANIFEST), dirs_exist_ok=True
                )
            draft = Draft(aside)
            yield draft
            files = {
                file.relative_to(aside).as_posix(): {"bytes": file.stat().st_size, "sha256": digest_file(file)}
                for file in sorted(aside.rglob("*"))
                if file.is_file()
            }
            for name in files:
                sync(aside / name)
            manifest = {"kind": kind, "schema": SCHEMA, "facts": draft.facts, "files": files}
            (aside / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
            sync(aside / MANIFEST)
            sync(aside)
            _put_in_place(aside, path, unless_complete=None if replace else kind)
    except OSError as error:
        raise _unwritable(path, error) from error


def is_complete(path: Path, *, kind: str) -> bool:
    """Whether `path` is a complete directory of that kind."""
    try:
        read_manifest(path, kind=kind)
    except (ArtifactError, OSError):
        return False
    return True


def _put_in_place(aside: Path, path: Path, *, unless_complete: str | None) -> None:
    """Rename the directory `aside` to `path`, in place of what is there, unless that is complete and of this kind.

    A rename cannot replace a directory that has files: the old one is renamed first, to a name that is swept.
    """
    if unless_complete is not None:
        try:
            aside.rename(path)
            return
        except OSError:
            if is_complete(path, kind=unless_complete):
                return
    old = _unique(path)
    if path.exists():
        path.rename(old)
    aside.rename(path)
    _remove(old)


def read_manifest(path: Path, *, kind: str | None = None, verify: bool = False) -> Manifest:
    """The manifest of a complete directory; with `verify`, every file is read and compared with its digest.

    Raises:
        ArtifactError: no manifest, another kind, a newer schema, a missing, surplus or altered file.
    """
    path = Path(path)
    try:
        raw = json.loads((path / MANIFEST).read_text())
        manifest = Manifest(kind=raw["kind"], schema=raw["schema"], files=raw["files"], facts=raw["facts"])
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: not a complete output (no {MANIFEST}); run the stage that makes it") from error
    except (json.JSONDecodeError, KeyError) as error:
        raise ArtifactError(f"{path / MANIFEST}: damaged ({error}); run the stage again") from error
    if manifest.schema > SCHEMA:
        raise ArtifactError(f"{path}: written by a newer version (schema {manifest.schema}, this one knows {SCHEMA})")
    if kind is not None and manifest.kind != kind:
        raise ArtifactError(f"{path}: holds {manifest.kind!r}, expected {kind!r}")
    for name, entry in manifest.files.items():
        file = path / name
        if not file.is_file() or file.stat().st_size != entry["bytes"]:
            raise ArtifactError(f"{file}: missing or of another size than its manifest says; run the stage again")
        if verify and digest_file(file) != entry["sha256"]:
            raise ArtifactError(
                f"{file}: altered since it was written (SHA-256 differs); restore it or run the stage again"
            )
    return manifest


def _unwritable(path: Path, error: OSError) -> ArtifactError:
    return ArtifactError(
        f"{error.filename or path}: cannot be written ({error.strerror}); free space or choose another place"
    )


def sync(path: Path) -> None:
    """Force a file or a directory's entries to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, numbers: Mapping[str, Any]) -> None:
    """Write a metrics file in the format that DVC reads."""
    path.write_text(json.dumps(numbers, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_json(path: Path, *, made_by: str, missing_ok: bool = False) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        path: of the file.
        made_by: the command or stage that writes the file, for messages.
        missing_ok: whether a missing file is an empty object.

    Raises:
        ArtifactError: the file is missing or damaged.
    """
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        if missing_ok:
            return {}
        raise ArtifactError(f"{path}: missing; run {made_by} first") from error
    except (OSError, ValueError, TypeError) as error:
        raise ArtifactError(f"{path}: cannot be read ({error}); run {made_by} again") from error


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, leaf) of nested mappings: {"a": {"b": 1}} gives ("a.b", 1). An empty mapping is a leaf."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    elif prefix:
        yield prefix, value
