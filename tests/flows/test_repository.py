"""The pipeline of a settings file, and the locks of a repository."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from components.core.errors import ConfigError
from flows.repository import active_run, find_root, locked, pipeline_of, release_dvc_locks

HOLD = """
import sys, time
from pathlib import Path
from flows.repository import locked
with locked(Path(sys.argv[1]), what="retrain a", say=print):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "params.yaml").write_text("run: {}\n")
    return tmp_path


def test_the_root_is_the_nearest_repository(root, tmp_path_factory):
    (root / "a" / "b").mkdir(parents=True)
    assert find_root(root / "a" / "b") == root
    with pytest.raises(ConfigError, match="not in a DVC repository; run the command in"):
        find_root(tmp_path_factory.mktemp("outside"))


def test_settings_files_outside_of_the_repository_or_with_another_name(root, tmp_path_factory):
    with pytest.raises(ConfigError, match=r"missing/params.yaml: does not exist; name the settings file"):
        pipeline_of(root / "missing" / "params.yaml", root=root)
    for file in (root / "other.yaml", tmp_path_factory.mktemp("elsewhere") / "params.yaml"):
        file.write_text("run: {}\n")
        with pytest.raises(ConfigError, match="must be called params.yaml and be in"):
            pipeline_of(file, root=root)


def test_a_second_run_waits_and_names_the_holder(root):
    first = subprocess.Popen([sys.executable, "-c", HOLD, str(root)], stdout=subprocess.PIPE, text=True)
    printed: list[str] = []
    entered = threading.Event()

    def second():
        with locked(root, what="retrain b", say=printed.append, poll_s=0.05):
            entered.set()

    waiting = threading.Thread(target=second)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        waiting.start()
        deadline = time.monotonic() + 20
        while not printed and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not entered.is_set()
        run = active_run(root)
        assert run is not None and run.startswith(f"retrain a (process {first.pid}, since 20")
    finally:
        # SIGKILL of the holder releases the lock.
        first.kill()
        first.wait()
    waiting.join(timeout=20)
    assert entered.is_set()
    assert len(printed) == 1
    assert printed[0].startswith(f"waiting: retrain a (process {first.pid}, since 20")
    assert active_run(root) is None


def dvc_locks(root: Path, **locks: object) -> Path:
    table = root / ".dvc" / "tmp" / "rwlock"
    table.parent.mkdir(exist_ok=True)
    table.write_text(json.dumps(locks))
    return table


def test_entries_of_ended_processes_are_removed_from_the_locks_of_dvc(root):
    """A zombie, a process that is not DVC, and a DVC process that has started after the table was written."""
    zombie = subprocess.Popen(["true"])
    while psutil.Process(zombie.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    program = root / "dvc"
    program.write_text("#!/bin/sh\nsleep 600\n")
    program.chmod(0o755)
    holder = subprocess.Popen([program], start_new_session=True)
    try:
        holders = {pid: {"pid": pid, "cmd": "dvc repro"} for pid in (zombie.pid, os.getpid(), holder.pid)}
        table = dvc_locks(
            root,
            read={"a": [holders[zombie.pid], holders[holder.pid]], "b": [holders[os.getpid()]]},
            write={"c": holders[zombie.pid], "d": holders[holder.pid]},
        )
        release_dvc_locks(root)
        kept = {"read": {"a": [holders[holder.pid]]}, "write": {"d": holders[holder.pid]}}
        assert json.loads(table.read_text()) == kept

        hour_ago = time.time() - 3600
        os.utime(table, (hour_ago, hour_ago))
        release_dvc_locks(root)
        assert json.loads(table.read_text()) == {"read": {}, "write": {}}
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.wait()
        zombie.wait()


def test_a_table_of_locks_that_was_not_written_completely_is_removed(root):
    release_dvc_locks(root)
    for text in ('{"read": {"a', "[]", '{"read": {"a": [{}]}}'):
        table = dvc_locks(root)
        table.write_text(text)
        with locked(root, what="a", say=print):
            assert not table.exists()
