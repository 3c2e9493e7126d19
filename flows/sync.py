"""Retrain in step with a shared repository: pull code and data, retrain, push and commit what came out.

1. git: fetch the branch's upstream and take its commits. DVC: pull `data/` if `data.dvc` has changed.
2. `headstart retrain` in a process of its own, so that it runs the code that was pulled.
3. DVC: push. git: commit `data.dvc` and `dvc.lock` with the decisions as message, and push.

Steps 1 and 3 hold the repository's lock. A repository without an upstream branch or without a DVC remote skips the
corresponding part and says so.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from prefect import flow

from components.artifacts import write_atomic
from components.data_checks.record import merge
from components.errors import ConfigError
from components.settings.checks import RECORD as CHECKS
from flows import summary
from flows.command import PARAMS, ParamsFile, main
from flows.dvc_tasks import DVC, run_command
from flows.repository import PIPELINE, find_root, locked
from flows.terminal import terminal

DATA = "data"
#: Files that runs write and that belong to the history of the repository.
RECORDS = ("data.dvc", "*dvc.lock", f"*{CHECKS}")
SOURCE = "sync"
#: Time limits in seconds: of a transfer with DVC, and of the whole retraining (each stage has its own in dvc.yaml).
TRANSFER_S = 24 * 3600.0
RETRAIN_S = 30 * 24 * 3600.0


@flow(name="sync", flow_run_name="sync {params}")
def sync(params: str = "params.yaml", *, push: bool = True) -> None:
    """Pull, retrain, push and commit.

    Args:
        params: the settings file.
        push: whether to push to the DVC remote and to git's upstream; the commit is made in any case.

    Raises:
        ConfigError: the repository has changes of its own, or its history has diverged from the upstream's.
        StageError: a command failed; nothing has been committed.
    """
    file = Path(params).resolve()
    root = find_root(file.parent)
    with locked(root, what=f"sync {params}", say=terminal.say):
        pull(root)
    arguments = ["--params", str(file.relative_to(root))]
    run_command([sys.executable, "-m", "flows.retrain", *arguments], source="retrain", root=root, limit_s=RETRAIN_S)
    with locked(root, what=f"sync {params}", say=terminal.say):
        publish(root, decisions=summary.decisions(root=root, params=file), push=push)


def pull(root: Path) -> None:
    """Take the commits of the upstream branch, and the data that they name.

    Raises:
        ConfigError: files that git tracks have changed here, or data has changed both here and in the upstream.
    """
    changed = [line[3:] for line in git(root, "status", "--porcelain", "--untracked-files=no").splitlines()]
    own = [path for path in changed if not any(Path(path).match(pattern) for pattern in RECORDS)]
    if own:
        raise ConfigError(f"{root}: {', '.join(own[:5])} changed here and not committed; commit or restore, then sync")
    before = _data_version(root)
    upstream = _upstream(root)
    if upstream is None:
        terminal.say("the branch has no upstream; no code is pulled", source=SOURCE)
    else:
        git(root, "fetch", "--quiet", upstream.partition("/")[0])
        theirs = git(root, "diff", "--name-only", f"HEAD...{upstream}").split()
        new = git(root, "rev-list", "--count", f"HEAD..{upstream}").strip()
        if "data.dvc" in theirs and _data_has_changed(root):
            raise ConfigError(
                f"{root}: data/ changed here, and data.dvc in {upstream}; merge the data by hand "
                "(dvc add data, git merge), then sync"
            )
        if new != "0":
            # Records that a run has left uncommitted are written again by the next run, but what a person has accepted
            # is kept.
            accepted = {root / path: (root / path).read_text("utf-8") for path in changed if Path(path).name == CHECKS}
            if changed:
                git(root, "checkout", "--quiet", "--", *changed)
            try:
                git(root, "rebase", "--quiet", upstream)
            except ConfigError:
                git(root, "rebase", "--abort")
                raise
            finally:
                for path, ours in accepted.items():
                    write_atomic(path, merge(ours, path.read_text("utf-8")))
            terminal.say(f"{new} new commits of {upstream}", source=SOURCE)
    if _data_version(root) != before or not (root / DATA).exists():
        if not _remote(root):
            terminal.say("there is no DVC remote; no data is pulled", source=SOURCE)
        elif (root / "data.dvc").is_file():
            run_command([*DVC, "pull", "--quiet", "data.dvc"], source=SOURCE, root=root, limit_s=TRANSFER_S)
            terminal.say("new version of data/", source=SOURCE)


def publish(root: Path, *, decisions: Sequence[str], push: bool) -> None:
    """Push the outputs and commit the records of a run; nothing if a run has changed nothing."""
    if push and _remote(root):
        run_command([*DVC, "push", "--quiet"], source=SOURCE, root=root, limit_s=TRANSFER_S)
    files = git(root, "ls-files", "--modified", "--others", "--exclude-standard", "--", *RECORDS, f"*{PIPELINE}")
    paths = sorted(set(files.splitlines()))
    if paths:
        git(root, "add", "--", *paths)
        first = f"Retrain: {decisions[0] if decisions else 'new outputs'}"
        git(root, "commit", "--quiet", "--message", "\n".join([first, "", *decisions[1:], *paths]))
        terminal.say(f"committed {', '.join(paths)}", source=SOURCE)
    else:
        terminal.say("nothing has changed; nothing is committed", source=SOURCE)
    upstream = _upstream(root)
    if push and upstream and git(root, "rev-list", "--count", f"{upstream}..HEAD").strip() != "0":
        remote, _, branch = upstream.partition("/")
        git(root, "push", "--quiet", remote, f"HEAD:{branch}")
        terminal.say(f"pushed to {upstream}", source=SOURCE)


def git(root: Path, *arguments: str) -> str:
    """The output of a git command.

    Raises:
        ConfigError: the command failed, with git's message.
    """
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        text = (done.stderr.strip() or done.stdout.strip()).replace("\n", "; ")
        raise ConfigError(f"{root}: git {arguments[0]}: {text or f'exit code {done.returncode}'}")
    return done.stdout


def _upstream(root: Path) -> str | None:
    """The upstream of the current branch, such as `origin/main`; None if there is none."""
    try:
        return git(root, "rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}").strip()
    except ConfigError:
        return None


def _remote(root: Path) -> bool:
    """Whether DVC has a default remote."""
    command = [*DVC, "config", "core.remote"]
    return bool(subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout.strip())


def _data_version(root: Path) -> str:
    path = root / "data.dvc"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _data_has_changed(root: Path) -> bool:
    """Whether data/ differs from data.dvc."""
    if not (root / "data.dvc").is_file() or not (root / DATA).exists():
        return False
    command = [*DVC, "status", "--quiet", "data.dvc"]
    return subprocess.run(command, cwd=root, capture_output=True, check=False).returncode != 0


def command(
    *,
    push: Annotated[bool, typer.Option(help="Push outputs to the DVC remote and commits to git's upstream.")] = True,
    params: ParamsFile = PARAMS,
) -> None:
    """Pull code and data, retrain, push and commit."""
    sync(str(params), push=push)


if __name__ == "__main__":
    main(command)
