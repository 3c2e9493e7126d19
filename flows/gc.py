"""Delete what no run, server or rollback needs: `headstart gc [--yes]`. Without `--yes`, it is listed only."""

import os
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Final

import typer
from humanize import naturalsize

from components.cli.common import PARAMS, ParamsFile, print_table
from components.core.commits import git
from components.core.errors import ConfigError, HeadstartError
from components.core.resources import PIPELINE
from components.pipeline.monitoring.garbage import (
    Garbage,
    checkpoints,
    features,
    logs,
    old,
    old_versions,
    orphaned_outputs,
)
from components.registry.drift.traffic import traffic_folder
from components.settings.params import Params
from flows.execution import ask_dvc
from flows.plan import of_dvc
from flows.repository import STATE, Project, active_run, locked, recorded_outputs

#: Logs, and the traffic log of models that are not served any more, are deleted after so many days.
LOG_DAYS: Final = 30.0
#: Maximum number of lines of a kind that are printed.
SHOWN = 20
_REMOVING = re.compile(r"^Removing (.+)$", re.MULTILINE)


def collect(params: Params) -> Iterator[Garbage]:
    """Everything that can be deleted by the rule of `params.gc`.

    Raises:
        HeadstartError: the registry, the checkpoint storage or the DVC cache cannot be read.
    """
    rule, cluster = params.gc, params.cluster
    yield from old(checkpoints(cluster.storage), days=rule.checkpoint_days)
    yield from old(features(Path(cluster.features)), days=rule.checkpoint_days)
    former = [(name, Path(out["path"])) for name, outs in recorded_outputs(Path("dvc.lock")).items() for out in outs]
    yield from orphaned_outputs(former, current_outputs())
    yield from old(logs(Path(STATE), traffic_folder()), days=LOG_DAYS)
    yield from old_versions(params)
    yield from unused_cache()


def current_outputs() -> list[Path]:
    """The outputs of all stages of the repository, in any of its dvc.yaml files.

    Raises:
        ConfigError: DVC cannot read one of them.
    """
    from dvc.repo import Repo

    try:
        with Repo() as repo:
            return [Path(output.fs_path) for stage in repo.index.stages for output in stage.outs]
    except Exception as error:
        if not of_dvc(error):
            raise
        raise ConfigError(f"{Path.cwd() / PIPELINE}: {error}") from error


def unused_cache() -> Iterator[Garbage]:
    """Files of the DVC cache that neither the working tree nor any commit uses, as one entry.

    A cache outside of the repository may belong to other repositories, too; it is left alone.

    Raises:
        ConfigError: DVC failed.
    """
    cache = Path(_dvc("cache", "dir").strip())
    if Path.cwd() not in cache.resolve().parents:
        print(f"{cache}: the DVC cache is outside of the repository; it is left alone")
        return
    has_git = git(Path(), "rev-parse", "HEAD") is not None
    flags = ["gc", "--force", "--workspace", *(["--all-commits"] if has_git else [])]
    files = [Path(path) for path in _REMOVING.findall(_dvc(*flags, "--dry"))]
    size = sum(file.stat().st_size for file in files if file.is_file())
    if files:
        reason = "used by no commit and not by the working tree" if has_git else "not used by the working tree"
        yield Garbage("DVC cache", f"{len(files)} files of {cache}", size, lambda: _dvc(*flags), reason)


def _dvc(*arguments: str) -> str:
    done = ask_dvc(*arguments)
    if done.returncode:
        raise ConfigError(f"dvc {arguments[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def show(listed: list[Garbage]) -> None:
    """Print what was found, the largest of each kind first."""
    rows = []
    for kind in dict.fromkeys(item.kind for item in listed):
        items = sorted((item for item in listed if item.kind == kind), key=lambda item: -item.size)
        rows += [(kind, item.name, naturalsize(item.size), item.reason) for item in items[:SHOWN]]
        if rest := items[SHOWN:]:
            rows.append((kind, f"and {len(rest)} more", naturalsize(sum(item.size for item in rest)), ""))
    print_table(("kind", "what", "size", "why"), rows, width=160)


def command(
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it, nothing is deleted.")] = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Delete old checkpoints, caches, versions and logs by the rule `gc` in params.yaml; without --yes, list them."""
    project = Project(params)
    root = project.root
    os.chdir(root)
    if yes and (holder := active_run(root)):
        raise ConfigError(f"{holder} holds the lock of this repository; run `headstart gc --yes` when it has ended")
    with locked(root, what="gc", say=print) if yes else nullcontext():
        garbage = list(collect(project.settings))
        if not garbage:
            print("nothing to delete")
            return
        show(garbage)
        if not yes:
            total = naturalsize(sum(item.size for item in garbage))
            print(f"{total} can be deleted: `headstart gc --yes`. The rule is the section `gc` of params.yaml.")
            return
        freed, failed = 0, []
        for item in garbage:
            try:
                item.delete()
                freed += item.size
            except (OSError, HeadstartError) as error:
                failed.append(f"{item.name}: not deleted ({error})")
    print(f"{naturalsize(freed)} deleted")
    for line in failed:
        print(line)
