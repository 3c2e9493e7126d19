"""Start, stop and describe the services of compose.yaml as processes of this machine."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.errors import ConfigError
from infra.stack import compose, postgres, processes
from infra.stack.compose import ROOT, Service
from infra.stack.processes import StackError, Started

#: A random value in this variable tells the stack's processes, and all that they start, from everybody else's.
MARKER = "HEADSTART_STACK"
#: Variables of the caller that would change what the services do.
FOREIGN = ("AWS_", "HEADSTART_", "MLFLOW_", "PG", "POSTGRES_", "PREFECT_", "PYTHONPATH", "RAY_", "VIRTUAL_ENV")
#: Shared memory that each Ray node may fill; Ray's least is 78,643,200.
OBJECT_STORE_BYTES = 200_000_000

Say = Callable[[str], None]


@dataclass(frozen=True)
class Layout:
    """The files of one stack, all below one folder, except Ray's: its socket paths must be shorter than 107 bytes."""

    folder: Path

    @property
    def state(self) -> Path:
        """What runs, and its settings with their secrets."""
        return self.folder / "state.json"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def workspace(self) -> Path:
        """The clone that the flow runs in."""
        return self.folder / "workspace"

    @property
    def postgres(self) -> Path:
        return self.folder / "postgres"

    @property
    def empty(self) -> Path:
        """A file without a word; DVC reads AWS's files where they are named, and /dev/null is no file to it."""
        return self.folder / "empty"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"


@dataclass
class Stack:
    """A stack while it is being started: what runs so far, and what it was started with."""

    layout: Layout
    values: dict[str, str]
    ports: dict[str, int]
    say: Say
    marker: str = field(default_factory=lambda: secrets.token_hex(8))
    ray_folder: Path = Path()
    started: list[Started] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.compose: dict[str, Any] = compose.load_compose(self.values)
        self.services = {
            name: compose.localize(service, self.ports, workspace=self.layout.workspace)
            for name, service in compose.services(self.compose).items()
        }

    def environment(self, service: Service | None = None) -> dict[str, str]:
        """The caller's variables less what would interfere, those of the service, and the marker."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        programs = Path(sys.executable).parent
        return {
            **kept,
            "PATH": f"{programs}{os.pathsep}{kept.get('PATH', os.defpath)}",
            "PYTHONUNBUFFERED": "1",
            # No keys but the ones given: neither a profile of the user nor the metadata service of a cloud machine.
            "AWS_CONFIG_FILE": str(self.layout.empty),
            "AWS_SHARED_CREDENTIALS_FILE": str(self.layout.empty),
            "AWS_EC2_METADATA_DISABLED": "true",
            "PREFECT_HOME": str(self.layout.folder / "prefect"),
            **(service.environment if service else {}),
            MARKER: self.marker,
        }

    def client_environment(self) -> dict[str, str]:
        """What a command needs to use the stack: the Prefect worker's variables."""
        return self.environment(self.services["prefect-worker"])

    def command(self, name: str) -> list[str]:
        """compose's command of a service, with what two Ray nodes on one small host need besides."""
        command = list(self.services[name].command)
        if command[:2] == ["ray", "start"]:
            command += ["--node-ip-address=127.0.0.1", f"--object-store-memory={OBJECT_STORE_BYTES}"]
            command += ["--min-worker-port=0", "--max-worker-port=0"]
            if "--head" in command:
                command += [f"--temp-dir={self.ray_folder}"]
        return command

    def start(self, name: str, command: list[str] | None = None, **options: Any) -> Started:
        """Start a service in the background and write it down at once."""
        service = self.services.get(name)
        started = processes.start(
            name,
            command or self.command(name),
            **{
                "environment": self.environment(service),
                "log": self.layout.log(name),
                "folder": self.layout.folder,
                **options,
            },
        )
        self.started.append(started)
        self.remember()
        return started

    def run(self, name: str, *, folder: Path = ROOT) -> None:
        """Run a one-off service of compose to its end."""
        processes.run(
            name,
            self.command(name),
            environment=self.environment(self.services[name]),
            log=self.layout.log(name),
            folder=folder,
        )

    def wait(self, started: Started, ready: Callable[[], bool]) -> None:
        processes.wait_until(started, ready, log=self.layout.log(started.name))

    def remember(self) -> None:
        facts = {
            "marker": self.marker,
            "ports": self.ports,
            "values": self.values,
            "ray_folder": str(self.ray_folder),
        }
        processes.remember(self.layout.state, self.started, facts)


