"""The drill of a full disk.

As root, the project is on a file system of limited size (tmpfs), in a mount namespace that only the thread of the drill
and the commands that it starts see. Without the right to mount, the size of the files that the stage may write is
limited instead (RLIMIT_FSIZE): writing fails in the same places, with another error number.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from flows.drills.base import Session, expect
from flows.drills.kills import find
from flows.drills.project import Project, Running

#: Size of the file system, large enough for the project.
SIZE = "256m"
#: Largest file that a stage may write without a file system of its own, in bytes.
LARGEST_FILE = 4096
#: Constants of unshare(2) and mount(2).
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000


def disk_full(session: Session) -> str:
    """The disk is full during pretraining; then there is space again."""
    source = session.project("disk-full-source")
    session.pretrained  # noqa: B018 -- made outside of the small file system
    root = session.folder / "disk-full"
    root.mkdir()
    # The namespace belongs to this thread; the others keep theirs.
    with ThreadPoolExecutor(1) as thread:
        mounted = thread.submit(_mount, root).result()
        what = f"on a file system of {SIZE}" if mounted else f"with files of at most {LARGEST_FILE} bytes"
        return f"{what}: {thread.submit(_fill_up, session, source, root, mounted).result()}"


def _mount(folder: Path) -> bool:
    """Mount an empty file system of limited size in a namespace of this thread; False if this user may not."""
    system = ctypes.CDLL(None, use_errno=True)
    if system.unshare(CLONE_NEWNS) or system.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        return False
    return not system.mount(b"none", os.fsencode(folder), b"tmpfs", 0, f"size={SIZE}".encode())


def _fill_up(session: Session, source: Project, root: Path, mounted: bool) -> str:
    shutil.copytree(source.root, root, symlinks=True, dirs_exist_ok=True)
    project = Project(root, dict(source.variables))
    run = project.retrain()
    run.wait_for(lambda: len(project.stored_steps()) >= 2, what="two checkpoints are stored")
    step = max(project.stored_steps())
    make_room = _fill(root) if mounted else _limit(run)
    done = run.ended()
    expect(done.code == 2, f"the run ended with exit code {done.code} instead of 2: {done.last}")
    expect("space" in done.last, f"the message does not mention the space: {done.last}")
    kept = max(project.stored_steps(), default=0)
    expect(kept >= step, f"the checkpoint of step {step} was lost")
    make_room()
    project.pretrain()
    same = session.compare_pretrained(project)
    return f"exit code 2 with the reason, checkpoint of step {kept} kept; with space: {same}"


def _fill(root: Path) -> Callable[[], None]:
    """Fill the file system; returns what makes room again."""
    filler = root / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            block = b"\0" * size
            try:
                while True:
                    file.write(block)
            except OSError:
                continue
    return filler.unlink


def _limit(run: Running) -> Callable[[], None]:
    """Limit the size of files that the running stage writes; returns what makes room again."""
    for process in find(run, "stage"):
        _, hard = process.rlimit(psutil.RLIMIT_FSIZE)
        process.rlimit(psutil.RLIMIT_FSIZE, (LARGEST_FILE, hard))
    # The limit ends with the processes of the stage.
    return lambda: None
