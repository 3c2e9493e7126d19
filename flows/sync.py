"""Retrain with a shared repository: pull code and data, retrain, push and commit the results.

1. git: fetch the branch's upstream and take its commits. DVC: pull `data/` if `data.dvc` has changed.
2. `headstart retrain` in a process of its own, so that it runs the code that was pulled. It checks settings and data
   before anything runs.
3. DVC: push. git: commit `data.dvc` and `dvc.lock` with the decisions as message, and push.
4. A summary: commits, data, decisions, what was pushed.

Steps 1 and 3 hold the lock of the repository, which is the working directory. A repository without an upstream branch
or without a DVC remote skips the corresponding part and says so.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import chdir, suppress
from pathlib import Path
from typing import Annotated

import typer
from prefect import flow

from components.cli.common import PARAMS, ParamsFile
from components.core.artifacts import changing_data, write_atomic
from components.core.data_version import read_yaml
from components.core.errors import ConfigError, TransientError
from components.core.resources import PIPELINE
from components.data.checks.record import merge
from components.settings.checks import RECORD as CHECKS
from components.settings.imports import FOLDER
from flows import summary
from flows.execution import DVC, ask_dvc, run_command
from flows.flow_run import begin_scheduled
from flows.processes import end_session
from flows.repository import DATA_TO_PULL, STATE, Project
from flows.server import ensured, server
from flows.telemetry import run_name
from flows.terminal import terminal

DATA, DATA_DVC = "data", Path("data.dvc")
#: Files that runs write and that belong to the history of the repository.
LOCK = "*dvc.lock"
#: Data at an address: a folder or file, and the files of a task.
IMPORTED = tuple(f"{FOLDER}/{place}" for place in ("*/*.dvc", "*/*/*.dvc", "*/.gitignore", "*/*/.gitignore"))
#: Records that every run writes anew; only the versions of the data that a person has accepted are merged.
WRITTEN = (*IMPORTED, LOCK, f"*{CHECKS}", f"*{PIPELINE}")
RECORDS = ("data.dvc", *WRITTEN)
SOURCE = "sync"
#: `false`: commits are not pushed to git's upstream, because this clone may only read it.
PUSH = "HEADSTART_PUSH"
#: File that exists while a rebase of this module runs, and after one that was interrupted.
REBASING = Path(STATE, "rebasing")
#: Time limits in seconds: of a git command, of one that asks the upstream's server, of a
#: transfer with DVC, and of the whole retraining (each stage has its own in dvc.yaml).
GIT_S = 600.0
SERVER_S = 3600.0
TRANSFER_S = 24 * 3600.0
RETRAIN_S = 30 * 24 * 3600.0
#: Delays in seconds before git's server is asked again, and git's messages if it does not answer.
DELAYS_S = (2.0, 10.0, 30.0)
AWAY = re.compile(
    r"Could not resolve host|Connection (refused|timed out|reset)|Failed to connect|Operation timed out|"
    r"unable to access .*(50[0-9]|timed out)|early EOF|unexpected disconnect|Temporary failure"
)
#: Number of pushes if others push at the same time.
TRIES = 5
#: Commits that the summary names.
SHOWN = 5


@flow(name="sync", flow_run_name=run_name)
def sync(params: str = "params.yaml", *, push: bool = True) -> None:
    """Pull, retrain, push and commit.

    Args:
        push: whether to push to the DVC remote and, unless HEADSTART_PUSH is `false`, to git's upstream; the commit is
            made in any case.

    Raises:
        ConfigError: the repository has changes of its own, or its history has diverged from the upstream's.
        TransientError: the upstream does not answer.
        StageError: a command failed; nothing has been committed.
    """
    begin_scheduled()
    project = Project(Path(params))
    with ensured(), chdir(project.root):
        _sync(project, push=push)


def _sync(project: Project, *, push: bool) -> None:
    retrain = [sys.executable, "-m", "components.cli", "retrain", "--params", project.name]
    with project.locked("sync"):
        report = pull()
    before = summary.decided_at(project)
    run_command(retrain, source="retrain", limit_s=RETRAIN_S, stays=True)
    with project.locked("sync"):
        decided = summary.decided_at(project) != before
        decisions = summary.decisions(project, decided=decided)
        report += [*decisions, *publish(decisions=decisions, push=push)]
    terminal.say("")
    for line in report:
        terminal.say(line, source=SOURCE, stays=True)


def pull() -> list[str]:
    """Take the commits of the upstream branch, and the data that they name; returns what was taken, in words.

    Raises:
        ConfigError: files that git tracks have changed here, or data has changed both here and in the upstream.
        TransientError: the upstream does not answer.
    """
    if REBASING.exists():
        with suppress(ConfigError):  # it had not begun, or has ended
            git("rebase", "--abort")
        REBASING.unlink()
    changed = [line[3:] for line in _listed("status", "--porcelain", "--no-renames", "--untracked-files=no")]
    edited = [path for path in changed if not _is_record(path)]
    if edited:
        raise ConfigError(
            f"{Path.cwd()}: {', '.join(edited[:5])} changed here and not committed; commit or restore, then sync"
        )
    report = []
    upstream = _upstream()
    if upstream is None:
        report.append("code: the branch has no upstream; nothing is pulled")
    else:
        _ask("fetch", "--quiet", upstream.partition("/")[0])
        if (
            "data.dvc" in _changes(upstream)
            and not DATA_TO_PULL.exists()
            and ("data.dvc" in changed or _data_has_changed())
        ):
            raise ConfigError(_two_data(upstream))
        with changing_data(Path()):
            report.append(f"code: {_take(upstream, changed)}")
    if not DATA_TO_PULL.exists() and Path(DATA).exists():
        report.append("data: no new version")
    elif not _remote():
        report.append("data: there is no DVC remote; nothing is pulled")
    elif DATA_DVC.is_file():
        run_command([*DVC, "fetch", "--quiet", "data.dvc"], source=SOURCE, limit_s=TRANSFER_S)
        with changing_data(Path()):
            run_command([*DVC, "checkout", "--quiet", "data.dvc"], source=SOURCE, limit_s=TRANSFER_S)
        DATA_TO_PULL.unlink(missing_ok=True)
        (entry,) = (read_yaml(DATA_DVC) or {})["outs"]
        report.append(f"data: new version, {entry.get('nfiles', 1)} files, {entry['size'] / 1e6:.1f} MB")
    if _remote():
        report += _outputs()
    for line in report:
        terminal.say(line, source=SOURCE, stays=True)
    return report


def _outputs() -> list[str]:
    """Take the outputs that the records name, and the records of earlier runs, whose outputs DVC takes when a stage
    would make them again: nothing is trained that another clone has trained. What is not in DVC's remote is made
    here."""
    pipelines = [str(Path(path).with_name(PIPELINE)) for path in _listed("ls-files", "--", LOCK)]
    before = ask_dvc("status", "--json", *pipelines).stdout if pipelines else "{}"
    if before.strip() == "{}":
        return []
    ask_dvc("fetch", "--quiet", "--run-cache", *pipelines)
    ask_dvc("checkout", "--quiet", "--allow-missing", *pipelines)
    same = ask_dvc("status", "--json", *pipelines).stdout == before
    return [] if same else ["outputs: those of the last run are pulled"]


def _take(upstream: str, changed: Sequence[str]) -> str:
    """Rebase the branch onto its upstream; returns what is new, in words.

    Args:
        changed: records that a run has left uncommitted; the next run writes them again, but what a person has
            accepted is kept.
    """
    new = git("log", "--format=%h %s (%an)", f"HEAD..{upstream}").splitlines()
    if not new:
        return f"no new commits of {upstream}"
    theirs = _changes(upstream)
    others = _listed("ls-files", "--others", "--exclude-standard", "--", *WRITTEN)
    paths = [Path(path) for path in {*changed, *(set(others) & set(theirs))}]
    kept = {path: path.read_bytes() for path in paths if path.is_file()}
    if changed:
        git("checkout", "--quiet", "--", *changed)
    for path in kept.keys() - {*map(Path, changed)}:
        path.unlink()
    before = _data_version()
    DATA_TO_PULL.parent.mkdir(exist_ok=True)
    if "data.dvc" in theirs:
        # Before data.dvc changes: if the data is not pulled after that, it must not be taken for a newer version.
        DATA_TO_PULL.touch()
    REBASING.touch()
    try:
        _rebase(upstream)
    except ConfigError:
        REBASING.unlink()
        for path, text in kept.items():
            write_atomic(path, text)
        raise
    finally:
        if _data_version() == before:
            DATA_TO_PULL.unlink(missing_ok=True)
    REBASING.unlink()
    for path, text in kept.items():
        if path.name == CHECKS:
            write_atomic(path, merge(text.decode(), path.read_text("utf-8")) if path.is_file() else text)
    more = f" and {len(new) - SHOWN} more" if len(new) > SHOWN else ""
    return f"{len(new)} new commit(s) of {upstream}: {'; '.join(new[:SHOWN])}{more}"


def _rebase(upstream: str) -> None:
    """Rebase the branch onto its upstream.

    Where both have changed a record that the next run writes anew, the upstream's is taken.

    Raises:
        ConfigError: they have changed other files; the branch is as it was.
    """
    step: tuple[str, ...] = ("rebase", "--quiet", upstream)
    while True:
        try:
            git(*step)
            return
        except ConfigError as error:
            conflicts = _listed("diff", "--name-only", "--diff-filter=U")
            if not conflicts or not all(_is_record(path, WRITTEN) for path in conflicts):
                with suppress(ConfigError):  # it has not begun, for example because of an untracked file
                    git("rebase", "--abort")
                if "data.dvc" in conflicts:
                    raise ConfigError(_two_data(upstream)) from error
                raise
        for path in conflicts:
            _resolve(path)
        step = ("rebase", "--continue")


def _resolve(path: str) -> None:
    """Resolve a conflict in a record: accepted versions of both sides, otherwise the upstream's content."""
    sides = {line.split()[2] for line in _listed("ls-files", "--unmerged", "--", path)}
    if Path(path).name == CHECKS and sides >= {"2", "3"}:
        write_atomic(Path(path), merge(git("show", f":2:{path}"), git("show", f":3:{path}")))
    elif "2" in sides:
        # In a rebase the upstream's side is called "ours".
        git("checkout", "--quiet", "--ours", "--", path)
    else:
        git("rm", "--quiet", "--", path)
        return
    git("add", "--", path)


