"""An output directory is complete or absent, whatever happens while it is written."""

import errno
import itertools
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from components.core import artifacts
from components.core.artifacts import digest_tree, partial_path, read_manifest, write_atomic, writing
from components.core.errors import ArtifactError, SchemaError
from tests.conftest import until
from tests.killed_process import exit_at


def make(path: Path, text: str = "one") -> None:
    with writing(path, kind="sample") as draft:
        (draft.path / "part").mkdir()
        (draft.path / "part" / "a.txt").write_text(text)
        draft.facts["rows"] = 1


def test_the_manifest_lists_files_and_facts(tmp_path):
    make(tmp_path / "out")
    manifest = read_manifest(tmp_path / "out", kind="sample", verify=True)
    # SHA-256 of the three bytes "one".
    sha256 = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    assert manifest.files == {"part/a.txt": {"bytes": 3, "sha256": sha256}}
    assert manifest.facts == {"rows": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_a_failing_block_leaves_the_earlier_directory(tmp_path):
    make(tmp_path / "out")
    with pytest.raises(RuntimeError), writing(tmp_path / "out", kind="sample") as draft:
        (draft.path / "a.txt").write_text("half")
        raise RuntimeError
    assert (tmp_path / "out" / "part" / "a.txt").read_text() == "one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def _write_for_ever(path: Path) -> None:
    with writing(path, kind="sample") as draft:
        (draft.path / "a.txt").write_text("half")
        (path.parent / "started").touch()
        time.sleep(60)


def test_kill_leaves_the_earlier_directory_and_the_next_run_cleans_up(tmp_path):
    make(tmp_path / "out")
    process = multiprocessing.get_context("fork").Process(target=_write_for_ever, args=(tmp_path / "out",))
    process.start()
    until((tmp_path / "started").exists)
    process.kill()
    process.join()
    assert (tmp_path / "out" / "part" / "a.txt").read_text() == "one"
    make(tmp_path / "out", "two")
    assert (tmp_path / "out" / "part" / "a.txt").read_text() == "two"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "started"]


def _killed_at(step: int, path: Path) -> None:
    """Replace the output, killed before the step: calls that rename or remove something."""
    exit_at(step)
    make(path, "two")
    os._exit(0)


def test_a_kill_at_any_step_of_a_replacement_leaves_the_old_or_the_new_directory(tmp_path):
    path, seen = tmp_path / "out", []
    for step in itertools.count():
        make(path)
        process = multiprocessing.get_context("fork").Process(target=_killed_at, args=(step, path))
        process.start()
        process.join()
        artifacts.sweep(tmp_path)
        assert [each.name for each in tmp_path.iterdir()] == ["out"]
        read_manifest(path, kind="sample", verify=True)
        seen.append((path / "part" / "a.txt").read_text())
        if process.exitcode == 0:
            break
    # Two renames, the name from which the old one is removed, two files and two folders.
    assert seen == ["one"] * 3 + ["two"] * (len(seen) - 3) and len(seen) >= 7


def test_an_output_that_is_being_replaced_is_not_restored(tmp_path, monkeypatch):
    make(tmp_path / "out")
    real = artifacts._renamed

    def renamed(partial, path):
        artifacts.sweep(tmp_path)
        return real(partial, path)

    monkeypatch.setattr(artifacts, "_renamed", renamed)
    make(tmp_path / "out", "two")
    assert (tmp_path / "out" / "part" / "a.txt").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def _hold(path: Path, folder: bool) -> None:
    with partial_path(path, folder=folder):
        (path.parent / "started").touch()
        time.sleep(60)


@pytest.mark.parametrize("folder", [True, False])
def test_a_partial_path_is_swept_once_its_writer_has_ended(tmp_path, folder):
    process = multiprocessing.get_context("fork").Process(target=_hold, args=(tmp_path / "out", folder))
    process.start()
    until((tmp_path / "started").exists)
    (tmp_path / "started").unlink()

    def write():
        if folder:
            make(tmp_path / "out")
        else:
            write_atomic(tmp_path / "out", "one")
        return sorted(path.name for path in tmp_path.iterdir())

    partial, out = write()
    assert partial.startswith(".partial-") and partial.endswith(".out") and out == "out"
    process.kill()
    process.join()
    write_atomic(tmp_path / "out.txt", "another target")
    assert (tmp_path / partial).exists()
    assert write() == ["out", "out.txt"]


