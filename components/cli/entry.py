"""The command `headstart` as an installed program.

Within a run, the flow names a socket (`flows.warm`), on which it is asked for a process that has imported the libraries
of the stage already. The command of the stage, as DVC starts it, then only waits for the exit code of that process.
"""

import json
import os
import socket
import sys
from collections.abc import Sequence

#: Environment variable with the path of the socket. Without it a stage is executed by its own process.
SOCKET = "HEADSTART_STAGE_SOCKET"


def main() -> None:
    """Entry point of the command `headstart`."""
    address = os.environ.pop(SOCKET, "")
    if address and sys.argv[1:2] == ["stage"] and (code := _passed_on(address)) is not None:
        if code < 0:
            os.kill(os.getpid(), -code)
        sys.exit(code)
    if sys.argv[1:]:
        _hand_over(sys.argv[1], sys.argv[2:])
    from components.cli.main import main as command

    command()


def _hand_over(verb: str, arguments: Sequence[str]) -> None:
    """Become the program of `flows` that a subcommand stands for, without the imports of all subcommands."""
    from importlib.util import find_spec

    from components.cli.programs import FLOWS, program_of

    # `why --document` reads files only. Without a package the command says what is missing.
    is_flow = verb in FLOWS or (verb == "why" and not any(each.startswith("--document") for each in arguments))
    if is_flow and find_spec("prefect") is not None and find_spec("fcntl") is not None:
        os.execv(sys.executable, [sys.executable, "-m", f"flows.{program_of(verb)}", *arguments])


def _passed_on(address: str) -> int | None:
    """The exit code of the process that has executed this command, negative after a signal; None if the run is
    gone."""
    # The import of pathlib would take as long as all others.
    directory = os.getcwd()  # noqa: PTH109
    request = {"arguments": sys.argv[1:], "directory": directory, "environment": dict(os.environ)}
    message = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(address)
        except OSError:
            return None
        socket.send_fds(connection, [len(message).to_bytes(8, "big")], [1, 2])
        connection.sendall(message)
        answer = connection.recv(16)
    # Without an answer the run has been killed, and the process with it.
    return int(answer or 1)


if __name__ == "__main__":
    main()