def _two_data(upstream: str) -> str:
    return (
        f"{Path.cwd()}: data/ changed here, and data.dvc in {upstream}; merge the data by hand (dvc add data, git "
        "merge), then sync"
    )


def publish(*, decisions: Sequence[str], push: bool) -> list[str]:
    """Push the outputs and commit the records of a run; nothing if a run has changed nothing. Returns what was done.

    Commits that others have pushed during the run are taken before the push.

    Raises:
        TransientError: the upstream does not answer.
        StageError: the outputs could not be pushed; nothing has been committed.
    """
    report = []
    if push and _remote():
        run_command([*DVC, "push", "--quiet", "--run-cache"], source=SOURCE, limit_s=TRANSFER_S)
        report.append("outputs: pushed to the DVC remote")
    wanted = ("--modified", "--others", "--exclude-standard")
    paths = sorted(set(_listed("ls-files", *wanted, "--", *RECORDS, f"*{PIPELINE}")))
    if paths:
        git("add", "--", *paths)
        first = f"Retrain: {decisions[0] if decisions else 'new outputs'}"
        git("commit", "--quiet", "--message", "\n".join([first, "", *decisions[1:], *paths]))
        report.append(f"commit: {', '.join(paths)}")
    else:
        report.append("commit: none, nothing has changed")
    upstream = _upstream()
    if push and upstream and _changes("HEAD", since=upstream):
        if os.environ.get(PUSH, "true") == "false":
            report.append(f"push: none, the commits stay in this clone ({PUSH}=false)")
        else:
            report.append(f"push: {_push(upstream)}")
    return report


