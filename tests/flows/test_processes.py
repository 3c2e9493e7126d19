"""Commands are groups of processes, of their own or of the run's server, that end as a whole; no line of output is
lost, and DVC knows what they made."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import yaml

from flows import command, execution, processes, retrain_command, warm
from flows.plan import Stage
from flows.processes import CommandTimeoutError, orphans, run
from flows.repository import environment
from flows.stages import reproduce
from flows.terminal import StageError
from tests.conftest import until

from .conftest import dvc, is_running

ROOT = Path(__file__).parents[2]
#: A module of the test; the server's directory is on its path. A daemon has left the session, so that it is not ended.
MODULE = """
import os, signal, subprocess, sys, time
print(sys.argv[1:], os.getcwd(), os.environ.get("GIVEN"), os.getsid(0) == os.getpid(), flush=True)
print("to stderr", file=sys.stderr, flush=True)
action = sys.argv[1]
if action == "raise": raise ValueError("a defect")
if action == "text": sys.exit("a message")
if action == "bytes": sys.stdout.buffer.write(b"a\\xff\\nlast\\n"); sys.exit()
if action == "kill": os.kill(os.getpid(), signal.SIGKILL)
if action == "open": print(subprocess.Popen(["sleep", "600"]).pid); sys.exit()
if action == "hang":
    started = [
        subprocess.Popen(["sleep", "600"]),
        subprocess.Popen(["sleep", "600"], start_new_session=True),
        subprocess.Popen(["sh", "-c", "trap '' TERM; while :; do sleep 1; done"]),
    ]
    print(*(each.pid for each in started), os.getpid(), flush=True)
    time.sleep(600)
sys.exit(int(action))
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose module `given` stands in for the command `headstart`."""
    (tmp_path / "given.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    warm.serve([], environment(tmp_path))
    return tmp_path


@pytest.fixture(params=["server", "own"])
def either(root: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, for processes of the run's server, and for processes of their own."""
    monkeypatch.setattr(warm, "is_serving", lambda: request.param == "server")
    monkeypatch.setattr(processes, "GRACE_S", 0.5)
    return root


def execute(root: Path, *arguments: str, limit_s: float = 60, lines: list[str] | None = None) -> tuple[int, list[str]]:
    lines = [] if lines is None else lines
    # Larger than a pipe.
    variables = {**os.environ, "GIVEN": "value", **{f"LARGE{number}": "x" * 100_000 for number in range(8)}}
    command = [sys.executable, "-m", "given", *arguments]
    return run(command, directory=root, environment=variables, limit_s=limit_s, on_line=lines.append), lines


@pytest.mark.parametrize(
    ("action", "code", "last"),
    [
        ("0", 0, "to stderr"),
        ("3", 3, "to stderr"),
        ("raise", 1, "ValueError: a defect"),
        ("text", 1, "a message"),
        ("bytes", 0, "last"),
        ("kill", -9, "to stderr"),
    ],
)
def test_arguments_environment_output_and_exit_code(either, action, code, last):
    ended, lines = execute(either, action, "a b", "")
    assert (ended, lines[-1]) == (code, last)
    assert lines[:2] == [f"{[action, 'a b', '']} {either} value True", "to stderr"]
    assert action != "bytes" or lines[-2] == "a\ufffd"


def test_a_time_limit_ends_children_in_every_session(either):
    lines: list[str] = []
    with pytest.raises(CommandTimeoutError):
        execute(either, "hang", limit_s=8, lines=lines)
    started = [int(pid) for pid in lines[-1].split()]
    assert len(started) == 4 and not any(map(is_running, started))
    assert execute(either, "0")[0] == 0, "the server is at its next request"


def test_a_child_that_keeps_the_pipe_open_neither_blocks_nor_survives(either):
    code, lines = execute(either, "open")
    assert code == 0 and not is_running(int(lines[-1]))


def test_an_exception_of_the_callback_ends_the_command(either, monkeypatch):
    seen: list[int] = []

    class Lines(list[str]):
        def append(self, line: str) -> None:
            if line.replace(" ", "").isdigit():
                seen.extend(map(int, line.split()))
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(either, "hang", lines=Lines())
    assert len(seen) == 4 and not any(map(is_running, seen))


@pytest.fixture
def busy() -> Iterator[None]:
    """Another thread of this process holds the interpreter lock and releases it only when it has to."""
    stopped = threading.Event()

    def loop() -> None:
        while not stopped.is_set():
            pass

    thread = threading.Thread(target=loop)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(0.3)
    thread.start()
    yield
    stopped.set()
    sys.setswitchinterval(interval)
    thread.join()


@pytest.mark.slow
def test_no_line_is_lost_while_another_thread_holds_the_interpreter_lock(tmp_path, busy):
    expected = [str(number) for number in range(1, 10_001)]
    for _ in range(20):
        lines: list[str] = []
        run(["seq", "10000"], directory=tmp_path, environment=os.environ, limit_s=60, on_line=lines.append)
        assert lines == expected


