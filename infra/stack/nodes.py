"""Ray nodes on this host that do not see some of its folders, as nodes on other hosts."""

import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from flows.processes import descendants

#: Ways to a mount namespace: as root, and in a user namespace.
NAMESPACES = (("unshare", "--mount"), ("unshare", "--user", "--map-root-user", "--mount"))

#: On a busy machine a node may not start within the times that Ray allows.
ATTEMPTS, START_S = 3, 120


def namespace() -> tuple[str, ...] | None:
    """The beginning of a command in a mount namespace of its own; None if this user may not mount."""
    for command in NAMESPACES:
        probe = [*command, "sh", "-c", "mount -t tmpfs none /mnt"]
        if shutil.which(command[0]) and not subprocess.run(probe, capture_output=True, timeout=60).returncode:
            return command
    return None


def without(command: Sequence[str], folders: Iterable[Path]) -> list[str]:
    """The command, for which these existing folders are empty; the command unchanged if this user may not mount."""
    begin = namespace()
    if begin is None:
        return list(command)
    mounts = "".join(f"mount -t tmpfs none {shlex.quote(str(folder))} && " for folder in folders)
    return [*begin, "sh", "-c", f'{mounts}exec "$@"', "sh", *command]


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


class Cluster:
    """A Ray head without processors, and nodes on this host with folders of their own, which do not see some others.

    Args:
        folder: of logs and of the nodes' folders.
        hidden: existing folders that the nodes do not see.
        variables: of head and nodes, besides those of this process that configure neither Ray nor storage.

    Attributes:
        variables: environment of head, nodes and drivers.
    """

    def __init__(self, folder: Path, hidden: Iterable[Path], variables: Mapping[str, str]) -> None:
        self.folder, self.hidden = folder, tuple(hidden)
        self.ray_folder = Path(tempfile.mkdtemp(prefix="hs-nodes-"))
        self.address = f"127.0.0.1:{free_port()}"
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "AWS_", "HEADSTART_"))
        }
        self.variables = {
            **kept,
            **variables,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_ADDRESS": self.address,
            "OMP_NUM_THREADS": "1",
        }
        self.started: list[subprocess.Popen[bytes]] = []
        self.start("head", ["--head", f"--port={self.address.rpartition(':')[2]}", "--num-cpus=0"], {})

    def node(self, name: str) -> subprocess.Popen[bytes]:
        """Start a node with one processor and another working folder."""
        work = self.folder / name
        work.mkdir()
        variables = {"TMPDIR": str(work), "PYTHONPATH": ""}
        return self.start(name, [f"--address={self.address}", "--num-cpus=1"], variables, work=work)

    def start(
        self, name: str, options: list[str], variables: Mapping[str, str], *, work: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Run `ray start` and wait until the head or node is ready.

        Raises:
            TimeoutError: it is not ready within two minutes, or has ended, several times.
        """
        command = [
            *(sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats", *options),
            *("--node-ip-address=127.0.0.1", "--object-store-memory=80000000"),
            *("--min-worker-port=0", "--max-worker-port=0"),
            *(["--include-dashboard=false", f"--temp-dir={self.ray_folder}"] if "--head" in options else []),
        ]
        if work is not None:
            command = without(command, self.hidden)
        path = self.folder / f"{name}.log"
        for attempt in range(1, ATTEMPTS + 1):
            with path.open("wb") as log:
                process = subprocess.Popen(
                    command,
                    cwd=work or self.folder,
                    env={**self.variables, **variables},
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            self.started.append(process)
            deadline = time.monotonic() + START_S
            while process.poll() is None and time.monotonic() < deadline:
                if "Ray runtime started" in path.read_text():
                    return process
                time.sleep(0.1)
            kill_tree(process.pid)
            if attempt == ATTEMPTS:
                self.close()
        raise TimeoutError(path.read_text())

    def close(self) -> None:
        """End all processes."""
        for process in self.started:
            kill_tree(process.pid)
            process.wait()
        shutil.rmtree(self.ray_folder, ignore_errors=True)


def kill_tree(pid: int) -> None:
    """Kill a process and all that it has started."""
    for process in descendants(pid):
        with suppress(psutil.NoSuchProcess):
            process.kill()