def settings(*, example: Path = compose.ENV_EXAMPLE) -> dict[str, str]:
    """The settings of .env.example with fresh secrets, the repository and its branch being this checkout's.

    Raises:
        ConfigError: this checkout is not on a branch.
    """
    values = compose.fill_secrets(compose.read_env(example))
    branch = _git("branch", "--show-current")
    if not branch:
        raise ConfigError(f"{ROOT}: not on a branch; the flow runs in a clone of one: `git switch -c NAME` first")
    return {**values, "HEADSTART_REPOSITORY": str(ROOT), "HEADSTART_BRANCH": branch}


def up(folder: Path, *, say: Say = print) -> Stack:
    """Start everything and wait until it answers. What has been started is stopped again if a part fails.

    Raises:
        StackError: a stack runs in this folder already, a program is missing, or a service did not start.
    """
    layout = Layout(folder.resolve())
    running, _ = processes.recall(layout.state)
    if any(each.process() for each in running):
        raise StackError(f"{folder}: a stack runs here; `infra/local-stack down` ends it, or name another --folder")
    user = postgres.unprivileged_user(os.geteuid())
    binaries = postgres.programs()
    shutil.rmtree(layout.folder, ignore_errors=True)
    layout.logs.mkdir(parents=True)
    layout.empty.touch()
    stack = Stack(layout, settings(), compose.free_ports(compose.PORTS), say)
    try:
        stack.ray_folder = Path(tempfile.mkdtemp(prefix="hs-ray-"))
        stack.remember()
        _start(stack, binaries, user)
    except BaseException:
        down(folder, say=say)
        raise
    return stack


def _start(stack: Stack, binaries: Path, user: str | None) -> None:
    clock = time.monotonic()

    def told(what: str) -> None:
        stack.say(f"{time.monotonic() - clock:6.1f} s  {what}")

    address = {name: f"127.0.0.1:{port}" for name, port in stack.ports.items()}

    _make_databases(stack, binaries, user)
    told(f"postgres    {address['postgres']}, databases mlflow and prefect ({binaries})")

    # A server for tests takes the place of compose's SeaweedFS: the same protocol, kept in memory.
    s3 = stack.start("s3", ["moto_server", "-H", "127.0.0.1", "-p", str(stack.ports["s3"])])
    stack.wait(s3, lambda: answers(f"http://{address['s3']}/moto-api/"))
    stack.run("buckets")
    told(f"s3          {address['s3']}, buckets headstart and mlflow")

    # These three need most of a minute of processor time in all, and do not need each other.
    mlflow = stack.start("mlflow")
    prefect = stack.start("prefect-server")
    head = stack.start("ray-head")
    stack.wait(head, lambda: succeeds(stack, "ray", "health-check", f"--address={address['ray-head']}"))
    for number in range(int(stack.values["RAY_WORKERS"])):
        stack.start("ray-worker", log=stack.layout.log(f"ray-worker-{number}"))
    told(f"ray         {address['ray-head']}, a head and {stack.values['RAY_WORKERS']} more node(s)")
    stack.wait(mlflow, lambda: answers(f"http://{address['mlflow']}/health"))
    told(f"mlflow      http://{address['mlflow']}")
    stack.wait(prefect, lambda: answers(f"http://{address['prefect-server']}/api/health"))
    told(f"prefect     http://{address['prefect-server']}")

    # Where the branch names a version of the data that this checkout has made, the workspace need not make it again.
    if _git("ls-files", "data.dvc"):
        client = stack.client_environment()
        processes.run(
            "data",
            [sys.executable, "-m", "infra.stack.data", client["HEADSTART_REMOTE"]],
            environment=client | {"PYTHONPATH": str(ROOT)},
            log=stack.layout.log("data"),
            folder=ROOT,
        )
        told("data        what data.dvc names is in the bucket headstart")
    stack.run("workspace")
    told(f"workspace   {stack.layout.workspace}, a clone of {stack.values['HEADSTART_BRANCH']} with its data")
    stack.run("deployment", folder=stack.layout.workspace)
    stack.start("prefect-worker", folder=stack.layout.workspace)
    told("worker      serves the pool headstart")


