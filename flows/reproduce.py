"""One stage in a process of the run: `python -m flows.reproduce ADDRESS OUTCOME [force]`.

DVC says whether the stage is out of date, and restores an output that its run cache has; otherwise the command is
executed here; then DVC records what it has made. The files are those that `dvc repro --single-item ADDRESS` leaves.
"""

import logging
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

from dvc.repo import Repo

from components.core.errors import ConfigError, report
from flows.plan import causes, of_dvc

#: Characters that only a shell understands, in a command that a user has written.
SHELL = {*"&|;<>$`*?~()\\\n"}
#: Seconds between two attempts to take the lock of DVC.
POLL_S = 1.0


def reproduce(address: str, *, force: bool = False) -> str:
    """Reproduce a stage of the repository in the working directory; returns the outcome: Completed, Cached (the output
    of an earlier run was restored) or Skipped.

    Raises:
        SystemExit: the command of the stage has failed, with its exit code.
    """
    with Repo() as repo:
        (stage,) = repo.stage.collect(address)
        outcome = _patiently(lambda: _prepare(repo, stage, force=force))
        if outcome == "Completed":
            with chdir(stage.wdir):
                for command in [stage.cmd] if isinstance(stage.cmd, str) else stage.cmd or ():
                    _execute(command)
        if outcome != "Skipped":
            _patiently(lambda: _record(repo, stage))
    return outcome


def _record(repo: Repo, stage: Any) -> None:
    """As `dvc commit`, but of the stage that has run: dvc.yaml may have changed since."""
    with repo.lock:
        stage.save()
        stage.commit()
        stage.dump(update_pipeline=False)


def _prepare(repo: Repo, stage: Any, *, force: bool) -> str:
    with repo.lock:
        if not force and not stage.changed():
            return "Skipped"
        stage.remove_outs()
        try:
            if not force:
                repo.stage_cache.restore(stage)
                return "Cached"
        except Exception as error:
            if type(error).__name__ != "RunCacheNotFoundError":
                raise
    return "Completed"


def _execute(command: str) -> None:
    """Execute a command of a stage; one of Headstart in this process, which has imported its modules."""
    name, verb, *_ = *shlex.split(command), ""
    if (name, verb) != ("headstart", "stage") or SHELL & {*command}:
        code = subprocess.run([os.environ.get("SHELL") or "/bin/sh", "-c", command], check=False).returncode
        if code < 0:
            os.kill(os.getpid(), -code)
        if code:
            sys.exit(code)
        return
    from components.cli.entry import main as headstart

    sys.argv = shlex.split(command)
    try:
        headstart()
    except SystemExit as ended:
        if ended.code:
            raise


def _patiently(act: Callable[[], Any]) -> Any:
    """Do something with DVC as soon as no other command of DVC holds its locks."""
    told = False
    while True:
        try:
            return act()
        except Exception as error:
            if type(error).__name__ != "LockError":
                raise
            if not told:
                print(f"waiting: {error}", flush=True)
            told = True
            time.sleep(POLL_S)


def main() -> None:
    address, outcome, *force = sys.argv[1:]
    logging.getLogger("dvc").setLevel(logging.WARNING)
    try:
        Path(outcome).write_text(reproduce(address, force=bool(force)), encoding="utf-8")
    except Exception as error:
        if not of_dvc(error):
            raise
        report(ConfigError(causes(error)))
        sys.exit(ConfigError.exit_code)


if __name__ == "__main__":
    main()
