"""The account that runs this process, as the ledger and other records name it."""

from __future__ import annotations

import getpass
import os
import socket


def who() -> str:
    """`user@host` of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