def _make_databases(stack: Stack, binaries: Path, user: str | None) -> None:
    layout, port = stack.layout, stack.ports["postgres"]
    home = postgres.make_home(layout.postgres, user)
    # Postgres's account must be able to read it, and nobody else.
    password = home / "password"
    password.write_text(stack.values["POSTGRES_PASSWORD"], encoding="utf-8")
    password.chmod(0o600)
    if user is not None:
        shutil.chown(password, user)
    log = layout.log("postgres")
    processes.run(
        "initdb",
        postgres.initdb_command(binaries, home, password),
        environment=stack.environment(),
        log=log,
        folder=home,
        user=user,
    )
    server = stack.start("postgres", postgres.server_command(binaries, home, port), folder=home, user=user)
    asking = stack.environment() | {"PGPASSWORD": stack.values["POSTGRES_PASSWORD"]}
    probe = postgres.psql_command(binaries, port, "--command=SELECT 1")
    stack.wait(server, lambda: not subprocess.run(probe, env=asking, capture_output=True, check=False).returncode)
    script = home / "databases.sql"
    script.write_text(stack.compose["configs"]["databases"]["content"], encoding="utf-8")
    script.chmod(0o600)
    processes.run(
        "databases",
        postgres.psql_command(binaries, port, f"--file={script}"),
        environment=asking,
        log=log,
        folder=home,
    )
    script.unlink()
    password.unlink()


def attach(folder: Path, *, say: Say = print) -> Stack:
    """The running stack of a folder.

    Raises:
        StackError: none runs there.
    """
    layout = Layout(folder.resolve())
    started, facts = processes.recall(layout.state)
    if not any(each.process() for each in started):
        raise StackError(f"{folder}: no stack runs here; `infra/local-stack up` starts one")
    return Stack(
        layout,
        facts["values"],
        facts["ports"],
        say,
        marker=str(facts["marker"]),
        ray_folder=Path(str(facts["ray_folder"])),
        started=started,
    )


def down(folder: Path, *, say: Say = print) -> None:
    """Stop everything that was started in this folder; logs and workspace stay."""
    layout = Layout(folder.resolve())
    started, facts = processes.recall(layout.state)
    if not facts:
        say(f"{folder}: no stack")
        return
    # The stores go last, so that nothing that is still saying good-bye complains about them.
    marker = (MARKER, str(facts["marker"]))
    processes.stop([each for each in started if each.name not in ("postgres", "s3")])
    processes.stop(started, marker=marker)
    ray_folder = Path(str(facts["ray_folder"]))
    if ray_folder.name.startswith("hs-ray-"):
        shutil.rmtree(ray_folder, ignore_errors=True)
    shutil.rmtree(layout.postgres, ignore_errors=True)
    layout.state.unlink()
    left = processes.marked(*marker)
    say(f"stopped {len(started)} services, {len(left)} process(es) left; logs in {layout.logs}")


def status(folder: Path, *, say: Say = print) -> bool:
    """Say which services run; whether all of them do."""
    started, facts = processes.recall(Layout(folder.resolve()).state)
    if not started:
        say(f"{folder}: no stack")
        return False
    ports = facts["ports"]
    for each in started:
        where = f"127.0.0.1:{ports[each.name]}" if each.name in ports else ""
        say(f"{each.name:<16}{'runs' if each.process() else 'ended':<8}{each.pid:<9}{where}")
    return all(each.process() for each in started)


def stored(running: Stack) -> list[str]:
    """What the buckets hold: a line for each of their top folders, with objects and megabytes."""
    import s3fs  # type: ignore[import-untyped]  # takes a second, and only this needs it

    keys = running.services["buckets"].environment
    store = s3fs.S3FileSystem(
        key=keys["AWS_ACCESS_KEY_ID"], secret=keys["AWS_SECRET_ACCESS_KEY"], endpoint_url=keys["AWS_ENDPOINT_URL"]
    )
    folders = [folder for bucket in ("headstart", "mlflow") for folder in store.ls(bucket, detail=False)]
    sizes = {folder: list(store.du(folder, total=False).values()) for folder in folders}
    return [f"s3://{name:<24}{len(each):>6} objects {sum(each) / 1e6:9.1f} MB" for name, each in sizes.items()]


def answers(address: str) -> bool:
    """Whether an HTTP address answers with success."""
    try:
        with urllib.request.urlopen(address, timeout=3) as response:
            return bool(response.status < 400)
    except (urllib.error.URLError, OSError):
        return False


def succeeds(stack: Stack, *command: str) -> bool:
    """Whether a command of the client ends well within a few seconds."""
    try:
        return not subprocess.run(
            command, env=stack.client_environment(), capture_output=True, timeout=20, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        return False


def _git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True).stdout.strip()


def note_uncommitted(values: Mapping[str, str], say: Say) -> None:
    """Say that the flow runs what is committed, where that is not what lies in the checkout."""
    changed = _git("status", "--porcelain").splitlines()
    if changed:
        say(
            f"note: {len(changed)} changed or new file(s) are not committed; "
            f"the flow runs branch {values['HEADSTART_BRANCH']}"
        )
