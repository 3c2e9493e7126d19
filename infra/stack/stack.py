"""Start, stop and list the services of compose.yaml as local processes."""

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

from components.core.errors import ConfigError
from components.core.outputs import claim_folder
from infra.stack import compose, nodes, postgres, processes
from infra.stack.compose import ROOT, Service
from infra.stack.processes import StackError, Started

#: A random value of this variable identifies the processes of a stack and their descendants.
MARKER = "HEADSTART_STACK"
#: Prefixes of the caller's variables that would affect the services.
FOREIGN = ("AWS_", "HEADSTART_", "MLFLOW_", "PG", "POSTGRES_", "PREFECT_", "PYTHONPATH", "RAY_", "VIRTUAL_ENV")
#: Variables of services that are not started here (Redis).
ABSENT = ("RAY_REDIS_ADDRESS", "RAY_external_storage_namespace")
#: Size of the object store of each Ray node; Ray's minimum is 78,643,200.
OBJECT_STORE_BYTES = 200_000_000

Say = Callable[[str], None]


@dataclass(frozen=True)
class Layout:
    """Paths of a stack, all in one folder except Ray's, whose socket paths must be shorter than 107 bytes."""

    folder: Path

    @property
    def state(self) -> Path:
        """Processes and settings, secrets included."""
        return self.folder / "state.json"

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
    """A stack: its settings, and the processes that have been started so far."""

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
        """The caller's variables without those of `FOREIGN`, the variables of the service, and the marker."""
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
            MARKER: self.marker,
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
        """Environment of a command that uses the stack: that of the Prefect worker."""
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

    def start(self, name: str, command: list[str] | None = None, **options: Any) -> Started:
        """Start a service in the background and record it in the state file immediately."""
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
        """Run a one-off service of compose and wait for its end."""
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
    """The settings of .env.example with random secrets, and with the branch of this checkout.

    Raises:
        ConfigError: this checkout is not on a branch.
    """
    values = compose.fill_secrets(compose.read_env(example))
    branch = git("branch", "--show-current")
    if not branch:
        raise ConfigError(f"{ROOT}: not on a branch, of which the flow needs a clone; run `git switch -c NAME` first")
    return {**values, "HEADSTART_BRANCH": branch}


def push_data(running: Stack) -> None:
    """Push this checkout's version of the data to the bucket; otherwise the workspace extracts the built-in data."""
    if git("ls-files", "data.dvc"):
        client = running.client_environment()
        processes.run(
            "data",
            [sys.executable, "-m", "infra.stack.data", client["HEADSTART_REMOTE"]],
            environment=client | {"PYTHONPATH": str(ROOT)},
            log=running.layout.log("data"),
            folder=ROOT,
        )
        running.say("data        the data of data.dvc is in the bucket headstart")


def up(
    folder: Path,
    *,
    nodes: int = 1,
    prepare: Callable[[Stack], None] = push_data,
    say: Say = print,
) -> Stack:
    """Start all services and wait until they answer. If one fails, all are stopped.

    Args:
        folder: of the stack.
        nodes: of Ray, besides the head, each with a folder of its own.
        prepare: called before the workspace is cloned from `Layout.origin`, a bare clone of this checkout's branch.
        say: prints a line.

    Raises:
        ArtifactError: the folder contains files, and no stack has run there.
        StackError: a stack of this folder is running, a program is missing, or a service did not start.
    """
    layout = Layout(folder.resolve())
    running, _ = processes.recall(layout.state)
    if any(each.process() for each in running):
        raise StackError(
            f"{folder}: a stack runs here; stop it with `infra/local-stack down` or choose another --folder"
        )
    user = postgres.unprivileged_user(os.geteuid())
    binaries = postgres.programs()
    claim_folder(layout.folder)
    shutil.rmtree(layout.folder, ignore_errors=True)
    claim_folder(layout.folder)
    layout.logs.mkdir(parents=True)
    layout.empty.touch()
    given = settings() | {"HEADSTART_REPOSITORY": str(layout.origin), "RAY_WORKERS": str(nodes)}
    stack = Stack(layout, given, compose.free_ports(compose.PORTS), say)
    try:
        stack.ray_folder = Path(tempfile.mkdtemp(prefix="hs-ray-"))
        stack.remember()
        _start(stack, binaries, user, prepare)
    except BaseException:
        down(folder, say=say)
        raise
    return stack


