"""A command that ends with the process that started it (on Linux): `python -m flows.bound SIGNAL PARENT COMMAND...`."""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def bound(command: Sequence[str], *, number: signal.Signals) -> list[str]:
    """`command`, to be started by the main thread of this process, which sends it the signal when it ends."""
    return [sys.executable, "-m", "flows.bound", number.name, str(os.getpid()), *command]


def end_with(parent: int, number: signal.Signals) -> None:
    """Let this process end with the process that has started it; at once if that has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        sys.exit(128 + number)


def main() -> None:
    number, parent, *command = sys.argv[1:]
    end_with(int(parent), signal.Signals[number])
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
