"""Steps over shards: the same bytes in this process, in several processes and on Ray; resumed after kill -9."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from components.cluster import shards
from components.cluster.shards import Facts, Work, sharded
from components.core.artifacts import read_manifest
from components.data.ingestion import parts
from components.data.ingestion.documents import JUDGED
from components.data.ingestion.stage import IngestJob, ingest
from components.settings.cluster import ClusterSettings
from components.settings.data import CorpusSource, IngestSettings
from infra.stack import nodes
from tests.ray_nodes import connected_nodes

ROOT = Path(__file__).parents[1]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small sizes, so that a corpus has several parts."""
    monkeypatch.setattr(parts, "PART_BYTES", 20_000)


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch, small: None) -> None:
    """Work that is always divided."""
    monkeypatch.setattr(shards, "PARALLEL_BYTES", 0)
    monkeypatch.setattr(shards, "cores", lambda: 2)


def write_raw(folder: Path, *, files: int = 6, rows: int = 60) -> None:
    """Texts with exact and near duplicates within and across files."""
    source = random.Random(0)
    words = ["".join(source.choices("abcdefghij", k=source.randint(2, 9))) for _ in range(500)]
    texts = [" ".join(source.choices(words, k=40)) for _ in range(files * rows * 3 // 4)]
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        chosen = [source.choice(texts) + source.choice(["", " more"]) for _ in range(rows)]
        lines = (json.dumps({"text": text}) + "\n" for text in [*chosen, "", "x"])
        (folder / f"{number}.jsonl").write_text("".join(lines))


def job(folder: Path, output: str, **cluster: Any) -> IngestJob:
    return IngestJob(
        name="test",
        source=CorpusSource(path=str(folder / "raw")),
        settings=IngestSettings(min_characters=2, heldout=0.1),
        output=folder / output,
        cluster=ClusterSettings(storage=str(folder / f"{output}-storage"), **cluster),
    )


def digest(output: Path) -> str:
    return read_manifest(output, verify=True).digest


def shuffled(seed: int) -> Callable[..., Iterator[tuple[int, Facts]]]:
    def run(function: Callable[[Any], Facts], steps: Sequence[Any], **_: Any) -> Iterator[tuple[int, Facts]]:
        order = list(range(len(steps)))
        random.Random(seed).shuffle(order)
        for index in order:
            yield index, function(steps[index])

    return run


def test_the_bytes_do_not_depend_on_processes_and_order(tmp_path, monkeypatch, small):
    write_raw(tmp_path / "raw")
    here = digest(ingest(job(tmp_path, "here")))
    facts = read_manifest(tmp_path / "here").facts
    assert len(facts["shards"]["train"]) > 2
    assert min(count for reason, count in facts["counts"]["dropped"].items() if reason != JUDGED) > 5
    monkeypatch.setattr(shards, "PARALLEL_BYTES", 0)
    monkeypatch.setattr(shards, "cores", lambda: 2)
    assert digest(ingest(job(tmp_path, "processes"))) == here
    for seed in range(3):
        monkeypatch.setattr(shards, "map_parallel", shuffled(seed))
        assert digest(ingest(job(tmp_path, f"order-{seed}"))) == here
    # The work folders of finished stages are gone.
    assert not [path for path in tmp_path.glob("*-storage/*") if path.is_dir()]


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_the_bytes_do_not_depend_on_the_workers_of_a_cluster(tmp_path, monkeypatch, many, workers):
    write_raw(tmp_path / "raw")
    here = digest(ingest(job(tmp_path, "here", launcher="local")))
    with connected_nodes([{"num_cpus": 1}] * workers, monkeypatch=monkeypatch):
        assert digest(ingest(job(tmp_path, "there", address="auto"))) == here


def once(item: tuple[str, int], key: str, work: Work) -> Facts:
    """Kills its process at the first call for the item 3."""
    folder, number = Path(item[0]), item[1]
    with (folder / f"{number}").open("a") as file:
        file.write("x")
    if number == 3 and (folder / "3").stat().st_size == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"number": number}


def test_a_killed_process_loses_only_the_steps_in_flight(tmp_path, many):
    calls = tmp_path / "calls"
    calls.mkdir()
    settings = ClusterSettings(storage=str(tmp_path / "storage"))
    with sharded(tmp_path / "output", settings=settings, size=1) as steps:
        done = steps.map(once, {f"key-{number}": (str(calls), number) for number in range(8)})
    assert done == [{"number": number} for number in range(8)]
    assert sum(path.stat().st_size for path in calls.iterdir()) <= 8 + os.cpu_count()


def test_a_finished_step_is_not_computed_again(tmp_path):
    settings = ClusterSettings(storage=str(tmp_path / "storage"))

    def run(steps):
        return steps.map(failing, {"a": (str(tmp_path), 1), "b": (str(tmp_path), 2)})

    with pytest.raises(RuntimeError), sharded(tmp_path / "output", settings=settings, size=0) as steps:
        run(steps)
    (tmp_path / "repaired").touch()
    with sharded(tmp_path / "output", settings=settings, size=0) as steps:
        assert run(steps) == [{"calls": 1}, {"calls": 2}]


def failing(item: tuple[str, int], key: str, work: Work) -> Facts:
    """Fails for the item 2 until a file exists."""
    folder = Path(item[0])
    with (folder / key).open("a") as file:
        file.write("x")
    if item[1] == 2 and not (folder / "repaired").exists():
        raise RuntimeError
    return {"calls": (folder / key).stat().st_size}


DRIVER = """
import sys
from pathlib import Path
from components.cluster import shards
from components.data.ingestion import parts
from tests.test_shards import ingest, job
parts.PART_BYTES, shards.PARALLEL_BYTES = 20_000, int(sys.argv[2])
ingest(job(Path(sys.argv[1]), "out"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("processes", [False, True])
def test_a_killed_driver_continues_with_the_missing_steps(tmp_path, small, processes):
    write_raw(tmp_path / "raw", files=20)
    expected = digest(ingest(job(tmp_path, "here")))
    command = [sys.executable, "-c", DRIVER, str(tmp_path), "0" if processes else str(2**40)]
    storage = tmp_path / "out-storage"
    kept: dict[Path, int] = {}
    for steps in (3, 25):
        driver = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while driver.poll() is None and len(finished(storage)) < steps:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        driver.kill()
        driver.wait()
        assert not (tmp_path / "out" / "manifest.json").exists()
        # Steps that an earlier process has finished are as it left them.
        assert kept.items() <= finished(storage).items()
        kept = finished(storage)
        assert len(kept) >= steps
    subprocess.run(command, cwd=ROOT, check=True)
    assert digest(tmp_path / "out") == expected


def finished(storage: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in storage.glob("shards-*/[!.]*.json")}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_node_or_head_loses_only_the_steps_in_flight(tmp_path, small):
    write_raw(tmp_path / "raw", files=20)
    expected = digest(ingest(job(tmp_path, "here")))
    command = [sys.executable, "-c", DRIVER, str(tmp_path), "0"]
    kept: dict[Path, int] = {}
    for number, killed in enumerate(("node", "head", "")):
        folder = tmp_path / f"cluster-{number}"
        folder.mkdir()
        # A driver ends when it has not reached the head for this time, 60 s by default.
        cluster = nodes.Cluster(folder, (), {"RAY_gcs_rpc_server_reconnect_timeout_s": "15"})
        try:
            members = {"head": cluster.started[0], "node": cluster.node("first")}
            cluster.node("second")
            with (folder / "driver.log").open("wb") as log:
                driver = subprocess.Popen(command, cwd=ROOT, env=cluster.variables, stderr=log)
            while killed and driver.poll() is None and len(finished(tmp_path / "out-storage")) < 6 * (number + 1):
                time.sleep(0.01)
            if killed:
                kept = finished(tmp_path / "out-storage")
                nodes.kill_tree(members[killed].pid)
            # Without a node the run goes on; without the head it ends.
            if killed == "node":
                while driver.poll() is None and len(finished(tmp_path / "out-storage")) < len(kept) + 4:
                    time.sleep(0.01)
                driver.kill()
            try:
                code = driver.wait(300)
            except subprocess.TimeoutExpired:
                driver.kill()
                pytest.fail(f"{killed or 'nothing'} killed: {(folder / 'driver.log').read_text()}")
            assert (code == 0) == (not killed)
            assert kept.items() <= finished(tmp_path / "out-storage").items() or not killed
        finally:
            cluster.close()
    assert digest(tmp_path / "out") == expected


@pytest.mark.slow
def test_steps_over_a_bucket(tmp_path, monkeypatch, many, s3):
    s3.create_bucket(Bucket="shards")
    write_raw(tmp_path / "raw", files=3)
    here = digest(ingest(job(tmp_path, "here")))
    # A cluster whose tasks run in this process.
    monkeypatch.setattr(shards, "map_parallel", shuffled(0))
    monkeypatch.setattr(shards.ray_cluster, "connected", lambda settings: shards.kept_processes())
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    away = job(tmp_path, "there", address="ray://elsewhere")
    away = away.model_copy(update={"cluster": away.cluster.model_copy(update={"storage": "s3://shards/work"})})
    assert digest(ingest(away)) == here
    # Only the names of folders are left.
    assert not sum(entry["Size"] for entry in s3.list_objects_v2(Bucket="shards").get("Contents", []))
