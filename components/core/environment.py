"""Environment variables within a block, and the account that runs this process."""

import getpass
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """A block with these variables, for the child processes that it starts; the values before it are restored."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def who() -> str:
    """`user@host` of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
