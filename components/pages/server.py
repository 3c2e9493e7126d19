"""Serve the pages until SIGTERM or Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import uvicorn

from components.core.errors import HeadstartError
from components.pages.app import create_app
from components.pages.project import Link, Project
from components.pages.security import Guard
from components.serving.http import address_of, configure, listen, names_of, token_for

PORT = 5002
SHUTDOWN_S = 3


class PagesServer:
    """The server of the pages. `address`: that a person opens; with the token, if there is one."""

    def __init__(
        self,
        params: Path,
        *,
        root: Path,
        host: str = "127.0.0.1",
        port: int = PORT,
        names: Sequence[str] = (),
        write: bool = False,
        links: Sequence[Link] = (),
    ) -> None:
        self._listener = listen(host, port)
        token = token_for(self._listener)
        project = Project(params, root=root, write=write, links=links)
        bound = self._listener.getsockname()[0]
        guard = Guard.of(bound, names=names_of(self._listener, host, names), token=token)
        self.address = f"{address_of(self._listener, host)}/" + (f"?token={token}" if token else "")
        self._server = uvicorn.Server(configure(create_app(project, guard), shutdown_seconds=SHUTDOWN_S))
        # The first connection to the registry imports MLflow, which takes seconds.
        threading.Thread(target=_connect, args=[project], name="connect", daemon=True).start()

    def run(self, *, started: Callable[[], None] = lambda: None) -> None:
        """Serve until a signal; `started` is called when connections are accepted."""
        self._listener.listen()
        started()
        try:
            self._server.run(sockets=[self._listener])
        finally:
            self.close()

    def stop(self) -> None:
        """End `run` from another thread."""
        self._server.should_exit = True

    def close(self) -> None:
        self._listener.close()


def _connect(project: Project) -> None:
    with suppress(HeadstartError):
        project.registry()