def test_a_daemon_that_keeps_writing_to_the_pipe_does_not_block(tmp_path):
    """The daemon has left the session, so it is not ended with the command."""
    daemon = "import os; open('daemon', 'w').write(str(os.getpid())); [print('chatter') for _ in iter(int, 1)]"
    script = f"""
import os, subprocess, sys, time
if os.fork() == 0:
    subprocess.Popen([sys.executable, "-c", {daemon!r}], start_new_session=True)
    os._exit(0)
while not os.path.exists("daemon") or not open("daemon").read():
    time.sleep(0.01)
print("last line")
"""
    try:
        lines: list[str] = []
        options = {"directory": tmp_path, "environment": dict(os.environ), "limit_s": 60}
        code = run([sys.executable, "-c", script], **options, on_line=lines.append)
        assert code == 0
        assert any("last line" in line for line in lines)
        assert "chatter" in lines
    finally:
        os.kill(int((tmp_path / "daemon").read_text()), signal.SIGKILL)


def test_a_killed_run_is_recognised_while_it_is_a_zombie_and_after_its_pid_is_reused(tmp_path):
    zombie = subprocess.Popen(["true"])
    while psutil.Process(zombie.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    first = subprocess.Popen(["sleep", "600"], env={processes.MARK: f"{zombie.pid} {tmp_path}"})
    # The second process gets its mark only once the process with the pid in it has started.
    script = f'read pid; {processes.MARK}="$pid {tmp_path}" exec sleep 600'
    second = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, text=True)
    time.sleep(0.3)
    younger = subprocess.Popen(["sleep", "600"])
    try:
        assert second.stdin is not None
        second.stdin.write(f"{younger.pid}\n")
        second.stdin.close()
        while psutil.Process(second.pid).name() != "sleep":
            time.sleep(0.01)
        assert {process.pid for process in orphans(tmp_path)} == {first.pid, second.pid}
    finally:
        for process in (first, second, younger):
            process.kill()
            process.wait()
        zombie.wait()


def test_ctrl_c_says_what_is_kept_and_how_to_go_on(monkeypatch, capsys):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(retrain_command, "command", interrupted)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    with pytest.raises(SystemExit) as ended:
        command.run("retrain", [])
    assert ended.value.code == 130
    shown = capsys.readouterr().out
    assert "are kept: `headstart retrain` goes on there\n" in shown


#: Loads a model that was pickled, as MLflow does; it creates a file if it is unpickled.
LOAD = """
def load():
    import mlflow.pyfunc
    try:
        mlflow.pyfunc.load_model(MODEL)
    except Exception as error:
        print("refused:", error)

"""
PICKLED = """
import sys
import mlflow.pyfunc

class Unpickled:
    def __reduce__(self):
        return open, (sys.argv[1] + "/unpickled", "w")

class Model(mlflow.pyfunc.PythonModel):
    def __init__(self):
        self.trap = Unpickled()

    def predict(self, context, model_input):
        return model_input

mlflow.pyfunc.save_model(sys.argv[1] + "/pickled", python_model=Model(), pip_requirements=[])
"""
PROCESSES = {
    "stage": None,
    "command": "import sys; sys.path.insert(0, sys.argv[1]); import given\n"
    "from components.cli import main\nmain.app = lambda: given.load()\nmain.main()",
    "flow": "import sys; folder = sys.argv.pop(1); sys.path.insert(0, folder); import given\n"
    "from components.cli import entry\nfrom flows import why\nwhy.command = lambda: given.load()\n"
    "sys.argv.append('why')\nentry.main()",
    "registry": "import sys; sys.path.insert(0, sys.argv[1]); import given\n"
    "import components.registry.tracking\ngiven.load()",
}


@pytest.fixture(scope="module")
def pickled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model that a user has pickled with MLflow."""
    folder = tmp_path_factory.mktemp("models")
    subprocess.run([sys.executable, "-c", PICKLED, str(folder)], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize("kind", PROCESSES)
def test_a_pickled_model_is_refused_in_every_process(kind, pickled, root):
    """Also if the user's environment allows it. `serve` and `predict` are commands."""
    script, lines = PROCESSES[kind], list[str]()
    (root / "given.py").write_text(LOAD.replace("MODEL", repr(str(pickled / "pickled"))) + "load()" * (script is None))
    command = [sys.executable, *(["-c", script, str(root)] if script else ["-m", "given"])]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "true"}
    assert run(command, directory=root, environment=variables, limit_s=200, on_line=lines.append) == 0, lines
    assert any(line.startswith("refused:") and "PICKLE" in line for line in lines), lines
    assert not (pickled / "unpickled").exists()


def test_nothing_of_the_environment_of_the_server_is_lost(root):
    (root / "given.py").write_text("import os; print(*map(os.environ.get, ('MLFLOW_DISABLE_TELEMETRY', 'GIVEN')))")
    assert execute(root) == (0, ["true value"])