def test_a_partial_path_that_is_swept_before_it_is_locked_is_created_again(tmp_path, monkeypatch):
    real, swept = artifacts._lock, []

    def lock(path):
        if not swept:
            artifacts.sweep(tmp_path)
            swept.append(path)
            assert not path.exists()
        return real(path)

    monkeypatch.setattr(artifacts, "_lock", lock)
    write_atomic(tmp_path / "a.txt", "one")
    assert (tmp_path / "a.txt").read_text() == "one"


def test_a_file_system_without_locks_loses_no_partial_path(tmp_path, monkeypatch):
    def flock(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with partial_path(tmp_path / "a.txt") as aside:
        write_atomic(tmp_path / "a.txt", "one")
        assert aside.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_without_replace_a_complete_directory_stays(tmp_path):
    def write(text):
        with writing(tmp_path / "out", kind="sample", replace=False) as draft:
            (draft.path / "a.txt").write_text(text)

    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.txt").write_text("no manifest")
    for text in ("one", "two"):
        write(text)
        assert (tmp_path / "out" / "a.txt").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_keep_adds_to_the_existing_files(tmp_path):
    make(tmp_path / "out")
    before = (tmp_path / "out" / "part" / "a.txt").stat()
    with writing(tmp_path / "out", kind="sample", keep=True) as draft:
        (draft.path / "b.txt").write_text("two")
    assert sorted(read_manifest(tmp_path / "out", verify=True).files) == ["b.txt", "part/a.txt"]
    assert (tmp_path / "out" / "part" / "a.txt").stat().st_ino == before.st_ino


def manifest(**changes: object) -> Callable[[Path], object]:
    def write(out: Path) -> None:
        file = out / "manifest.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return write


DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (lambda out: (out / "manifest.json").unlink(), "not a complete output"),
    (lambda out: (out / "part" / "a.txt").unlink(), "missing, or its size differs"),
    (lambda out: (out / "part" / "a.txt").write_text("three"), "missing, or its size differs"),
    (lambda out: (out / "part" / "a.txt").write_text("oen"), "altered since it was written"),
    (manifest(kind="encoder"), "is of kind 'encoder', expected 'sample'"),
]
OTHER_SCHEMA = r"json: schema .* is not supported, this version .* reads 1; run the"
DAMAGES += [(manifest(schema=schema), OTHER_SCHEMA) for schema in (99, 0, "2", None, [1])]


def text(content: str) -> Callable[[Path], object]:
    return lambda out: (out / "manifest.json").write_text(content)


DAMAGES += [(text(content), "damaged") for content in ("{", "[1]", "5", '{"kind": "sample"}', '"a"')]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_damaged_files_and_other_kinds_and_schemas_are_reported(tmp_path, damage, message):
    make(tmp_path / "out")
    damage(tmp_path / "out")
    with pytest.raises(SchemaError if "schema" in message else ArtifactError, match=message):
        read_manifest(tmp_path / "out", kind="sample", verify=True)


def test_a_full_disk_is_reported_with_one_message(tmp_path, monkeypatch):
    write_atomic(tmp_path / "a", "old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(artifacts.os, "fsync", full)
    with pytest.raises(ArtifactError, match="No space left on device.*free space"):
        write_atomic(tmp_path / "a", "new")
    with pytest.raises(ArtifactError, match="No space left on device.*free space"):
        make(tmp_path / "out")
    assert (tmp_path / "a").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_the_digest_depends_on_names_and_contents_only(tmp_path):
    make(tmp_path / "first")
    time.sleep(0.01)
    make(tmp_path / "second")
    make(tmp_path / "third", "other")
    first, second, third = (read_manifest(tmp_path / name).digest for name in ("first", "second", "third"))
    assert first == second != third
    assert digest_tree(tmp_path / "first" / "part") == digest_tree(tmp_path / "second" / "part")
