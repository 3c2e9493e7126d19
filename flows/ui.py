"""The web pages of a repository (`components.pages`), and on request MLflow's and Prefect's, which shows all runs; all
served on 127.0.0.1 until the command ends."""

import os
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from components.cli.common import PARAMS, ParamsFile, flags
from components.core.artifacts import private
from components.core.errors import ConfigError
from components.pages.app import PORT as PAGES_PORT
from components.pages.app import SHUTDOWN_S, PagesServer
from components.pages.project import Link
from components.settings.registry import RegistrySettings
from flows.bound import bound
from flows.processes import answers, descendants, end, popen
from flows.repository import STATE, Project, environment
from flows.server import HOST, START_S, ensured, in_use, secret, server
from flows.terminal import terminal

MLFLOW_PORT = 5000
LOG = Path(STATE) / "mlflow-server.log"
POLL_S = 0.3


@dataclass(frozen=True)
class Flags:
    """Flags of `headstart ui`."""

    host: Annotated[str, typer.Option(help="Address to listen on; another one than 127.0.0.1 needs a token.")] = HOST
    port: Annotated[int, typer.Option(help="Port of the pages; 0: a free one.")] = PAGES_PORT
    name: Annotated[
        list[str], typer.Option(help="Further name by which browsers reach this machine; may be repeated.")
    ] = field(default_factory=list)
    write: Annotated[bool, typer.Option("--write", help="Accept labels; otherwise nothing is changed.")] = False
    servers: Annotated[bool, typer.Option("--servers", help="Serve MLflow's and Prefect's pages too.")] = False
    mlflow_port: Annotated[int, typer.Option(help="Port of MLflow's page.")] = MLFLOW_PORT
    prefect_port: Annotated[int, typer.Option(help="Port of Prefect's page, if its server does not run yet.")] = 0
    params: ParamsFile = PARAMS


def ui(options: Flags) -> None:
    """Serve the pages until SIGTERM, Ctrl-C or the end of one of them.

    Raises:
        ConfigError: a port is used by another program, or a server does not start.
        RegistryError: the port of the pages is used by another program.
    """
    project = Project(options.params)
    root = project.root
    os.chdir(root)

    def pages(links: Sequence[Link] = ()) -> PagesServer:
        address: dict[str, Any] = {"host": options.host, "port": options.port, "names": options.name}
        return PagesServer(project.file, root=root, **address, write=options.write, links=links)

    if not options.servers:
        served = pages()
        served.run(started=lambda: terminal.say(f"pages:   {served.address}\nCtrl-C ends them"))
        return
    with (
        mlflow_page(project.settings.registry, root=root, port=options.mlflow_port) as (mlflow, process),
        server(port=options.prefect_port) as prefect,
        ensured(),
    ):
        links = [
            Link("MLflow", f"{mlflow}/#/experiments"),
            Link("Prefect", f"{prefect.address.removesuffix('/api')}/runs"),
        ]
        served = pages(links)
        with in_background(served):
            terminal.say(f"pages:   {served.address}")
            terminal.say(f"MLflow:  {links[0].address}")
            terminal.say(f"Prefect: {links[1].address}")
            if prefect.port:
                terminal.say(f"Prefect's page asks for the text in {secret()}; its server stays for half an hour")
            terminal.say("Ctrl-C ends them")
            while process is None or process.poll() is None:
                time.sleep(POLL_S)
            raise ConfigError(f"MLflow's page has ended; see {root / LOG}")


@contextmanager
def in_background(served: PagesServer) -> Iterator[None]:
    """Serve pages in a thread within the block."""
    ready = threading.Event()
    thread = threading.Thread(target=lambda: served.run(started=ready.set), name="pages", daemon=True)
    thread.start()
    ready.wait(START_S)
    try:
        yield
    finally:
        served.stop()
        thread.join(SHUTDOWN_S + 2)


def mlflow_variables(port: int) -> dict[str, str]:
    """The environment of an MLflow server on this host that answers only under its address and pages of its origin."""
    return {
        "MLFLOW_SERVER_ALLOWED_HOSTS": f"{HOST}:{port}",
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": f"http://{HOST}:{port}",
        "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE": "false",
        # Without MLflow's workers for jobs, which nothing here uses: 2 processes instead of 15.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }


@contextmanager
def mlflow_page(
    registry: RegistrySettings, *, root: Path, port: int
) -> Iterator[tuple[str, subprocess.Popen[bytes] | None]]:
    """The address of MLflow's page on a registry, and its process: the server that is the registry's address (None), or
    one that ends with the block.

    Raises:
        ConfigError: the port is used by another program, or the server does not start.
    """
    if registry.address.startswith(("http://", "https://")):
        parts = urllib.parse.urlsplit(registry.address)
        # A link is shown in the page, so it holds no password; MLflow's page asks for it.
        yield parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/"), None
        return
    if in_use(port):
        raise ConfigError(f"port {port} is used by another program; choose another one with --mlflow-port")
    log = root / LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    options = ["--host", HOST, "--port", str(port), "--workers", "1"]
    command = [sys.executable, "-m", "mlflow", "server", *options]
    # The address is not an argument, because every user of the machine sees those.
    variables = environment(root) | mlflow_variables(port) | {"MLFLOW_BACKEND_STORE_URI": registry.address}
    with open(log, "w", opener=private) as output:
        process = popen(bound(command), directory=root, environment=variables, output=output)
    address = f"http://{HOST}:{port}"
    try:
        terminal.say(f"starting MLflow's page at {address}")
        deadline = time.monotonic() + START_S
        while not answers(f"{address}/health"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise ConfigError(f"MLflow's page did not start; see {log}")
            time.sleep(POLL_S)
        yield address, process
    finally:
        end(descendants(process.pid))
        process.wait()


@flags
def command(options: Flags) -> None:
    """Serve the pages of the project until stopped: runs, champion, errors, labelling, lineage."""
    try:
        ui(options)
    except KeyboardInterrupt:
        terminal.say("ended")
