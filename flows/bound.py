"""A command that ends with the process that started it (on Linux): `python -m flows.bound PARENT COMMAND...`."""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def bound(command: Sequence[str]) -> list[str]:
    """`command`, to be started by the main thread of this process, at whose end it gets SIGTERM."""
    return [sys.executable, "-m", "flows.bound", str(os.getpid()), *command]


def end_with(parent: int) -> None:
    """Let this process end with the process that has started it; at once if that has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)


def main() -> None:
    parent, *command = sys.argv[1:]
    end_with(int(parent))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
