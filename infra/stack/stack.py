"""The services of compose.yaml as local processes, while a block runs; Postgres by Debian's programs, in a temporary
folder."""

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import Any

import psutil

from components.core.errors import ConfigError
from components.core.liveness import is_alive
from components.core.outputs import MARK, claim_folder
from flows.processes import answers, descendants, end, having
from flows.repository import try_lock
from infra.stack import compose, nodes, processes
from infra.stack.compose import ROOT, Service
from infra.stack.processes import StackError

#: Debian installs the programs of each version in a separate folder outside of the PATH.
DEBIAN = Path("/usr/lib/postgresql")
MISSING = "Postgres is not installed; run `apt-get install postgresql` (or put initdb, postgres and psql on the PATH)"


def programs(folder: Path = DEBIAN) -> Path:
    """The folder with initdb, postgres and psql: on the PATH, or else of Debian's newest version.

    Raises:
        StackError: there is no such folder.
    """
    versions = sorted(
        folder.glob("*/bin"), key=lambda each: [int(part) for part in re.findall(r"\d+", each.parent.name)]
    )
    # All three from one folder: Debian's /usr/bin/psql is a wrapper, and single programs may be links.
    on_path = shutil.which("initdb")
    for candidate in [*([Path(on_path).resolve().parent] if on_path else []), *reversed(versions)]:
        if all((candidate / name).exists() for name in ("initdb", "postgres", "psql")):
            return candidate
    raise StackError(MISSING)


def unprivileged_user(euid: int) -> str:
    """The account for Postgres, which refuses to run as root; empty: the current account.

    Raises:
        StackError: the current account is root, and there is no other one for Postgres.
    """
    if euid != 0:
        return ""
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise StackError("Postgres does not run as root, and there is no account postgres or nobody; add one")


def make_home(folder: Path, user: str) -> Path:
    """Create a folder that is owned by and accessible to `user`.

    Raises:
        StackError: a parent folder is not accessible to others.
    """
    folder.mkdir(parents=True)
    if not user:
        return folder
    for parent in folder.parents:
        if not parent.stat().st_mode & 0o001:
            raise StackError(
                f"{parent}: not accessible to the account {user!r}, which runs Postgres; "
                f"allow access (chmod o+x) or choose another --folder"
            )
    entry = pwd.getpwnam(user)
    os.chown(folder, entry.pw_uid, entry.pw_gid)
    return folder


def initdb_command(binaries: Path, home: Path, password_file: Path) -> list[str]:
    """The command that creates the cluster in `home`/data, with the superuser's password from a file."""
    return [
        str(binaries / "initdb"),
        f"--pgdata={home / 'data'}",
        "--username=postgres",
        "--auth=scram-sha-256",
        f"--pwfile={password_file}",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        "--no-sync",
    ]


def server_command(binaries: Path, home: Path, port: int) -> list[str]:
    """The command that serves the cluster on 127.0.0.1, without a socket file, and without fsync (it is temporary)."""
    settings = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "fsync": "off",
        "max_connections": "200",
        "logging_collector": "off",
    }
    flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    return [str(binaries / "postgres"), "-D", str(home / "data"), "-p", str(port), *flags]


def psql_command(binaries: Path, port: int, *arguments: str) -> list[str]:
    """A psql command as the superuser, which stops at the first error."""
    connection = ["--host=127.0.0.1", f"--port={port}", "--username=postgres", "--no-psqlrc", "--quiet"]
    return [str(binaries / "psql"), *connection, "--set=ON_ERROR_STOP=1", *arguments]


#: Variable with the folder of a stack, by which its processes and their descendants are known.
MARKER = "HEADSTART_STACK"
#: Prefixes of the caller's variables that would affect the services.
FOREIGN = ("AWS_", "HEADSTART_", "MLFLOW_", "PG", "POSTGRES_", "PREFECT_", "PYTHONPATH", "RAY_", "VIRTUAL_ENV")
#: Variables of services that are not started here (Redis).
ABSENT = ("RAY_REDIS_ADDRESS", "RAY_external_storage_namespace")
#: Size of the object store of each Ray node; Ray's minimum is 78,643,200.
OBJECT_STORE_BYTES = 200_000_000
#: Seconds between SIGTERM and SIGKILL.
STOP_S = 6.0