def _start(stack: Stack, binaries: Path, user: str | None, prepare: Callable[[Stack], None]) -> None:
    clock = time.monotonic()

    def report(what: str) -> None:
        stack.say(f"{time.monotonic() - clock:6.1f} s  {what}")

    address = {name: f"127.0.0.1:{port}" for name, port in stack.ports.items()}

    _make_databases(stack, binaries, user)
    report(f"postgres    {address['postgres']}, databases mlflow and prefect ({binaries})")

    # Replaces compose's SeaweedFS: a test server with the same protocol, which stores objects in memory.
    s3 = stack.start("s3", ["moto_server", "-H", "127.0.0.1", "-p", str(stack.ports["s3"])])
    stack.wait(s3, lambda: answers(f"http://{address['s3']}/moto-api/"))
    stack.run("buckets")
    report(f"s3          {address['s3']}, buckets headstart and mlflow")

    # These three start in parallel: they are independent, and together take most of a minute of processor time.
    stack.write_configs("mlflow")
    mlflow = stack.start("mlflow")
    prefect = stack.start("prefect-server")
    head = stack.start("ray-head")
    stack.wait(head, lambda: succeeds(stack, "ray", "health-check", f"--address={address['ray-head']}"))
    for number in range(int(stack.values["RAY_WORKERS"])):
        _start_node(stack, number)
    apart = "" if nodes.namespace() is None else ", which do not see the workspace"
    report(f"ray         {address['ray-head']}, a head and {stack.values['RAY_WORKERS']} more node(s){apart}")
    stack.wait(mlflow, lambda: answers(f"http://{address['mlflow']}/health"))
    report(f"mlflow      http://{address['mlflow']}")
    stack.wait(prefect, lambda: answers(f"http://{address['prefect-server']}/api/health"))
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
    log = stack.layout.log(f"ray-worker-{number}")
    stack.start("ray-worker", command, environment=environment, folder=folder, log=log)


def _make_databases(stack: Stack, binaries: Path, user: str | None) -> None:
    layout, port = stack.layout, stack.ports["postgres"]
    home = postgres.make_home(layout.postgres, user)
    # Readable by Postgres's account only.
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
    stack.wait(
        server, lambda: not subprocess.run(probe, env=asking, capture_output=True, check=False, timeout=60).returncode
    )
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
        raise StackError(f"{folder}: no stack runs here; start one with `infra/local-stack up`")
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
    """Stop everything that was started in this folder; logs and workspace are kept."""
    layout = Layout(folder.resolve())
    started, facts = processes.recall(layout.state)
    if not facts:
        say(f"{folder}: no stack")
        return
    # The stores are stopped last, because other services use them while they shut down.
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
    """Print which services are running; returns whether all are."""
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
    """Contents of the buckets: one line per top-level folder, with the number of objects and their size in MB."""
    import s3fs  # type: ignore[import-untyped]  # slow to import, and used only here

    keys = running.services["buckets"].environment
    store = s3fs.S3FileSystem(
        key=keys["AWS_ACCESS_KEY_ID"], secret=keys["AWS_SECRET_ACCESS_KEY"], endpoint_url=keys["AWS_ENDPOINT_URL"]
    )
    folders = [folder for bucket in ("headstart", "mlflow") for folder in store.ls(bucket, detail=False)]
    sizes = {folder: list(store.du(folder, total=False).values()) for folder in folders}
    return [f"s3://{name:<24}{len(each):>6} objects {sum(each) / 1e6:9.1f} MB" for name, each in sizes.items()]


def answers(address: str) -> bool:
    """Whether an HTTP GET of the URL succeeds within 3 seconds."""
    try:
        with urllib.request.urlopen(address, timeout=3) as response:
            return bool(response.status < 400)
    except (urllib.error.URLError, OSError):
        return False


def succeeds(stack: Stack, *command: str) -> bool:
    """Whether a command with the client's environment succeeds within 20 seconds."""
    try:
        return not subprocess.run(
            command, env=stack.client_environment(), capture_output=True, timeout=20, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        return False


def git(*arguments: str, folder: Path = ROOT) -> str:
    """The output of a git command in a folder."""
    command = ["git", "-C", folder, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=3600).stdout.strip()


def note_uncommitted(values: Mapping[str, str], say: Say) -> None:
    """Print a note if the checkout has uncommitted changes, which the flow does not see."""
    changed = git("status", "--porcelain").splitlines()
    if changed:
        say(
            f"note: {len(changed)} changed or new file(s) are not committed; "
            f"the flow runs branch {values['HEADSTART_BRANCH']}"
        )
