"""Serve the pages until SIGTERM or Ctrl-C."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import uvicorn

from components.errors import HeadstartError
from components.pages.app import create_app
from components.pages.project import Link, Project
from components.pages.security import Guard
from components.serving.server import LOCAL, TOKEN, listen

PORT = 5002
SHUTDOWN_S = 3


class PagesServer:
    """The server of the pages.

    Args:
        params: the settings file.
        root: of the repository.
        host: address to listen on.
        port: to listen on; 0: a free one.
        names: further names of this machine, which the header `Host` may have.
        write: whether labels are written.
        links: to other pages.

    Attributes:
        address: that a person opens; with the token, if there is one.

    Raises:
        RegistryError: the port is in use.
    """

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
        token = os.environ.get(TOKEN, "")
        if not token and host not in LOCAL:
            token = secrets.token_urlsafe(24)
        self._listener = listen(host, port)
        project = Project(params, root=root, write=write, links=links)
        everywhere = host in ("0.0.0.0", "::")
        own = [socket.gethostname(), socket.getfqdn()] if host not in LOCAL else []
        app = create_app(project, Guard.of(host, names=[*own, *names], token=token))
        self._pages = app.state.pages
        shown = socket.gethostname() if everywhere else f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self._listener.getsockname()[1]}/" + (f"?token={token}" if token else "")
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=SHUTDOWN_S, access_log=False)
        self._server = uvicorn.Server(config)
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
        """Release the port and the loaded models."""
        self._listener.close()
        self._pages.models.close()


def _connect(project: Project) -> None:
    with suppress(HeadstartError):
        project.registry()
