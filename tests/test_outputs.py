"""Outputs that a person names: what Headstart did not write is never replaced."""

import itertools
import multiprocessing
import os
from pathlib import Path

import pytest

from components.core import outputs
from components.core.artifacts import read_manifest
from components.core.errors import ArtifactError
from components.core.outputs import claim_folder, discard, named_output, write_named
from tests.killed_process import exit_at

KIND = "sample"


def write(path: Path, text: str = "one", *, overwrite: bool = False) -> None:
    """A file, or a folder if the path has no suffix."""
    if path.suffix:
        write_named(path, text, overwrite=overwrite)
        return
    with named_output(path, kind=KIND, overwrite=overwrite) as draft:
        (draft.path / "a.txt").write_text(text)


def text_of(path: Path) -> str:
    return (path if path.is_file() else path / "a.txt").read_text()


@pytest.mark.parametrize("name", ["out.csv", "out"])
def test_an_output_is_replaced_on_request_only(tmp_path, name):
    path = tmp_path / "new" / name
    write(path)
    with pytest.raises(ArtifactError, match=rf"{path}: exists; choose another path, or replace it with --overwrite"):
        write(path, "two")
    write(path, "two", overwrite=True)
    write(path, "three", overwrite=True)
    assert text_of(path) == "three"


def test_an_empty_folder_is_no_output(tmp_path):
    (tmp_path / "out").mkdir()
    write(tmp_path / "out")
    assert read_manifest(tmp_path / "out", kind=KIND, verify=True).files.keys() == {"a.txt"}


def foreign_file(path: Path) -> None:
    path.write_text("mine")


def foreign_folder(path: Path) -> None:
    path.mkdir()
    (path / "a.txt").write_text("mine")


def other_manifest(path: Path) -> None:
    foreign_folder(path)
    (path / "manifest.json").write_text('["not of Headstart"]')


def changed(path: Path) -> None:
    write(path)
    (path if path.suffix else path / "a.txt").write_text("own")


def added(path: Path) -> None:
    write(path)
    (path / "notes").mkdir()
    (path / "notes" / "a.txt").write_text("mine")


def link(path: Path) -> None:
    (path.parent / "elsewhere").mkdir()
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize(
    ("name", "make", "reason"),
    [
        ("out.csv", foreign_file, "was not written by Headstart"),
        ("out", foreign_file, "was not written by Headstart"),
        ("out.csv", foreign_folder, "was not written by Headstart"),
        ("out", foreign_folder, "was not written by Headstart"),
        ("out", other_manifest, "has changed since Headstart has written it"),
        ("out.csv", changed, "has changed since Headstart has written it"),
        ("out", changed, "has changed since Headstart has written it"),
        ("out", added, "contains notes/a.txt, which Headstart has not written"),
        ("out", link, "is a link"),
    ],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_others_have_written_stays(tmp_path, name, make, reason, overwrite):
    path = tmp_path / name
    make(path)
    before = sorted((str(file), file.read_bytes() if file.is_file() else b"") for file in tmp_path.rglob("*"))
    with pytest.raises(ArtifactError, match=f"{path}: exists, and {reason}.*; move it away, or choose another path"):
        write(path, "two", overwrite=overwrite)
    after = sorted((str(file), file.read_bytes() if file.is_file() else b"") for file in tmp_path.rglob("*"))
    assert after == before


@pytest.mark.parametrize("name", ["out.csv", "out"])
def test_what_appears_while_an_output_is_written_stays(tmp_path, name):
    path = tmp_path / name
    kind = None if path.suffix else KIND
    with pytest.raises(ArtifactError, match="was not written by Headstart"), named_output(path, kind=kind):
        foreign_file(path)
    assert [file.name for file in tmp_path.iterdir()] == [name] and path.read_text() == "mine"


def _killed_at(step: int, path: Path) -> None:
    exit_at(step)
    write(path, "two", overwrite=True)
    os._exit(0)


@pytest.mark.parametrize("name", ["out.csv", "out"])
def test_a_kill_at_any_step_leaves_an_output_that_can_be_replaced(tmp_path, name):
    path, seen = tmp_path / name, []
    write(path)
    for step in itertools.count():
        process = multiprocessing.get_context("fork").Process(target=_killed_at, args=(step, path))
        process.start()
        process.join()
        outputs.check_output(path, overwrite=True)
        seen.append(text_of(path))
        write(path, "one", overwrite=True)
        if process.exitcode == 0:
            break
    assert set(seen) == {"one", "two"} and seen == sorted(seen) and len(seen) > 2


def test_a_discarded_output_leaves_no_record(tmp_path):
    write(tmp_path / "out.csv")
    discard(tmp_path / "out.csv")
    assert not list(tmp_path.iterdir())


def test_a_working_folder_is_new_or_empty_or_of_an_earlier_call(tmp_path):
    claim_folder(tmp_path / "work")
    (tmp_path / "work" / "a.txt").write_text("one")
    claim_folder(tmp_path / "work")
    with pytest.raises(ArtifactError, match=f"{tmp_path}: contains files of others; choose a new or empty folder"):
        claim_folder(tmp_path)
