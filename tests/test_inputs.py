"""Inputs of a job on a node without the driver's disk."""

import multiprocessing
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from components.cluster.inputs import (
    MANIFEST,
    Fetch,
    Input,
    cache_bytes,
    find_inputs,
    on_this_node,
    trim,
)
from components.cluster.work import publish_inputs
from components.core.artifacts import read_manifest, writing
from components.core.errors import ArtifactError, ConfigError, TrainingError
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


def never(digest: str, name: str, target: Path) -> None:
    raise AssertionError("nothing is copied")


def from_folder(folder: Path, asked: list[str]) -> Fetch:
    def fetch(digest: str, name: str, target: Path) -> None:
        asked.append(name)
        shutil.copyfile(folder / name, target)

    return fetch


def test_inputs_are_the_complete_directories_that_a_job_names(job):
    tokens = job.leaves[0].tokens
    assert find_inputs([job, job]) == [Input(tokens, read_manifest(tokens).digest)]


def test_a_node_that_has_the_same_directory_copies_nothing(job, tmp_path):
    job.table.parent.mkdir()
    assert on_this_node(job, find_inputs(job), never, cache=tmp_path / "node") == job


@pytest.mark.parametrize("state", ["absent", "another version"])
def test_another_node_copies_an_input_once(job, tmp_path, state):
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


def test_from_a_folder_that_all_nodes_mount_inputs_are_read_in_place(job, tmp_path):
    tokens, storage = job.leaves[0].tokens, tmp_path / "storage"
    (published,) = publish_inputs(find_inputs(job), str(storage))
    tokens.rename(tmp_path / "kept")
    there = on_this_node(job, [published], never, cache=tmp_path / "node")
    assert there.leaves[0].tokens.is_relative_to(storage)
    assert read_manifest(there.leaves[0].tokens, verify=True).digest == published.digest
    assert (there.leaves[1].tokens / "0.txt").read_text() == "some text"
    # One whose copy was interrupted has no manifest.
    (there.leaves[0].tokens / MANIFEST).unlink()
    copied = on_this_node(job, [published], from_folder(tmp_path / "kept", []), cache=tmp_path / "node")
    assert copied.leaves[0].tokens.is_relative_to(tmp_path / "node")


def test_an_input_that_exceeds_the_cache_is_refused(away, tmp_path, monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE_GB", "8e-9")
    with pytest.raises(TrainingError, match=r"tokens: cannot be copied .*set HEADSTART_CACHE_GB, or cluster.storage"):
        on_this_node(away[0], away[1], from_folder(away[2], []), cache=tmp_path / "node")


@pytest.mark.parametrize("given", ["fifty", "0", "-1", "nan", "inf"])
def test_an_invalid_size_of_the_cache(given, monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE_GB", given)
    with pytest.raises(ConfigError, match=f"HEADSTART_CACHE_GB: '{given}' is not a positive number of gigabytes"):
        cache_bytes()


def test_an_input_that_changes_while_it_is_copied_is_refused(job, tmp_path):
    inputs, kept = find_inputs(job), tmp_path / "kept"
    job.leaves[0].tokens.rename(kept)
    (kept / "part" / "0.txt").write_text("other text")
    with pytest.raises(TrainingError, match=r"driver/tokens: cannot be copied to this node \(its files changed"):
        on_this_node(job, inputs, from_folder(kept, []), cache=tmp_path / "node")
    assert not list((tmp_path / "node" / "inputs").iterdir())


def test_the_least_recently_used_inputs_are_removed(tmp_path):
    for number, name in enumerate(("old", "used", "new")):
        os.utime(directory(tmp_path / name, name * 100) / MANIFEST, (number, number))
    trim(tmp_path, keep={tmp_path / "used"}, most=700)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "used"]


@pytest.fixture
def away(job: Job, tmp_path: Path) -> tuple[Job, list[Input], Path]:
    """A job whose inputs are on another node: the job, its inputs, and their folder there."""
    inputs, kept = find_inputs(job), tmp_path / "kept"
    job.leaves[0].tokens.rename(kept)
    return job, inputs, kept


@pytest.mark.parametrize("planted", ["other content", "other weights", "altered", "a link"])
def test_planted_content_is_not_used(away, tmp_path, planted):
    job, inputs, kept = away
    target = tmp_path / "node" / "inputs" / inputs[0].digest
    target.parent.mkdir(parents=True)
    if planted == "other content":
        directory(target, "evil text")
    elif planted == "other weights":  # of the same size, below the right manifest
        shutil.copytree(kept, target)
        (target / "part" / "0.txt").write_text("evil text")
    elif planted == "a link":
        target.symlink_to(directory(tmp_path / "elsewhere", "evil text"))
    else:  # after this process has checked it
        on_this_node(job, inputs, from_folder(kept, []), cache=tmp_path / "node")
        (target / "part" / "0.txt").write_text("evil text")
    there = on_this_node(job, inputs, from_folder(kept, []), cache=tmp_path / "node")
    assert (there.leaves[1].tokens / "0.txt").read_text() == "some text" and not target.is_symlink()


def test_only_this_user_enters_the_cache(away, tmp_path, monkeypatch):
    job, inputs, kept = away
    cache = tmp_path / "node"
    cache.mkdir()
    cache.chmod(0o777)
    on_this_node(job, inputs, from_folder(kept, []), cache=cache)
    assert cache.stat().st_mode & 0o777 == 0o700
    (tmp_path / "link").symlink_to(cache)
    with pytest.raises(ArtifactError, match="link: is a link, or belongs to another user; remove it"):
        on_this_node(job, inputs, never, cache=tmp_path / "link")
    monkeypatch.setattr(os, "getuid", lambda: cache.stat().st_uid + 1)
    with pytest.raises(ArtifactError, match="node: is a link, or belongs to another user; remove it"):
        on_this_node(job, inputs, never, cache=cache)


def _worker(job: Job, inputs: list[Input], kept: Path, cache: Path, begin: Any) -> None:
    """A worker on the node; a fetch takes a while and leaves a file."""

    def fetch(digest: str, name: str, target: Path) -> None:
        (cache.parent / f"fetched-{os.getpid()}-{name.replace('/', '-')}").touch()
        time.sleep(0.1)
        shutil.copyfile(kept / name, target)

    begin.wait()
    there = on_this_node(job, inputs, fetch, cache=cache)
    assert (there.leaves[1].tokens / "0.txt").read_text() == "some text"
    # Without the exit hooks of libraries that earlier tests loaded: Prefect's fails in a fork.
    os._exit(0)


def test_workers_of_a_node_fetch_an_input_once(away, tmp_path):
    job, inputs, kept = away
    context = multiprocessing.get_context("fork")
    begin = context.Barrier(8)
    arguments = (job, inputs, kept, tmp_path / "node", begin)
    workers = [context.Process(target=_worker, args=arguments) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 8
    assert len(list(tmp_path.glob("fetched-*"))) == 2, "the manifest and the file, by one worker"
