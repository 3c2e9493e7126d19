"""DVC for a whole run: one process, which imports it once: `python -m flows.dvc_process FD PARENT`. A process of its
own, because DVC takes locks by process id, depends on the working directory and configures logging. FD: a socket with
requests, each a JSON object on a line; the answers are JSON, one a line. Messages of DVC and the output of stages go to
the standard output."""

import json
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from dvc.repo import Repo

from components.core.environment import variables
from flows.bound import end_with
from flows.plan import compute_plan, of_dvc

#: Exit code of DVC after an error.
FAILED: Final = 255


def plan(pipeline: str) -> dict[str, Any]:
    """The plan of a dvc.yaml (`flows.plan`)."""
    return asdict(compute_plan(Path(pipeline)))


def add(path: str) -> None:
    """`dvc add PATH`."""
    with Repo() as repo:
        repo.add(path)


def reproduce(stage: str, force: bool) -> None:
    """`dvc repro --single-item STAGE`."""
    with Repo() as repo:
        repo.reproduce(targets=[stage], single_item=True, force=force)


ACTIONS: Final[Mapping[str, Callable[..., Any]]] = {"plan": plan, "add": add, "reproduce": reproduce}


def _causes(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        if str(error):
            yield str(error)
        error = error.__cause__


def answer(action: str, arguments: Mapping[str, Any]) -> tuple[int, Any]:
    """Exit code and result of an action. An error is printed as DVC prints it."""
    try:
        return 0, ACTIONS[action](**arguments)
    except Exception as error:
        if not of_dvc(error):
            traceback.print_exc()
        print(f"ERROR: {': '.join(_causes(error))}", flush=True)
        return FAILED, None


def main(arguments: Sequence[str]) -> None:
    descriptor, parent = arguments
    end_with(int(parent), signal.SIGKILL)
    with socket.socket(fileno=int(descriptor)) as connection, connection.makefile("r", encoding="utf-8") as requests:
        for line in requests:
            action, given, environment = json.loads(line)
            with variables(environment):
                result = answer(action, given)
            connection.sendall(json.dumps(result).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1:])
