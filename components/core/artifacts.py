"""Output directories that are complete or absent; digests, atomic writes and JSON files.

A stage writes its output into a temporary directory next to the final one, synchronises it to disk, writes
`manifest.json` last and renames the directory. So a directory is complete if and only if its manifest exists, even if
the process is killed at any time.
"""

import errno
import fcntl
import fnmatch
import glob
import hashlib
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

from components.core.errors import ArtifactError, SchemaError, why_not

MANIFEST = "manifest.json"
#: Version of the format of an output and of a registered model, raised when present code cannot read earlier ones.
SCHEMA = 1
#: Lock of whoever changes the data of a repository, relative to its root.
DATA_LOCK = Path(".headstart/data.lock")
#: Directories that this process has checked, and the state of their files then.
_CHECKED: dict[Path, tuple[Any, ...]] = {}
_PARTIAL = re.compile(r"\.(?P<state>partial|replaced)-[0-9a-f]{32}\.(?P<target>.+)")


@dataclass
class Draft:
    """A directory that is being written: `path` receives the files, `facts` the metadata for the manifest.

    Attributes:
        files: entries of the manifest that are known without reading the files, because a step has written them.
    """

    path: Path
    facts: dict[str, Any] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """Content of a complete directory.

    Attributes:
        kind: kind of the directory, such as corpus or encoder.
        files: relative path -> size in bytes and SHA-256.
        facts: metadata of the stage (counts of rows and tokens, configuration, digests of the inputs).
    """

    kind: str
    schema: int
    files: dict[str, dict[str, Any]]
    facts: dict[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 over the names and contents of all files; the same content has the same digest anywhere."""
        listing = "".join(f"{name}\0{entry['sha256']}\n" for name, entry in sorted(self.files.items()))
        return digest_text(listing)


def digest_file(path: Path) -> str:
    """SHA-256 of a file's bytes, read in blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest_text(text: str) -> str:
    """SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_files(files: Iterable[Path]) -> str:
    """SHA-256 over the names and contents of files; missing files are skipped."""
    return _digest_of((path.name, path) for path in sorted(files) if path.is_file())


def _digest_of(files: Iterable[tuple[str, Path]]) -> str:
    return digest_text("".join(f"{name}\0{digest_file(path)}\n" for name, path in files))


def digest_tree(path: Path) -> str:
    """SHA-256 over the relative names and contents of every file under `path`, or of the file `path`.

    Raises:
        ArtifactError: `path` does not exist.
    """
    if path.is_file():
        return digest_file(path)
    if not path.is_dir():
        raise ArtifactError(f"{path}: does not exist")
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return _digest_of((file.relative_to(path).as_posix(), file) for file in files)


def sweep(folder: Path, *, target: str = "*") -> None:
    """Remove the partial files and folders (`partial_path`) that killed processes left in `folder`, unless they have a
    lock. An output that was about to be replaced is restored if the new one is not in its place.

    On file systems without file locks nothing is changed, because the writer may still be running.
    """
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        name = _PARTIAL.fullmatch(entry.name)
        if name is None or not fnmatch.fnmatchcase(name["target"], target):
            continue
        # BlockingIOError: the writer is running. FileNotFoundError: another process has removed the entry.
        with suppress(OSError):
            descriptor = os.open(entry, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if name["state"] == "partial":
                    _remove(entry)
                else:
                    _restore_or_remove(entry, folder / name["target"])
            finally:
                os.close(descriptor)


@contextmanager
def partial_path(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Create a file (or folder) next to `path`, whose folder is made if it is missing; the caller writes it and renames
    it to `path`.

    Its name is unique and ends in the name of `path`. It is locked until the block ends, so that `sweep` distinguishes
    it from partial files of killed processes, which are removed first. If it has not been renamed, it is removed when
    the block ends.

    Raises:
        OSError: no space, or no access.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent, target=glob.escape(path.name))
    descriptor = None
    while descriptor is None:
        partial = _unique(path)
        if folder:
            partial.mkdir()
        else:
            partial.touch(exist_ok=False)
        descriptor = _lock(partial)
    try:
        yield partial
    finally:
        _remove(partial)
        os.close(descriptor)


def _unique(path: Path, state: str = "partial") -> Path:
    return path.with_name(f".{state}-{uuid.uuid4().hex}.{path.name}")


def _restore_or_remove(old: Path, path: Path) -> None:
    if not os.path.lexists(path):
        old.rename(path)
        return
    # First it becomes a partial path: a removal that is interrupted leaves nothing that could be restored.
    partial = _unique(path)
    old.rename(partial)
    _remove(partial)


def _lock(path: Path) -> int | None:
    """Lock a file or folder; None if another process has removed or replaced it. Ends with the process."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    with suppress(OSError):  # a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    os.close(descriptor)
    return None


@contextmanager
def changing_data(root: Path, folders: Iterable[Path] = ()) -> Iterator[None]:
    """Let one process or thread at a time change the data of a repository. The kernel releases the locks with the
    process. Locks are taken in one order: the lock of the repository's run (`flows.repository.locked`) if the caller
    needs it, then this one, then the folders by path.

    Args:
        folders: of data, which another repository may change too; missing ones are skipped.
    """
    lock = root / DATA_LOCK
    lock.parent.mkdir(parents=True, exist_ok=True)
    existing = sorted({folder.resolve() for folder in folders if folder.is_dir()})
    with ExitStack() as stack:
        for path in (lock, *existing):
            stack.enter_context(locked(path))
        yield


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made if it is missing, or of a folder; other processes and threads wait."""
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def try_lock(file: IO[Any]) -> bool:
    """Take the lock of a file unless another process holds it. The kernel releases it with the process."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def write_atomic(path: Path, data: bytes | str, *, private: bool = False) -> None:
    """Write a file atomically: a reader sees either the old or the new content.

    Args:
        private: whether only this user may read it (mode 0600).

    Raises:
        ArtifactError: the disk is full or the path cannot be written.
    """
    try:
        with partial_path(path) as partial:
            if private:
                partial.chmod(0o600)
            partial.write_bytes(data.encode() if isinstance(data, str) else data)
            sync(partial)
            partial.replace(path)
    except OSError as error:
        # Its file name is that of the partial file.
        raise ArtifactError(
            f"{path}: cannot be written ({error.strerror}); free space or choose another location"
        ) from error


def private(path: str, flags: int) -> int:
    """Opener of a file that only this user may read (mode 0600): `open(path, "ab", opener=private)`."""
    return os.open(path, flags, 0o600)


def private_folder(path: Path) -> Path:
    """Make a folder that only this user may enter (mode 0700), or make an existing one so; returns it.

    Raises:
        ArtifactError: it is no folder, is a link, belongs to somebody else, or cannot be made.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise ArtifactError(f"{path}: is a link, or belongs to another user; remove it")
        if status.st_mode & 0o077:
            path.chmod(0o700)
    except OSError as error:
        raise unwritable(path, error) from error
    return path


@contextmanager
def writing(path: Path, *, kind: str, keep: bool = False, replace: bool = True) -> Iterator[Draft]:
    """Write the directory `path` atomically: `with writing(path, kind="encoder") as draft: ...`.

    If the block raises, the draft is removed and an existing directory remains unchanged.

    Args:
        keep: start with hard links to the files of the existing complete directory, for append-only outputs. A linked
            file may be replaced, but not written in place; its digest is taken from the manifest of the directory.
        replace: whether to replace a complete directory that another process has written in the meantime.

    Raises:
        ArtifactError: the disk is full or the directory cannot be written.
    """
    path = Path(path)
    try:
        with partial_path(path, folder=True) as partial:
            kept: dict[str, dict[str, Any]] = {}
            if keep and (path / MANIFEST).is_file():
                kept = read_manifest(path, kind=kind).files
                shutil.copytree(
                    path, partial, copy_function=os.link, ignore=shutil.ignore_patterns(MANIFEST), dirs_exist_ok=True
                )
            draft = Draft(partial)
            yield draft
            files = {}
            for file in sorted(file for file in partial.rglob("*") if file.is_file()):
                name = file.relative_to(partial).as_posix()
                if name in kept and file.samefile(path / name):
                    files[name] = kept[name]
                    continue
                files[name] = draft.files.get(name) or {"bytes": file.stat().st_size, "sha256": digest_file(file)}
                sync(file)
            manifest = {"kind": kind, "schema": SCHEMA, "facts": draft.facts, "files": files}
            write_json(partial / MANIFEST, manifest)
            sync(partial / MANIFEST)
            sync(partial)
            put_in_place(partial, path, unless_complete=None if replace else kind)
    except OSError as error:
        raise unwritable(path, error) from error


def is_complete(path: Path, *, kind: str) -> bool:
    """Whether `path` is a complete directory of that kind."""
    try:
        read_manifest(path, kind=kind)
    except (ArtifactError, OSError):
        return False
    return True


def put_in_place(partial: Path, path: Path, *, unless_complete: str | None = None) -> None:
    """Rename the directory `partial` to `path`; with `unless_complete`, keep an existing complete directory of this
    kind."""
    # A rename cannot replace a file or a full directory: `sweep` restores the existing one from its interim name.
    while not _renamed(partial, path):
        if unless_complete is not None and is_complete(path, kind=unless_complete):
            return
        # Locked, so that no other process restores it meanwhile. None: another process has replaced it.
        if (lock := _lock(path)) is None:
            continue
        old = _unique(path, "replaced")
        try:
            path.rename(old)
            try:
                if _renamed(partial, path):
                    return
            finally:
                _restore_or_remove(old, path)
        finally:
            os.close(lock)


def _renamed(partial: Path, path: Path) -> bool:
    """Rename a directory; False if `path` is a file, or a directory that contains files."""
    try:
        partial.rename(path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST) or (error.errno == errno.ENOTDIR and path.exists()):
            return False
        raise
    return True


def read_manifest(path: Path, *, kind: str | None = None, verify: bool | Literal["changed"] = False) -> Manifest:
    """The manifest of a complete directory; checks that every file has its size and, with `verify`, its digest.

    Args:
        verify: "changed": read only files that were changed after the manifest was written.

    Raises:
        ArtifactError: no manifest or a damaged one, another kind, a missing or altered file.
        SchemaError: the schema is another one.
    """
    path = Path(path)
    try:
        raw = json_of(path / MANIFEST)
        manifest = Manifest(*(raw[key] for key in ("kind", "schema", "files", "facts")))
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: not a complete output (no {MANIFEST}); run the stage that makes it") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{path / MANIFEST}: damaged ({error}); run the stage again") from error
    if manifest.schema != SCHEMA:
        raise SchemaError(
            f"{path / MANIFEST}: schema {manifest.schema!r} is not supported, this version of Headstart reads "
            f"{SCHEMA}; run the stage that makes it again"
        )
    if kind is not None and manifest.kind != kind:
        raise ArtifactError(f"{path}: is of kind {manifest.kind!r}, expected {kind!r}")
    written = (path / MANIFEST).stat().st_mtime_ns
    for name, entry in manifest.files.items():
        file = path / name
        if not file.is_file() or (state := file.stat()).st_size != entry["bytes"]:
            raise ArtifactError(f"{file}: missing, or its size differs from the manifest; run the stage again")
        if (verify is True or (verify and state.st_mtime_ns > written)) and digest_file(file) != entry["sha256"]:
            raise ArtifactError(
                f"{file}: altered since it was written (SHA-256 differs); restore it or run the stage again"
            )
    return manifest


def is_intact(path: Path, *, kind: str | None = None, digest: str | None = None) -> bool:
    """Whether `path` is a complete directory whose files have the digests of its manifest. Files that have not changed
    since this process has checked them are not read again.
    """
    try:
        manifest = read_manifest(path, kind=kind)
        if digest not in (None, manifest.digest):
            return False
        states = [(path / name).stat() for name in manifest.files]
        state = (manifest.digest, *((each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns) for each in states))
        if _CHECKED.get(path) != state:
            read_manifest(path, verify=True)
            _CHECKED[path] = state
        return True
    except (ArtifactError, OSError):
        return False


def unwritable(path: Path, error: OSError) -> ArtifactError:
    """The error about an output that cannot be written."""
    return ArtifactError(
        f"{error.filename or path}: cannot be written ({why_not(error)}); free space or choose another location"
    )


def link_or_copy(source: Path, target: Path) -> None:
    """Make a file, which is not written in place, also available at a path where there is none: as a hard link, or as a
    copy on another file system or one without links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def sync(path: Path) -> None:
    """Synchronise a file or the entries of a directory to disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any, **form: Any) -> None:
    """Write a JSON value, such as metrics, in the format that DVC reads; `form`: other arguments of `json.dumps`."""
    path.write_text(json.dumps(value, **{"indent": 1, "sort_keys": True} | form) + "\n", encoding="utf-8")


def text_in(path: Path) -> str:
    """The text of a file; empty if there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def json_of(path: Path) -> Any:
    """The value of a JSON file.

    Raises:
        ValueError: the file is not valid JSON, or nested too deeply.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def read_json(path: Path, *, made_by: str, missing_ok: bool = False) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        made_by: the command or stage that writes the file, for error messages.
        missing_ok: whether a missing file is an empty object.

    Raises:
        ArtifactError: the file is missing or damaged.
    """
    try:
        return dict(json_of(path))
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
