"""Commands and settings of compose.yaml as processes on 127.0.0.1. Each fixed port of a service (`mlflow:5000`) is
replaced by a free one wherever it is named: in environments, options of commands and lists of allowed hosts."""

import re
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from components.core.errors import ConfigError

COMPOSE = Path(__file__).parents[1] / "compose.yaml"
ENV_EXAMPLE = Path(__file__).parents[1] / ".env.example"
#: The port that each service listens on in its container.
PORTS = {"postgres": 5432, "s3": 8333, "mlflow": 5000, "prefect-server": 4200, "ray-head": 6379, "serve": 8000}
#: Secrets of a system outside of compose.yaml, which are given or absent.
FOREIGN_SECRETS = ("HEADSTART_GIT_TOKEN",)
#: Mount points of the shared clone and of the log of served rows in containers, and path of the image's copy of the
#: repository.
WORKSPACE = "/workspace"
TRAFFIC = "/traffic"
IMAGE_ROOT = "/opt/headstart"
ROOT = Path(__file__).parents[2]

_VARIABLE = re.compile(r"\$(?:\$|\{(?P<name>\w+)(?:(?P<rule>:?[-?])(?P<word>[^}]*))?\})")


@dataclass(frozen=True)
class Service:
    """Command and environment of a service in compose."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]


def read_env(path: Path) -> dict[str, str]:
    """The NAME=value lines of an .env file (no quotes, no continuation).

    Raises:
        ConfigError: a line is neither empty, a comment nor NAME=value.
    """
    values: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
            raise ConfigError(f"{path}:{number}: expected NAME=value, found {line!r}")
        values[name] = value
    return values


def is_secret(name: str) -> bool:
    """Whether a variable of .env is a secret, which must be random and must not be committed."""
    return name.endswith(("_PASSWORD", "_ACCESS_KEY_ID", "_SECRET_ACCESS_KEY", "_SECRET_KEY", "_TOKEN"))


def fill_secrets(
    values: Mapping[str, str], generate: Callable[[], str] = lambda: secrets.token_hex(16)
) -> dict[str, str]:
    """`values` with a generated value, which needs no escaping in URLs, SQL and JSON, for every empty secret that the
    services share among themselves."""
    return {
        name: generate() if not value and is_secret(name) and name not in FOREIGN_SECRETS else value
        for name, value in values.items()
    }


def interpolate(text: str, values: Mapping[str, str]) -> str:
    """`${NAME}`, `${NAME-default}`, `${NAME:-default}`, `${NAME?message}`, `${NAME:?message}` and `$$`, as in compose.

    Raises:
        ConfigError: a required variable is not set.
    """

    def substitute(match: re.Match[str]) -> str:
        name, rule, word = match["name"], match["rule"] or "", match["word"] or ""
        if name is None:
            return "$"
        value = values.get(name)
        if value or (value == "" and ":" not in rule):
            return value
        if rule.endswith("-"):
            return word
        raise ConfigError(f"{COMPOSE.name}: {name} is not set{f'; {word}' if word else ''}")

    return _VARIABLE.sub(substitute, text)


def _interpolated(tree: Any, values: Mapping[str, str]) -> Any:
    if isinstance(tree, dict):
        return {key: _interpolated(item, values) for key, item in tree.items()}
    if isinstance(tree, list):
        return [_interpolated(item, values) for item in tree]
    return interpolate(tree, values) if isinstance(tree, str) else tree


def load_compose(values: Mapping[str, str]) -> dict[str, Any]:
    """The compose file with its variables replaced.

    Raises:
        ConfigError: a required variable is not set.
    """
    tree: dict[str, Any] = _interpolated(yaml.safe_load(COMPOSE.read_text(encoding="utf-8")), values)
    return tree


def services(compose: Mapping[str, Any]) -> dict[str, Service]:
    """Every service that has a command in the compose file (Postgres's is in its image)."""
    return {
        name: Service(
            name, tuple(map(str, body["command"])), {k: str(v) for k, v in body.get("environment", {}).items()}
        )
        for name, body in compose["services"].items()
        if "command" in body
    }


def free_ports(names: Iterable[str]) -> dict[str, int]:
    """A different free TCP port of 127.0.0.1 for each name."""
    held = {name: socket.socket() for name in names}
    try:
        for each in held.values():
            each.bind(("127.0.0.1", 0))
        return {name: each.getsockname()[1] for name, each in held.items()}
    finally:
        for each in held.values():
            each.close()


def localized(text: str, ports: Mapping[str, int], *, workspace: Path, owner: str = "") -> str:
    """`text` with container addresses and paths replaced by local ones.

    Args:
        workspace: local path of the shared clone; the log of served rows is beside it.
        owner: service whose command or environment contains `text`; its own port is replaced, too.
    """
    for name, port in PORTS.items():
        text = re.sub(rf"(?<![\w.-]){name}:{port}(?!\w)", f"127.0.0.1:{ports[name]}", text)
        text = re.sub(rf"(?<![\w.-])localhost:{port}(?!\w)", f"localhost:{ports[name]}", text)
    if owner in PORTS:
        text = re.sub(rf"(?<=[=:]){PORTS[owner]}(?!\w)", str(ports[owner]), text)
    text = text.replace("0.0.0.0", "127.0.0.1")
    for inside, outside in ((WORKSPACE, workspace), (TRAFFIC, workspace.with_name("traffic")), (IMAGE_ROOT, ROOT)):
        text = re.sub(rf"^{inside}(?=/|$)", str(outside), text)
    return text


def localize(service: Service, ports: Mapping[str, int], *, workspace: Path) -> Service:
    """The service as a local process; without `join-ray`, because this host is already a Ray node, and without the
    port of Ray's metrics, which two nodes of one host cannot share."""
    command = service.command[1:] if service.command[0].endswith("/join-ray") else service.command
    command = tuple(part for part in command if not part.startswith("--metrics-export-port"))
    return replace(
        service,
        command=tuple(localized(part, ports, workspace=workspace, owner=service.name) for part in command),
        environment={
            name: localized(value, ports, workspace=workspace, owner=service.name)
            for name, value in service.environment.items()
        },
    )
