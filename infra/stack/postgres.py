"""A temporary Postgres cluster in a folder, with password authentication over TCP, run by Debian's programs."""

from __future__ import annotations

import os
import pwd
import re
import shutil
from contextlib import suppress
from pathlib import Path

from infra.stack.processes import StackError

#: Debian installs the programs of each version in a separate folder outside of the PATH.
DEBIAN = Path("/usr/lib/postgresql")
MISSING = "Postgres is not installed; run `apt-get install postgresql` (or put initdb, postgres and psql on the PATH)"


def programs(folder: Path = DEBIAN) -> Path:
    """The folder with initdb, postgres and psql: on the PATH, or else of Debian's newest version. Raises StackError:
    there is no such folder."""
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
    """The account for Postgres, which refuses to run as root; empty: the current account. Raises StackError: the
    current account is root, and there is no other one for Postgres."""
    if euid != 0:
        return ""
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise StackError("Postgres does not run as root, and there is no account postgres or nobody; add one")


def make_home(folder: Path, user: str) -> Path:
    """Create a folder that is owned by and accessible to `user`. Raises StackError: a parent folder is not accessible
    to others."""
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
