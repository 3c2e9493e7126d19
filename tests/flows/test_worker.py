"""The forks of the worker are what the commands would be as processes of their own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from flows import processes, worker
from flows.processes import CommandTimeoutError, run, working
from flows.repository import environment

from .conftest import dvc, is_running

#: A module of the test; the worker's directory is on its path.
MODULE = """
import os, signal, subprocess, sys, time
print(sys.argv[1:], os.getcwd(), os.environ.get("GIVEN"), os.getsid(0) == os.getpid(), flush=True)
print("to stderr", file=sys.stderr)
action = sys.argv[1]
if action == "raise": raise ValueError("a defect")
if action == "text": sys.exit("a message")
if action == "kill": os.kill(os.getpid(), signal.SIGKILL)
if action == "hang":
    print(subprocess.Popen(["sleep", "600"], start_new_session=True).pid, os.getpid(), flush=True)
    time.sleep(600)
sys.exit(int(action))
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a worker that may execute the module `given`."""
    (tmp_path / "given.py").write_text(MODULE)
    monkeypatch.setattr(worker, "CLI", "given")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    with working(tmp_path, [], environment={**environment(tmp_path), "PYTHONPATH": path}):
        yield tmp_path


def execute(root: Path, *arguments: str, limit_s: float = 60) -> tuple[int, list[str]]:
    lines: list[str] = []
    command, variables = [sys.executable, "-m", "given", *arguments], {**os.environ, "GIVEN": "value"}
    code = run(command, directory=root, environment=variables, limit_s=limit_s, on_line=lines.append)
    return code, lines


def test_arguments_environment_output_and_exit_code(root):
    for action, code, last in (
        ("0", 0, "to stderr"),
        ("3", 3, "to stderr"),
        ("raise", 1, "ValueError: a defect"),
        ("text", 1, "a message"),
        ("kill", -9, "to stderr"),
    ):
        ended, lines = execute(root, action, "a b")
        assert (ended, lines[-1]) == (code, last)
        assert lines[:2] == [f"{[action, 'a b']} {root} value True", "to stderr"]


def test_a_time_limit_ends_children_in_every_session(root, monkeypatch):
    lines: list[str] = []
    command = [sys.executable, "-m", "given", "hang"]
    with pytest.raises(CommandTimeoutError):
        run(command, directory=root, environment=os.environ, limit_s=3, on_line=lines.append)
    child, fork = map(int, lines[-1].split())
    assert not is_running(child) and not is_running(fork)
    assert execute(root, "0")[0] == 0, "the worker is at its next request"


def test_without_its_worker_a_command_is_a_process_of_its_own(root):
    (process,) = processes.WORKERS
    process._process.kill()
    process._process.wait()
    assert execute(root, "3") == (3, [f"['3'] {root} value True", "to stderr"])


def test_a_command_whose_worker_is_killed_was_killed(root):
    (process,) = processes.WORKERS
    killed: list[int] = []

    def kill(line):
        if line[0].isdigit() and not killed:
            killed.extend(map(int, line.split()))
            process._process.kill()

    command = [sys.executable, "-m", "given", "hang"]
    assert run(command, directory=root, environment=os.environ, limit_s=60, on_line=kill) == -9
    assert not any(map(is_running, killed))


def test_an_environment_that_is_too_large_for_a_message(root):
    lines: list[str] = []
    variables = {**os.environ, **{f"LARGE{number}": "x" * 100_000 for number in range(8)}}
    command = [sys.executable, "-m", "given", "0"]
    assert run(command, directory=root, environment=variables, limit_s=60, on_line=lines.append) == 0 and lines


def test_only_the_commands_of_a_run_are_forks():
    python = sys.executable
    assert worker.can_execute([python, "-m", "dvc", "repro"]) and worker.can_execute([python, "-m", "components.cli"])
    for command in (["git", "status"], [python, "-m", "flows.retrain_command"], [python, "-c", "print()"], [python]):
        assert not worker.can_execute(command)


def test_a_stage_is_a_fork_in_the_session_of_dvc(project):
    """Its digests are those that `dvc repro` writes without a worker."""
    stage = "\n".join(
        [
            "import os, sys",
            "from pathlib import Path",
            "Path('where').write_text(f'{os.getsid(0)} {os.getppid()} {sys.argv[1:]}')",
            "Path('made').write_text('made')",
        ]
    )
    (project / "components").mkdir()
    (project / "components" / "__init__.py").write_text("")
    (project / "components" / "cli.py").write_text(stage)
    (project / "dvc.yaml").write_text("stages:\n  made:\n    cmd: headstart stage made\n    outs: [made]\n")
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from flows import worker\n"
        "sys.path.insert(0, os.getcwd())\n"
        "[sys.modules.pop(name) for name in [*sys.modules] if name.startswith('components')]\n"
        "print(os.getpid(), flush=True)\n"
        "worker.execute('dvc', ['repro', '--quiet'], os.getcwd(), dict(os.environ))"
    )
    command = [sys.executable, "-c", script, str(Path(__file__).parents[2])]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, start_new_session=True)
    assert done.returncode == 0, done.stderr
    pid = done.stdout.split()[0]
    assert (project / "where").read_text() == f"{pid} {pid} ['stage', 'made']"
    assert "didn't change" in dvc(project, "repro")


def test_the_worker_ends_with_its_run(tmp_path):
    script = (
        "import time; from pathlib import Path; from flows.processes import WORKERS, working\n"
        "from flows.repository import environment\n"
        "with working(Path(), [], environment=environment(Path())):\n"
        "    print(WORKERS[0]._process.pid, flush=True)\n"
        "    time.sleep(600)"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    process = psutil.Process(int(owner.stdout.readline()))
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    end = time.monotonic() + 60
    while is_running(process.pid):
        assert time.monotonic() < end
        time.sleep(0.05)
