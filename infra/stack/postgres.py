"""A Postgres of one's own: a new cluster in a folder, reached over TCP with passwords, with Debian's programs."""

from __future__ import annotations

import os
import pwd
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from infra.stack.processes import StackError

#: Debian keeps the programs of each version apart, and off the PATH.
DEBIAN = Path("/usr/lib/postgresql")
MISSING = "Postgres is not installed; run `apt-get install postgresql` (or put initdb, postgres and psql on the PATH)"


def programs(folder: Path = DEBIAN) -> Path:
    """The folder that holds initdb, postgres and psql: the PATH's, else the newest version's of Debian's packages.

    Raises:
        StackError: there is none.
    """
    versions = sorted(
        folder.glob("*/bin"), key=lambda each: [int(part) for part in re.findall(r"\d+", each.parent.name)]
    )
    # /usr/bin/psql of Debian is a wrapper, and other programs may be linked one by one: all three from one folder.
    on_path = shutil.which("initdb")
    for candidate in [*([Path(on_path).resolve().parent] if on_path else []), *reversed(versions)]:
        if all((candidate / name).exists() for name in ("initdb", "postgres", "psql")):
            return candidate
    raise StackError(MISSING)


def unprivileged_user(euid: int, *, names: Iterable[str] = ("postgres", "nobody")) -> str | None:
    """Whom to run Postgres as: it refuses to run as root, and otherwise one's own account is right.

    Raises:
        StackError: this is root and there is no such account.
    """
    if euid != 0:
        return None
    names = tuple(names)
    for name in names:
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise StackError(
        f"Postgres does not run as root, and there is no account {' or '.join(names)}; add one or be another user"
    )


def make_home(folder: Path, user: str | None) -> Path:
    """An empty folder that `user` owns and can reach.

    Raises:
        StackError: a folder above it is closed to others.
    """
    folder.mkdir(parents=True)
    if user is None:
        return folder
    for parent in folder.parents:
        if not parent.stat().st_mode & 0o001:
            raise StackError(
                f"{parent}: closed to the account {user!r}, which runs Postgres; "
                f"open it (chmod o+x) or name another --folder"
            )
    entry = pwd.getpwnam(user)
    os.chown(folder, entry.pw_uid, entry.pw_gid)
    return folder


def initdb_command(binaries: Path, home: Path, password_file: Path) -> list[str]:
    """Make the cluster in `home`/data; connections over TCP need the superuser's password from the start."""
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
    """Serve the cluster on 127.0.0.1 alone, without a socket file; durability is not wanted of a throw-away."""
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
    """psql as the superuser, which stops at the first error."""
    connection = ["--host=127.0.0.1", f"--port={port}", "--username=postgres", "--no-psqlrc", "--quiet"]
    return [str(binaries / "psql"), *connection, "--set=ON_ERROR_STOP=1", *arguments]