@dataclass(frozen=True)
class Layout:
    """Paths of a stack, all in one folder except Ray's, whose socket paths must be shorter than 107 bytes."""

    folder: Path

    @property
    def marker(self) -> str:
        """The value of `MARKER`, with an end, because another folder may begin with this one's name."""
        return f"{self.folder}/"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def workspace(self) -> Path:
        """The clone in which the flow runs."""
        return self.folder / "workspace"

    @property
    def origin(self) -> Path:
        """The bare repository that the workspace is cloned from."""
        return self.folder / "origin.git"

    @property
    def postgres(self) -> Path:
        return self.folder / "postgres"

    @property
    def empty(self) -> Path:
        """An empty file in place of AWS's configuration; DVC does not accept /dev/null."""
        return self.folder / "empty"

    def config(self, target: str) -> Path:
        """The local file of a service's config, which compose mounts at `target`."""
        return self.folder / "configs" / target.lstrip("/")

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"


@dataclass
class Stack:
    """A stack: its folder, its settings, and the services that run."""

    layout: Layout
    values: dict[str, str]
    ports: dict[str, int]
    ray_folder: Path = Path()
    running: dict[str, Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.compose: dict[str, Any] = compose.load_compose(self.values)
        self.services = {
            name: compose.localize(service, self.ports, workspace=self.layout.workspace)
            for name, service in compose.services(self.compose).items()
        }

    def environment(self, service: Service | None = None) -> dict[str, str]:
        """The caller's variables without the names in `FOREIGN`, the variables of the service, and the marker."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        programs = Path(sys.executable).parent
        return {
            **kept,
            "PATH": f"{programs}{os.pathsep}{kept.get('PATH', os.defpath)}",
            "PYTHONUNBUFFERED": "1",
            # Only explicit keys: no profile of the user, no metadata service of a cloud machine.
            "AWS_CONFIG_FILE": str(self.layout.empty),
            "AWS_SHARED_CREDENTIALS_FILE": str(self.layout.empty),
            "AWS_EC2_METADATA_DISABLED": "true",
            "PREFECT_HOME": str(self.layout.folder / "prefect"),
            **{name: value for name, value in (service.environment if service else {}).items() if name not in ABSENT},
            **self._paths_of_configs(service),
            MARKER: self.layout.marker,
        }

    def _paths_of_configs(self, service: Service | None) -> dict[str, str]:
        """The variables whose value is the path of a config."""
        targets = {each["target"] for each in self._configs(service.name)} if service else set()
        return {
            name: str(self.layout.config(value))
            for name, value in (service.environment if service else {}).items()
            if value in targets
        }

    def _configs(self, name: str) -> list[dict[str, str]]:
        configs: list[dict[str, str]] = self.compose["services"][name].get("configs", [])
        return configs

    def write_configs(self, name: str) -> None:
        """Write the configs of a service, which hold secrets, readable by this user only."""
        for each in self._configs(name):
            file = self.layout.config(each["target"])
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(mode=0o600)
            content = self.compose["configs"][each["source"]]["content"]
            file.write_text(compose.localized(content, self.ports, workspace=self.layout.workspace), encoding="utf-8")

    def client_environment(self) -> dict[str, str]:
        """Environment of a command that uses the stack, as of the Prefect worker."""
        return self.environment(self.services["prefect-worker"])

    def command(self, name: str) -> list[str]:
        """The command of a service in compose; for Ray, with the options that two nodes on one host need."""
        command = list(self.services[name].command)
        if command[:2] == ["ray", "start"]:
            # There is no Redis here, so the state of the head ends with it.
            command = [part for part in command if not part.startswith("--redis")]
            command += ["--node-ip-address=127.0.0.1", f"--object-store-memory={OBJECT_STORE_BYTES}"]
            command += ["--min-worker-port=0", "--max-worker-port=0"]
            if "--head" in command:
                command += [f"--temp-dir={self.ray_folder}"]
        return command

    def start(self, name: str, command: list[str] | None = None, **options: Any) -> None:
        """Start a service in the background."""
        log, environment = self.layout.log(name), self.environment(self.services.get(name))
        usual: dict[str, Any] = {"environment": environment, "log": log, "folder": self.layout.folder}
        self.running[name] = processes.start(name, command or self.command(name), **usual | options)

    def run(self, name: str, *, folder: Path = ROOT) -> None:
        """Run a one-off service of compose and wait for its end."""
        processes.run(
            name,
            self.command(name),
            environment=self.environment(self.services[name]),
            log=self.layout.log(name),
            folder=folder,
        )

    def wait(self, name: str, ready: Callable[[], bool]) -> None:
        """Wait until a service answers."""
        processes.wait_until(name, self.running[name], ready, log=self.layout.log(name))


def settings() -> dict[str, str]:
    """The settings of .env.example with random secrets, and with the branch of this checkout.

    Raises:
        ConfigError: this checkout is not on a branch.
    """
    values = compose.fill_secrets(compose.read_env(compose.ENV_EXAMPLE))
    branch = git("branch", "--show-current")
    if not branch:
        raise ConfigError(f"{ROOT}: not on a branch, of which the flow needs a clone; run `git switch -c NAME` first")
    return {**values, "HEADSTART_BRANCH": branch}


def push_data(stack: Stack) -> None:
    """Push this checkout's version of the data to the bucket; otherwise the workspace extracts the built-in data."""
    if git("ls-files", "data.dvc"):
        client = stack.client_environment()
        processes.run(
            "data",
            [sys.executable, "-m", "infra.stack.data", client["HEADSTART_REMOTE"]],
            environment=client | {"PYTHONPATH": str(ROOT)},
            log=stack.layout.log("data"),
            folder=ROOT,
        )
        print("data        the data of data.dvc is in the bucket headstart")


@contextmanager
def started(folder: Path, *, nodes: int = 1, prepare: Callable[[Stack], None] = push_data) -> Iterator[Stack]:
    """A block in which all services answer. They are stopped with the block; logs and workspace are kept.

    Args:
        nodes: of Ray, besides the head, each with a folder of its own.
        prepare: called before the workspace is cloned from `Layout.origin`, a bare clone of this checkout's branch.

    Raises:
        ArtifactError: the folder contains files, and no stack has run there.
        StackError: a stack of this folder is running, a program is missing, or a service did not start.
    """
    layout = Layout(folder.resolve())
    user, binaries = unprivileged_user(os.geteuid()), programs()
    claim_folder(layout.folder)
    with (layout.folder / "lock").open("w") as lock:
        if not try_lock(lock):
            raise StackError(f"{folder}: a stack runs here; stop it, or choose another --folder")
        end(having(MARKER, layout.marker))  # of a stack that was killed
        for path in layout.folder.iterdir():
            if path.name not in ("lock", MARK):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        layout.logs.mkdir()
        layout.empty.touch()
        given = settings() | {"HEADSTART_REPOSITORY": str(layout.origin), "RAY_WORKERS": str(nodes)}
        with tempfile.TemporaryDirectory(prefix="hs-ray-", ignore_cleanup_errors=True) as ray_folder:
            stack = Stack(layout, given, compose.free_ports(compose.PORTS), Path(ray_folder))
            try:
                _start(stack, binaries, user, prepare)
                yield stack
            finally:
                _stop(stack)


def _stop(stack: Stack) -> None:
    # The stores are stopped last, because other services use them while they shut down.
    stores = {name: process for name, process in stack.running.items() if name in ("postgres", "s3")}
    for kept in (stores, {}):
        pids = {each.pid for process in kept.values() for each in descendants(process.pid)}

        def left(pids: Collection[int] = pids) -> list[psutil.Process]:
            family = [each for process in stack.running.values() for each in descendants(process.pid)]
            return [each for each in (*having(MARKER, stack.layout.marker), *family) if each.pid not in pids]

        end(left(), more=lambda: filter(is_alive, left()), grace_s=STOP_S)
    for process in stack.running.values():
        process.wait()
    shutil.rmtree(stack.layout.postgres, ignore_errors=True)
    print(f"stopped {len(stack.running)} services; logs in {stack.layout.logs}")


def _start(stack: Stack, binaries: Path, user: str, prepare: Callable[[Stack], None]) -> None:
    clock = time.monotonic()

    def report(what: str) -> None:
        print(f"{time.monotonic() - clock:6.1f} s  {what}")

    address = {name: f"127.0.0.1:{port}" for name, port in stack.ports.items()}

    _make_databases(stack, binaries, user)
    report(f"postgres    {address['postgres']}, databases mlflow and prefect ({binaries})")

    # Replaces compose's SeaweedFS: a test server with the same protocol, which stores objects in memory.
    stack.start("s3", ["moto_server", "-H", "127.0.0.1", "-p", str(stack.ports["s3"])])
    stack.wait("s3", lambda: answers(f"http://{address['s3']}/moto-api/"))
    stack.run("buckets")
    report(f"s3          {address['s3']}, buckets headstart and mlflow")

    # These three start in parallel: they are independent, and together take most of a minute of processor time.
    stack.write_configs("mlflow")
    for name in ("mlflow", "prefect-server", "ray-head"):
        stack.start(name)
    stack.wait("ray-head", lambda: succeeds(stack, "ray", "health-check", f"--address={address['ray-head']}"))
    for number in range(int(stack.values["RAY_WORKERS"])):
        _start_node(stack, number)
    apart = "" if nodes.namespace() is None else ", which do not see the workspace"
    report(f"ray         {address['ray-head']}, a head and {stack.values['RAY_WORKERS']} more node(s){apart}")
    stack.wait("mlflow", lambda: answers(f"http://{address['mlflow']}/health"))
    report(f"mlflow      http://{address['mlflow']}")
    stack.wait("prefect-server", lambda: answers(f"http://{address['prefect-server']}/api/health"))
    report(f"prefect     http://{address['prefect-server']}")

    git("clone", "--quiet", "--bare", "--branch", stack.values["HEADSTART_BRANCH"], str(ROOT), str(stack.layout.origin))
    prepare(stack)
    stack.run("workspace")
    report(f"workspace   {stack.layout.workspace}, a clone of {stack.values['HEADSTART_BRANCH']} with its data")
    stack.run("deployment", folder=stack.layout.workspace)
    stack.start("prefect-worker", folder=stack.layout.workspace)
    report("worker      serves the pool headstart")


def _start_node(stack: Stack, number: int) -> None:
    """Start a Ray node with a folder of its own, and with an empty folder in the place of the workspace."""
    folder = stack.layout.folder / f"node-{number}"
    folder.mkdir()
    stack.layout.workspace.mkdir(exist_ok=True)
    environment = stack.environment(stack.services["ray-worker"]) | {"TMPDIR": str(folder)}
    command = nodes.without(stack.command("ray-worker"), [stack.layout.workspace])
    stack.start(f"ray-worker-{number}", command, environment=environment, folder=folder)


def _make_databases(stack: Stack, binaries: Path, user: str) -> None:
    layout, port = stack.layout, stack.ports["postgres"]
    home = make_home(layout.postgres, user)
    # Readable by Postgres's account only.
    password = home / "password"
    password.write_text(stack.values["POSTGRES_PASSWORD"], encoding="utf-8")
    password.chmod(0o600)
    if user:
        shutil.chown(password, user)
    options: dict[str, Any] = {"log": layout.log("postgres"), "folder": home}
    command = initdb_command(binaries, home, password)
    processes.run("initdb", command, environment=stack.environment(), user=user, **options)
    stack.start("postgres", server_command(binaries, home, port), folder=home, user=user)
    asking = stack.environment() | {"PGPASSWORD": stack.values["POSTGRES_PASSWORD"]}
    probe = psql_command(binaries, port, "--command=SELECT 1")
    stack.wait("postgres", lambda: not subprocess.run(probe, env=asking, capture_output=True, timeout=60).returncode)
    script = home / "databases.sql"
    script.write_text(stack.compose["configs"]["databases"]["content"], encoding="utf-8")
    script.chmod(0o600)
    processes.run("databases", psql_command(binaries, port, f"--file={script}"), environment=asking, **options)
    script.unlink()
    password.unlink()


def succeeds(stack: Stack, *command: str) -> bool:
    """Whether a command with the client's environment succeeds within 20 seconds."""
    try:
        return not subprocess.run(
            command, env=stack.client_environment(), capture_output=True, timeout=20, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        return False


def git(*arguments: str, folder: Path = ROOT) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=3600)
    if done.returncode:
        raise StackError(f"git {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()
