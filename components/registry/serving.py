"""Serving the champion over HTTP with MLflow's own server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from components.errors import RegistryError
from components.registry.champion import fetched, find_champion
from components.settings.registry import RegistrySettings
from components.tracking import connect


def serve(settings: RegistrySettings, task: str, *, host: str = "127.0.0.1", port: int = 5001) -> int:
    """Serve a task's champion until the server is stopped: POST {"inputs": {"text": [...]}} to /invocations.

    Args:
        settings: `params.registry`.
        task: name of the task.
        host: address to listen on.
        port: port to listen on.

    Returns:
        The server's exit status.

    Raises:
        RegistryError: no registry, no champion, or the port is in use.
        ArtifactError: the champion's files differ from the registered ones.
    """
    registry = connect(settings)
    version = find_champion(registry, task)
    check_port(host, port)
    with fetched(registry, version):
        pass  # reports a damaged model in one message before the server starts
    command = [sys.executable, "-m", "mlflow", "models", "serve", "--env-manager", "local", "--host", host]
    command += ["--port", str(port), "--model-uri", f"models:/{version.name}/{version.number}"]
    # MLflow starts uvicorn by name, which is on PATH only in an activated environment.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    print(f"{version.label} at http://{host}:{port}/invocations", flush=True)
    return subprocess.run(
        command, env=os.environ | {"MLFLOW_TRACKING_URI": registry.uri, "PATH": path}, check=False
    ).returncode


def check_port(host: str, port: int) -> None:
    """Check that a port is free.

    Raises:
        RegistryError: the port is in use, or the address does not belong to this machine.
    """
    with socket.socket() as probe:
        # Servers set this option too: a port with connections in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise RegistryError(
                f"{host}:{port}: cannot listen on this address ({error.strerror}); stop the process that uses it, or "
                "choose another port"
            ) from error
