"""Ray nodes on this host that do not see some of its folders, as nodes on other hosts."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

#: Ways to a mount namespace: as root, and in a user namespace.
NAMESPACES = (("unshare", "--mount"), ("unshare", "--user", "--map-root-user", "--mount"))


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
