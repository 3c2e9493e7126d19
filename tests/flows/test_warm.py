"""Processes of the server, and DVC's process, are what the commands would be as processes of their own."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from flows import warm
from flows.processes import CommandTimeoutError, Dvc, run, working
from flows.repository import environment

from .conftest import dvc, is_running

ROOT = Path(__file__).parents[2]
#: A module of the test; the server's directory is on its path.
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
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose module `given` stands in for the command `headstart`."""
    (tmp_path / "given.py").write_text(MODULE)
    monkeypatch.setattr(warm, "CLI", "given")
    monkeypatch.syspath_prepend(tmp_path)
    warm.serve([], environment(tmp_path))
    return tmp_path


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
        ended, lines = execute(root, action, "a b", "")
        assert (ended, lines[-1]) == (code, last)
        assert lines[:2] == [f"{[action, 'a b', '']} {root} value True", "to stderr"]


def test_a_time_limit_ends_children_in_every_session(root):
    lines: list[str] = []
    command = [sys.executable, "-m", "given", "hang"]
    with pytest.raises(CommandTimeoutError):
        run(command, directory=root, environment=os.environ, limit_s=3, on_line=lines.append)
    child, process = map(int, lines[-1].split())
    assert not is_running(child) and not is_running(process)
    assert execute(root, "0")[0] == 0, "the server is at its next request"


def test_an_environment_of_any_size(root):
    lines: list[str] = []
    variables = {**os.environ, **{f"LARGE{number}": "x" * 100_000 for number in range(8)}}
    command = [sys.executable, "-m", "given", "0"]
    assert run(command, directory=root, environment=variables, limit_s=60, on_line=lines.append) == 0 and lines


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
    "from flows.command import main\ndef command() -> None:\n    given.load()\nmain(command)",
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
import os, sys
from pathlib import Path
Path('where').write_text(f"{os.getpid()} {os.getsid(0)} {os.getppid()} {sys.argv[1:]}")
print('said', flush=True)
action = Path('action').read_text() if Path('action').exists() else ''
if action == 'kill': os.kill(os.getpid(), 9)
if action == 'hang': __import__('time').sleep(600)
if action: sys.exit(int(action))
Path('made').write_text(Path('read').read_text())
"""


@pytest.fixture
def stage(project: Path, root: Path) -> Path:
    """A repository with a stage that a process of the server executes."""
    (root / "given.py").write_text(STAGE)
    (project / "read").write_text("a")
    (project / "dvc.yaml").write_text(
        "stages:\n  made:\n    cmd: headstart stage made\n    deps: [read]\n    outs: [made]\n"
    )
    return project


def reproduce(dvc: Dvc, *, limit_s: float = 60, lines: list[str] | None = None) -> int:
    said = [] if lines is None else lines
    request = {"stage": "dvc.yaml:made", "force": False}
    return dvc.call("reproduce", request, variables={}, limit_s=limit_s, on_line=said.append)[0]


def test_one_process_for_dvc_and_one_of_the_server_for_each_stage(stage):
    """The lock file is the one that `dvc repro` writes, and the run cache is used."""
    with working(stage, environment=environment(stage)) as of_run:
        assert reproduce(of_run) == 0
        first = (stage / "where").read_text()
        process = of_run._process
        pid, session, parent, arguments = first.split(" ", 3)
        assert pid == session and arguments == "['stage', 'made']"
        assert "forkserver" in " ".join(psutil.Process(int(parent)).cmdline())
        (stage / "read").write_text("b")
        assert reproduce(of_run) == 0 and (stage / "made").read_text() == "b"
        (stage / "read").write_text("a")
        (stage / "where").unlink()
        lines: list[str] = []
        assert reproduce(of_run, lines=lines) == 0 and (stage / "made").read_text() == "a"
        assert any("is cached - skipping run" in line for line in lines) and not (stage / "where").exists()
        assert of_run._process is process
    assert process is not None and process.poll() is not None
    assert "didn't change" in dvc(stage, "repro")


@pytest.mark.parametrize(("action", "code"), [("3", "3"), ("kill", "-9|137")], ids=["status", "kill"])
def test_the_exit_code_of_a_stage_reaches_dvc(stage, action, code):
    (stage / "action").write_text(action)
    lines: list[str] = []
    with working(stage, environment=environment(stage)) as of_run:
        assert reproduce(of_run, lines=lines) == 255
    assert "said" in lines
    # A shell that waits for the command reports 128 + 9 where one that became the command reports the signal.
    assert re.fullmatch(rf"ERROR: failed to reproduce 'made': .*, exited with (?:{code})", lines[-1]), lines


@pytest.mark.parametrize("victim", ["limit", "dvc", "command"])
def test_nothing_of_a_stage_outlives_its_command(stage, victim):
    """After a time limit, and after SIGKILL of DVC or of the waiting command; the next call works."""
    (stage / "action").write_text("hang")
    lines: list[str] = []

    def kill(line: str) -> None:
        lines.append(line)
        if line == "said" and victim != "limit":
            assert of_run._process is not None
            dvc_process = psutil.Process(of_run._process.pid)
            (dvc_process if victim == "dvc" else dvc_process.children(recursive=True)[-1]).kill()

    with working(stage, environment=environment(stage)) as of_run:
        request = {"stage": "dvc.yaml:made", "force": False}
        arguments = {"variables": {}, "limit_s": 10 if victim == "limit" else 60, "on_line": kill}
        if victim == "limit":
            with pytest.raises(CommandTimeoutError):
                of_run.call("reproduce", request, **arguments)
        else:
            assert of_run.call("reproduce", request, **arguments)[0] != 0
        assert "said" in lines
        assert not is_running(int((stage / "where").read_text().split()[0]))
        (stage / "action").unlink()
        assert reproduce(of_run) == 0 and (stage / "made").read_text() == "a"


def test_the_processes_of_a_run_end_with_it(tmp_path):
    """SIGKILL of the run: its server, its stage and DVC's process end without another run."""
    (tmp_path / "given.py").write_text("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    script = (
        "import os, sys; from pathlib import Path; from flows import warm; from flows.processes import working\n"
        "from flows.repository import environment\n"
        "folder = Path(sys.argv[1]); sys.path.insert(0, str(folder)); given = environment(folder)\n"
        "with working(folder, environment=given) as dvc:\n"
        "    warm.serve([], given); dvc.start()\n"
        "    options = {'directory': folder, 'environment': given, 'output': 1, 'errors': 1}\n"
        "    process = warm.start('given', [], **options)\n"
        "    print(dvc._process.pid, flush=True); process.join()"
    )
    owner = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    started = [psutil.Process(int(owner.stdout.readline())) for _ in range(2)]
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    end = time.monotonic() + 60
    while any(is_running(process.pid) for process in started):
        assert time.monotonic() < end
        time.sleep(0.05)
