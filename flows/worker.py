"""A process that imports the libraries of a run once, and executes Python modules in forks of itself: imports take
longer than most stages. A fork has a session, working directory, environment and output of its own. The process of DVC
executes the command of a stage in a second fork, in the same session.

`python -m flows.worker FD`: FD is a socket with requests, each a JSON object: `import`: modules to import now; or
`module`, `arguments`, `directory` and `environment` of a process, with a descriptor for its output. The answers are its
id, and its exit code after its end unless it is one in the `background`.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from components.core import threads
from flows.bound import bound

#: Largest message in bytes; the kernel refuses larger ones than a quarter of it.
LIMIT = 2**20
DVC, HEADSTART = "dvc", "headstart"
#: The module of the command `headstart`.
CLI = "components.cli"
#: What `dvc repro` imports while it runs.
OF_DVC = (
    "dvc.repo.reproduce",
    *(f"dvc.repo.{name}" for name in ("artifacts", "datasets", "index", "metrics", "params", "plots", "stage")),
    *("dvc.cachemgr", "dvc.lock", "dvc.rwlock", "dvc.scm", "dvc.utils.strictyaml", "dvc.parsing.interpolate"),
    *("pyparsing", "scmrepo.git", "fsspec.implementations.memory"),
)
#: Characters that mean something to a shell: a command with one of them is left to it.
SHELL = frozenset("$`|&;<>()*?[]{}~#!\\\n'\"")


class Fork:
    """A process of the worker, with the parts of `subprocess.Popen` that `flows.processes` uses.

    Raises:
        ConnectionError: the worker has ended.
    """

    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers
        self._answers.setblocking(True)
        # Answers about an earlier process, whose end nobody waited for, come first.
        while "code" in (answer := _received(answers)):
            pass
        self.pid: int = answer["pid"]
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, if the process has ended; -9 if the worker has."""
        if self.returncode is None:
            self._answers.setblocking(False)
            try:
                self.returncode = _received(self._answers)["code"]
            except BlockingIOError:
                pass
            except ConnectionError:
                self.returncode = -signal.SIGKILL
        return self.returncode

    def kill(self) -> None:
        """End it, if it has not ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Worker:
    """The worker of this process; to be started by the main thread."""

    def __init__(self, root: Path, environment: Mapping[str, str]) -> None:
        self._socket, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with remote:
            command = [sys.executable, "-m", "flows.worker", str(remote.fileno())]
            self._process = subprocess.Popen(
                bound(command, number=signal.SIGKILL),
                cwd=root,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[remote.fileno()],
            )

    def prepare(self, modules: Sequence[str]) -> None:
        """Let it import modules while it has nothing to do."""
        self._socket.setblocking(True)
        self._socket.send(json.dumps({"import": list(modules)}).encode())

    def start(
        self,
        command: Sequence[str],
        *,
        directory: Path,
        environment: Mapping[str, str],
        output: int,
        background: bool = False,
    ) -> Fork:
        """Execute `PYTHON -m MODULE ARGUMENT ...`.

        Args:
            output: descriptor for both streams.
            background: whether further commands are executed before its end, of which it then gives no notice.

        Raises:
            OSError: the worker has ended, or the environment is too large for a message.
        """
        _, _, module, *arguments = command
        request = {
            "module": module,
            "arguments": arguments,
            "directory": str(directory),
            "environment": {**environment},
            "background": background,
        }
        self._socket.setblocking(True)
        socket.send_fds(self._socket, [json.dumps(request).encode()], [output])
        return Fork(self._socket)

    def close(self) -> None:
        """End it."""
        self._socket.close()
        self._process.kill()
        self._process.wait()


def can_execute(command: Sequence[str]) -> bool:
    return [*command[:2]] == [sys.executable, "-m"] and command[2] in (DVC, CLI, "flows.plan")


def _received(connection: socket.socket) -> dict[str, Any]:
    if not (message := connection.recv(LIMIT)):
        raise ConnectionResetError
    received: dict[str, Any] = json.loads(message)
    return received


def serve(requests: socket.socket) -> None:
    """Execute requests one after the other, until the other side ends."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, LIMIT, 1)
        if not message:
            return
        request = json.loads(message)
        if "import" in request:
            prepare(request["import"])
            continue
        background = request.pop("background")
        pid = os.fork()
        if not pid:
            requests.close()
            os.setsid()
            for stream in (1, 2):
                os.dup2(descriptors[0], stream)
            os.close(descriptors[0])
            # Ends this process.
            execute(**request)
        os.close(descriptors[0])
        requests.send(json.dumps({"pid": pid}).encode())
        if not background:
            requests.send(json.dumps({"pid": pid, "code": _code(pid)}).encode())


def prepare(modules: Sequence[str]) -> None:
    """Import DVC's commands and other modules, and parse the code that stages reach, for their identities."""
    from dvc.cli import parse_args

    from components.pipeline.code_identity import closure
    from components.pipeline.stages import STAGES

    parse_args(["repro"])
    for module in (*OF_DVC, f"{CLI}.main", *modules):
        importlib.import_module(module)
    for module in {stage.module for stage in STAGES.values()} & {*modules}:
        closure(module)
    # A collection in a fork would copy the pages of all objects.
    gc.collect()
    gc.freeze()


def _code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def execute(module: str, arguments: Sequence[str], directory: str, environment: Mapping[str, str]) -> NoReturn:
    """Execute a module as `python -m MODULE ARGUMENT ...` and end this process with its exit code."""
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    if module == DVC:
        _execute_stages_in(_spare())
    sys.argv = [module, *arguments]
    code: str | int | None = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    # What the interpreter does at its end, except that it destroys all objects of the imported libraries.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def _spare() -> Callable[[Mapping[str, Any]], int]:
    """A fork made before DVC has threads, which waits for one request: a function request -> its exit code."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if not pid:
        here.close()
        message = there.recv(LIMIT)
        there.close()
        if not message:
            os._exit(0)
        execute(**json.loads(message))
    there.close()

    def run(request: Mapping[str, Any]) -> int:
        here.send(json.dumps(request).encode())
        return _code(pid)

    return run


def _execute_stages_in(spare: Callable[[Mapping[str, Any]], int]) -> None:
    """Let DVC execute the first `headstart` command of a stage in a fork; other commands stay with the shell."""
    from dvc.stage import run as runner
    from dvc.stage.exceptions import StageCmdFailedError

    by_shell, left = runner._run, [spare]

    def run(executable: str | None, cmd: str, **options: Any) -> None:
        if SHELL & {*cmd} or not cmd.startswith(f"{HEADSTART} ") or not left:
            by_shell(executable, cmd, **options)
            return
        _, *arguments = shlex.split(cmd)
        directory, environment = str(options["cwd"]), dict(options["env"])
        request = {"module": CLI, "arguments": arguments, "directory": directory, "environment": environment}
        if code := left.pop()(request):
            raise StageCmdFailedError(cmd, code)

    runner._run = run


def main() -> None:
    threads.prepare()
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        serve(requests)


if __name__ == "__main__":
    main()
