"""Inputs of a job on a node without the driver's disk."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from components.artifacts import read_manifest, writing
from components.errors import TrainingError
from components.inputs import MANIFEST, PIECE, Fetch, Input, find_inputs, on_this_node, read_piece, trim
from components.settings.section import Section


class Leaf(Section):
    tokens: Path
    name: str = "a"


@dataclass(frozen=True)
class Job:
    leaves: tuple[Leaf, ...]
    table: Path
    relative: Path = Path("here")


def directory(path: Path, text: str) -> Path:
    with writing(path, kind="tokens") as draft:
        (draft.path / "part").mkdir()
        (draft.path / "part" / "0.txt").write_text(text)
        draft.facts["count"] = len(text)
    return path


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = directory(tmp_path / "driver" / "tokens", "some text")
    return Job((Leaf(tokens=made), Leaf(tokens=made / "part", name="b")), table=tmp_path / "driver" / "cache" / "table")


def never(digest: str, name: str, position: int) -> bytes:
    raise AssertionError("nothing is copied")


def from_folder(folder: Path, asked: list[str]) -> Fetch:
    def fetch(digest: str, name: str, position: int) -> bytes:
        asked.append(name)
        return read_piece(folder / name, position)

    return fetch


def test_inputs_are_the_complete_directories_that_a_job_names(job: Job) -> None:
    tokens = job.leaves[0].tokens
    assert find_inputs([job, job]) == [Input(tokens, read_manifest(tokens).digest)]


def test_a_node_that_has_the_same_directory_copies_nothing(job: Job, tmp_path: Path) -> None:
    job.table.parent.mkdir()
    assert on_this_node(job, find_inputs(job), never, cache=tmp_path / "node") == job


@pytest.mark.parametrize("state", ["absent", "another version"])
def test_another_node_copies_an_input_once(job: Job, tmp_path: Path, state: str) -> None:
    inputs, tokens, kept = find_inputs(job), job.leaves[0].tokens, tmp_path / "kept"
    digest = inputs[0].digest
    asked: list[str] = []
    tokens.rename(kept)
    if state == "another version":
        directory(tokens, "another text")
    there = on_this_node(job, inputs, from_folder(kept, asked), cache=tmp_path / "node")
    copied = tmp_path / "node" / "inputs" / digest
    assert [leaf.tokens for leaf in there.leaves] == [copied, copied / "part"]
    assert [leaf.name for leaf in there.leaves] == ["a", "b"]
    assert (there.leaves[1].tokens / "0.txt").read_text() == "some text"
    assert read_manifest(copied, verify=True) == read_manifest(kept)
    # A cache of the driver is one of the node.
    assert there.table.is_relative_to(tmp_path / "node") and there.relative == Path("here")
    assert asked == [MANIFEST, "part/0.txt"]
    assert on_this_node(job, inputs, never, cache=tmp_path / "node") == there


def test_an_input_that_changes_while_it_is_copied_is_refused(job: Job, tmp_path: Path) -> None:
    inputs, kept = find_inputs(job), tmp_path / "kept"
    job.leaves[0].tokens.rename(kept)
    (kept / "part" / "0.txt").write_text("other text")
    with pytest.raises(TrainingError, match=r"driver/tokens: cannot be copied to this node \(its files changed"):
        on_this_node(job, inputs, from_folder(kept, []), cache=tmp_path / "node")
    assert not list((tmp_path / "node" / "inputs").iterdir())


def test_files_are_read_in_pieces(tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as stream:
        stream.truncate(PIECE + 3)
    assert [len(read_piece(file, position)) for position in (0, PIECE, PIECE + 3)] == [PIECE, 3, 0]


def test_the_least_recently_used_inputs_are_removed(tmp_path: Path) -> None:
    for number, name in enumerate(("old", "used", "new")):
        os.utime(directory(tmp_path / name, name * 100) / MANIFEST, (number, number))
    trim(tmp_path, keep={tmp_path / "used"}, most=700)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "used"]
