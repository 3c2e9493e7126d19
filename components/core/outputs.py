"""Outputs that a person names: nothing that Headstart did not write is replaced.

A folder of a kind carries its `manifest.json`. The record of a file or of another folder is `.NAME.manifest.json`
beside it, with the SHA-256 of what was written. An output that exists is refused. `--overwrite` replaces it if it is as
Headstart has written it; what a person has changed, or put into the folder, is kept.
"""

import glob
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from components.core.artifacts import (
    MANIFEST,
    Draft,
    digest_tree,
    json_of,
    partial_path,
    put_in_place,
    read_manifest,
    sweep,
    sync,
    unwritable,
    write_atomic,
    writing,
)
from components.core.errors import ArtifactError

#: File that marks a folder in which Headstart works.
MARK: Final = ".headstart-folder"


@contextmanager
def named_output(
    path: Path, *, kind: str | None = None, folder: bool = False, overwrite: bool = False
) -> Iterator[Draft]:
    """Write an output that a person names; it is complete or absent, as with `components.core.artifacts.writing`.

    Args:
        kind: of the folder, for its manifest; None: the output has its record beside it.
        folder: whether an output without a kind, and `path` of the draft, is a folder; else it is a file.
        overwrite: whether to replace what Headstart has written.

    Raises:
        ArtifactError: as `check_output`; or the output cannot be written.
    """
    path = Path(path)
    check_output(path, overwrite=overwrite)
    if kind is not None:
        with writing(path, kind=kind) as draft:
            yield draft
            check_output(path, overwrite=overwrite)  # it may have appeared meanwhile
        return
    try:
        with partial_path(path, folder=folder) as partial:
            yield Draft(partial)
            check_output(path, overwrite=overwrite)
            sync(partial)
            # First the record, of the old content too: after a kill either content is known.
            digests = [digest_tree(each) for each in (partial, path) if each.exists()]
            write_atomic(_record(path), json.dumps({"sha256": digests}) + "\n")
            put_in_place(partial, path) if folder else partial.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error


def write_named(path: Path, text: str, *, overwrite: bool) -> None:
    """Write a file that a person names; errors as of `named_output`."""
    with named_output(path, overwrite=overwrite) as draft:
        draft.path.write_bytes(text.encode())


def check_output(path: Path, *, overwrite: bool) -> None:
    """Check that an output may be written; an output whose replacement was interrupted is restored first.

    Raises:
        ArtifactError: it exists, and `overwrite` is false, or it is not as Headstart has written it.
    """
    path = Path(path)
    sweep(path.parent, target=glob.escape(path.name))
    if not os.path.lexists(path) or (path.is_dir() and not path.is_symlink() and not any(path.iterdir())):
        return
    if reason := _foreign(path):
        raise ArtifactError(f"{path}: exists, and {reason}; move it away, or choose another path")
    if not overwrite:
        raise ArtifactError(f"{path}: exists; choose another path, or replace it with --overwrite")


def discard(path: Path) -> None:
    """Remove a file that `named_output` has written, with its record; nothing if it does not exist."""
    path.unlink(missing_ok=True)
    _record(path).unlink(missing_ok=True)


def claim_folder(path: Path) -> None:
    """Make a folder in which Headstart works and may delete anything.

    Raises:
        ArtifactError: it contains files, and Headstart has not made it.
    """
    if path.is_dir() and any(path.iterdir()) and not (path / MARK).is_file():
        raise ArtifactError(f"{path}: contains files of others; choose a new or empty folder")
    path.mkdir(parents=True, exist_ok=True)
    (path / MARK).touch()


def _record(path: Path) -> Path:
    return path.with_name(f".{path.name}.{MANIFEST}")


def _foreign(path: Path) -> str:
    """Why an existing output is not, or not only, what Headstart has written; empty if it is."""
    other, changed = "was not written by Headstart", "has changed since Headstart has written it"
    if path.is_symlink():
        return "is a link"
    if not (path / MANIFEST).is_file():
        try:
            digests = json_of(_record(path))["sha256"]
        except (OSError, ValueError, TypeError, KeyError):
            return other
        return "" if digest_tree(path) in digests else changed
    try:
        files = read_manifest(path, verify=True).files
    except ArtifactError as error:
        return f"{changed} ({error})"
    names = (file.relative_to(path).as_posix() for file in path.rglob("*") if not file.is_dir() or file.is_symlink())
    added = min((name for name in names if name not in files and name != MANIFEST), default="")
    return f"contains {added}, which Headstart has not written" if added else ""
