"""The command `headstart` as an installed program."""

import os
import sys
from collections.abc import Sequence


def main() -> None:
    """Entry point of the command `headstart`."""
    if sys.argv[1:]:
        _hand_over(sys.argv[1], sys.argv[2:])
    from components.cli.main import main as command

    command()


def _hand_over(verb: str, arguments: Sequence[str]) -> None:
    """Become the program of `flows` that a subcommand stands for, without the imports of all subcommands."""
    from importlib.util import find_spec

    from components.cli.programs import FLOWS

    # `why --document` reads files only. Without a package the command says what is missing.
    is_flow = verb in FLOWS or (verb == "why" and not any(each.startswith("--document") for each in arguments))
    if is_flow and find_spec("prefect") is not None and find_spec("fcntl") is not None:
        os.execv(sys.executable, [sys.executable, "-m", "flows.command", verb, *arguments])


if __name__ == "__main__":
    main()