def _push(upstream: str) -> str:
    remote, _, branch = upstream.partition("/")
    for _ in range(TRIES):
        try:
            _ask("push", "--quiet", remote, f"HEAD:{branch}")
            return f"to {upstream}"
        except ConfigError as error:
            # Others have pushed meanwhile, or this clone may not push.
            _ask("fetch", "--quiet", remote)
            if git("rev-list", "--count", f"HEAD..{upstream}").strip() == "0":
                raise error
            with changing_data(Path()):
                _take(upstream, [])
    return f"not to {upstream}, which others keep changing; the next run does it"


def _ask(*arguments: str) -> str:
    """The output of a git command, repeated if the upstream does not answer. Raises ConfigError or TransientError, as
    `git`."""
    for delay_s in (*DELAYS_S, None):
        try:
            return git(*arguments, limit_s=SERVER_S)
        except ConfigError as error:
            if not AWAY.search(str(error)):
                raise
            if delay_s is None:
                raise TransientError(str(error)) from error
            time.sleep(delay_s)
    raise AssertionError


def git(*arguments: str, limit_s: float = GIT_S) -> str:
    """The output of a git command.

    Raises:
        ConfigError: the command failed, with git's message.
        TransientError: it exceeded its time limit; all of its processes have ended.
    """
    # Without a terminal git must not ask for a password, or for the message of a commit.
    variables = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_EDITOR": "true"}
    with subprocess.Popen(
        ["git", *arguments],
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, message = process.communicate(timeout=limit_s)
        except BaseException as error:
            end_session(process.pid)  # also git's helpers, such as ssh
            if isinstance(error, subprocess.TimeoutExpired):
                raise TransientError(f"{Path.cwd()}: git {arguments[0]}: no end within {limit_s:g} seconds") from error
            raise
    if process.returncode:
        text = (message.strip() or output.strip()).replace("\n", "; ")
        raise ConfigError(f"{Path.cwd()}: git {arguments[0]}: {text or f'exit code {process.returncode}'}")
    return output


def _changes(revision: str, *, since: str = "HEAD") -> list[str]:
    return _listed("diff", "--name-only", f"{since}...{revision}")


def _listed(command: str, *arguments: str) -> list[str]:
    # Without -z git would quote names with spaces or letters beyond ASCII.
    return git(command, "-z", *arguments).split("\0")[:-1]


def _is_record(path: str, patterns: Sequence[str] = RECORDS) -> bool:
    return any(Path(path).match(pattern) for pattern in patterns)


def _upstream() -> str | None:
    """The upstream of the current branch, such as `origin/main`; None if there is none."""
    try:
        return git("rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}").strip()
    except ConfigError:
        return None


def _remote() -> bool:
    from dvc.repo import Repo

    with Repo() as repo:
        return bool(repo.config["core"].get("remote"))


def _data_version() -> bytes:
    return DATA_DVC.read_bytes() if DATA_DVC.is_file() else b""


def _data_has_changed() -> bool:
    """Whether data/ differs from data.dvc."""
    recorded = DATA_DVC.is_file() and Path(DATA).exists()
    return recorded and ask_dvc("status", "--quiet", "data.dvc").returncode != 0


def command(
    *,
    push: Annotated[bool, typer.Option(help="Push outputs to the DVC remote and commits to git's upstream.")] = True,
    params: ParamsFile = PARAMS,
) -> None:
    """Pull code and data, retrain, push and commit."""
    with server():
        sync(str(params), push=push)