#: A stage of the project below, which records how it is executed.
STAGE = """
import os
from pathlib import Path
Path('where').write_text(f"{os.getpid()} {os.getsid(0)}")
print('said', flush=True)
action = Path('action').read_text() if Path('action').exists() else ''
if action == 'kill': os.kill(os.getpid(), 9)
if action == 'hang': __import__('time').sleep(600)
if action: exit(int(action))
Path('made').write_text(Path('read').read_text())
"""
MADE = Stage("made", "dvc.yaml:made", limit_s=60)


@pytest.fixture
def stage(project: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a stage, the working directory."""
    monkeypatch.chdir(project)
    (project / "stage.py").write_text(STAGE)
    (project / "read").write_text("a")
    (project / "dvc.yaml").write_text(
        "stages:\n  made:\n    cmd: python stage.py\n    deps: [read]\n    outs: [made]\n"
    )
    return project


def test_dvc_knows_what_a_process_of_the_server_has_made(stage):
    """The lock file is the one that `dvc repro` writes, and the run cache is used."""
    assert reproduce(MADE) == "Completed"
    _, session = (stage / "where").read_text().split()
    assert int(session) != os.getsid(0)
    (stage / "read").write_text("b")
    assert reproduce(MADE) == "Completed" and (stage / "made").read_text() == "b"
    (stage / "read").write_text("a")
    (stage / "where").unlink()
    assert reproduce(MADE) == "Cached" and (stage / "made").read_text() == "a"
    assert reproduce(MADE) == "Skipped" and not (stage / "where").exists()
    assert "didn't change" in dvc(stage, "repro")
    recorded = (stage / "dvc.lock").read_text()
    (stage / "dvc.lock").unlink()
    dvc(stage, "repro", "--force")
    assert (stage / "dvc.lock").read_text() == recorded


def test_what_is_recorded_is_the_stage_that_has_run(stage):
    """dvc.yaml may change while a stage runs, and its command may be one for a shell."""
    file = stage / "dvc.yaml"
    file.write_text(file.read_text().replace("python stage.py", "python stage.py && sed -i s/read/gone/ dvc.yaml"))
    assert reproduce(MADE) == "Completed" and "gone" in file.read_text()
    (made,) = yaml.safe_load((stage / "dvc.lock").read_text())["stages"].values()
    assert [entry["path"] for entry in made["deps"]] == ["read"]


def test_a_stage_waits_while_another_command_holds_the_lock_of_dvc(stage):
    processes.STOPPED.clear()  # a test of an interrupted run has set it
    holder = "from dvc.repo import Repo\nwith Repo().lock: print('held', flush=True); input()"
    command = [sys.executable, "-c", holder]
    with subprocess.Popen(command, cwd=stage, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with ThreadPoolExecutor() as threads:
            outcome = threads.submit(reproduce, MADE)
            time.sleep(1)
            assert not outcome.done() and not (stage / "where").exists()
            other.communicate("\n")
            assert outcome.result() == "Completed"


@pytest.mark.parametrize(
    ("action", "why"), [("3", "exit code 3"), ("kill", "ended by signal 9|exit code 137")], ids=["status", "kill"]
)
def test_the_exit_code_of_a_stage_is_in_the_message(stage, action, why):
    # A shell that waits for the command says so and reports 128 + 9; one that became the command is killed itself.
    (stage / "action").write_text(action)
    with pytest.raises(StageError, match=rf"^made: (?:said|Killed) \((?:{why})\)$"):
        reproduce(MADE)


@pytest.mark.parametrize("victim", ["limit", "process"])
def test_nothing_of_a_stage_outlives_its_process(stage, victim, monkeypatch):
    """After a time limit, and after SIGKILL of its process; the next call works."""
    (stage / "action").write_text("hang")

    def kill(line: str, **_: object) -> None:
        if line == "said" and victim == "process":
            os.kill(int((stage / "where").read_text().split()[1]), signal.SIGKILL)

    why = "time limit" if victim == "limit" else "ended by signal 9"
    with monkeypatch.context() as patched, pytest.raises(StageError, match=why):
        patched.setattr(execution, "say", kill)
        reproduce(replace(MADE, limit_s=12) if victim == "limit" else MADE)
    assert not is_running(int((stage / "where").read_text().split()[0]))
    (stage / "action").unlink()
    assert reproduce(MADE) == "Completed" and (stage / "made").read_text() == "a"


def test_the_processes_of_a_run_end_with_it(tmp_path):
    """SIGKILL of the run: the processes of its server end without another run."""
    (tmp_path / "given.py").write_text("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    script = (
        "import os, sys; from pathlib import Path; from flows import warm\n"
        "folder = Path(sys.argv[1]); sys.path.insert(0, str(folder)); warm.serve([], os.environ)\n"
        "warm.start('given', [], directory=folder, environment=os.environ, output=1).join()"
    )
    owner = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    started = psutil.Process(int(owner.stdout.readline()))
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    until(lambda: not is_running(started.pid))
