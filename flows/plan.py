"""DVC's status of every stage, with reasons."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Sequence, Set
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.errors import ConfigError
from components.pipeline import running
from components.pipeline.dvc_yaml import installed_code
from components.pipeline.identity import STAGE as IDENTITY
from components.pipeline.identity import Identity, file_name, identities
from components.settings.loading import load_params

#: Time limit of a stage in seconds, unless its `meta` has one.
LIMIT_S = 3600.0
DATA = "data"
PARAMS = "params.yaml"
#: Maximum number of changed files of raw data that a reason names.
NAMED = 5
NOT_RUN = "has not run yet"


@dataclass(frozen=True)
class Stage:
    """A stage of dvc.yaml and the reasons for which DVC would run it.

    Attributes:
        reasons: one sentence per change; empty if the stage is up to date. `always` is not a reason.
        metrics: its metrics files, relative to the repository.
        force: whether DVC has to run it, because a full rebuild was requested or the package was replaced.
        present: whether all of its dependencies exist now.
        budget_until: time of `time.monotonic` at which the budget of the run is used up.
        measurements: file to which it appends its measurements; empty: none.
    """

    name: str
    address: str
    needs: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    always: bool = False
    metrics: tuple[str, ...] = ()
    limit_s: float = LIMIT_S
    retries: int = 0
    force: bool = False
    present: bool = True
    budget_until: float = math.inf
    measurements: str = ""

    @property
    def group(self) -> str:
        """The name without its item: `pretrain` for `pretrain@ulmfit`."""
        return self.name.partition("@")[0]


@dataclass(frozen=True)
class Plan:
    """The stages in topological order.

    Attributes:
        data: `absent`, `changed` or `same`: whether `data/` differs from data.dvc.
        problem: message if DVC could not read the pipeline, or if the settings are invalid.
        goals: names or groups of the stages that a part of a run is for; empty: a whole run.
    """

    stages: tuple[Stage, ...]
    data: str = "absent"
    problem: str | None = None
    goals: tuple[str, ...] = ()

    def refuse_problem(self) -> None:
        """Raise `problem`, if there is one.

        Raises:
            ConfigError: DVC could not read the pipeline, or the settings are invalid.
        """
        if self.problem:
            raise ConfigError(self.problem)

    def ancestors(self, names: set[str]) -> set[str]:
        """The named stages and all stages that they depend on, directly or indirectly."""
        reached = {*names}
        for stage in reversed(self.stages):
            if stage.name in reached:
                reached |= {*stage.needs}
        return reached


class Changes:
    """Compares the stages of a pipeline with their last runs.

    If code or settings have changed since the stage `identity` ran, the identities of all stages are computed here, so
    the reasons are those that DVC finds after that stage has run.

    Raises:
        ConfigError: the identities have to be computed and the settings are invalid.
    """

    def __init__(self, stages: Sequence[Any], repo: Any, *, params: Path) -> None:
        self.repo, self._made = repo, [str(out.fs_path) for stage in stages for out in stage.outs]
        writer = next((stage for stage in stages if stage.name == IDENTITY), None)
        self.folder = Path(writer.outs[0].fs_path) if writer is not None else None
        self._writer, self._params = writer, params

    @functools.cached_property
    def computed(self) -> dict[str, Identity] | None:
        """File name -> identity; None if the stage `identity` is up to date."""
        if self._writer is None or not (self._writer.status() or self.upgraded):
            return None
        return {
            file_name(stage, item): value
            for stage, items in identities(load_params(self._params)).items()
            for item, value in items.items()
        }

    @functools.cached_property
    def upgraded(self) -> bool:
        """Whether a dvc.yaml of the user names another version of the package than the one that is installed."""
        code = re.search(r" --code (\w+)", str(self._writer.cmd)) if self._writer is not None else None
        return code is not None and code[1] != installed_code()

    def _differs(self, name: str, now: Identity) -> bool:
        path = Path(str(self.folder)) / name
        return not path.is_file() or bool(now.changes(Identity.read(path)))

    def identity(self, stage: Any) -> Any:
        """The dependency of a DVC stage on its identity; None if it has none."""
        return next((each for each in stage.deps if self.folder and self.folder in Path(each.fs_path).parents), None)

    def requested(self, stage: Any) -> list[str]:
        """Why DVC is made to run a stage: the request of a full rebuild, or other installed code than that of the
        identities, which DVC does not see if dvc.yaml belongs to the user."""
        group, _, item = str(stage.name).partition("@")
        if group == IDENTITY and self.upgraded and any(self._differs(*each) for each in (self.computed or {}).items()):
            return ["another version of the package is installed"]
        reason = running.requested(self.folder.parent, group, item) if self.folder and item else ""
        return [f"a full rebuild was requested ({reason})"] if reason else []

    def reasons(self, stage: Any, *, files: bool = False) -> list[str]:
        """Why DVC would run a stage; empty if it is up to date."""
        if self.repo.tmp_dir is None:  # no repository yet
            return [NOT_RUN]
        identity = self.identity(stage)
        compared = identity is not None and bool(identity.hash_info)
        entries = stage.status().get(stage.addressing, [])
        states = [
            (path, state)
            for entry in entries
            if isinstance(entry, dict)
            for value in entry.values()
            for path, state in value.items()
            if not compared or path != str(identity)
        ]
        others = [entry for entry in entries if isinstance(entry, str) and entry != "always changed"]
        if (states or others) and not any(dependency.hash_info for dependency in stage.deps):
            # The stage is not in dvc.lock; DVC then reports every file as modified or deleted.
            return [NOT_RUN]
        raw = {str(each) for each in stage.deps if not any(_shares(str(each.fs_path), made) for made in self._made)}
        named = [
            f"{path} {_state(state)}{self._files(path) if files and path in raw else ''}" for path, state in states
        ]
        return (self._identity_changes(identity) if compared else []) + named + others

    def _identity_changes(self, dependency: Any) -> list[str]:
        path = Path(dependency.fs_path)
        try:
            name = path.relative_to(str(self.folder)).as_posix()
            now = Identity.read(path) if self.computed is None else self.computed[name]
        except (OSError, ValueError, KeyError):
            return [f"{dependency} is missing; the stage {IDENTITY} writes it"]
        try:
            before = Identity.read(Path(self.repo.cache.local.oid_to_path(dependency.hash_info.value)))
        except (OSError, ValueError):
            same = self.computed is None and not dependency.status()
            return [] if same else ["code or settings (the earlier identity is not in DVC's cache)"]
        return now.changes(before)

    @functools.cached_property
    def _changed(self) -> dict[str, str]:
        """Path -> how it has changed, for the files of `data/` that differ from data.dvc; if none does, for those of
        data.dvc that differ from the commit, if that has data."""
        how = {"added": "new", "modified": "changed", "deleted": "removed"}
        status = self.repo.data_status(granular=True, with_renames=False)
        committed = status["committed"] if f"{DATA}/" in status["committed"].get("modified", ()) else {}
        part = status["uncommitted"] or committed
        return {path: how[key] for key in how for path in part.get(key, ())}

    def _files(self, dependency: str) -> str:
        """`: a.txt (changed), b.txt (new)` for a folder of raw data."""
        below = f"{dependency}/"
        value = sorted((path, how) for path, how in self._changed.items() if path.startswith(below))
        named = [f"{path.removeprefix(below)} ({how})" for path, how in value if not path.endswith("/")]
        more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
        return f": {', '.join(named[:NAMED])}{more}" if named else ""


def _shares(path: str, other: str) -> bool:
    """Whether two paths are the same, or one is below the other."""
    return path == other or path.startswith(f"{other}/") or other.startswith(f"{path}/")


def _state(state: Any) -> str:
    return state if isinstance(state, str) else "(" + ", ".join(f"{key} {how}" for key, how in state.items()) + ")"


def of_dvc(error: Exception) -> bool:
    """Whether DVC has raised an error, for example because it cannot read a file."""
    return type(error).__module__.partition(".")[0] == "dvc"


def causes(error: BaseException | None) -> str:
    """The message of an error of DVC, with those of its causes."""
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__
    return ": ".join(filter(None, texts))


def read_plan(pipeline: Path, *, root: Path, files: bool = False) -> Plan:
    """The plan of a dvc.yaml; errors of DVC and of the settings are returned as `Plan.problem`.

    Args:
        files: whether reasons name the files of raw data that have changed.
    """
    from dvc.repo import Repo

    pipeline = pipeline.relative_to(root)
    try:
        # Of a folder that no run has made a repository yet, every stage has not run.
        with chdir(root), Repo(uninitialized=not Path(".dvc").is_dir(), root_dir=str(root)) as repo, repo.lock:
            read = repo.stage.load_all(str(pipeline))
            changes = Changes(read, repo, params=pipeline.with_name(PARAMS))
            stages = [_stage(*each, repo, changes, files=files) for each in ordered(read)]
            return Plan(stages=tuple(stages), data=_data(repo))
    except ConfigError as error:
        return Plan(stages=(), problem=str(error))
    except Exception as error:
        if not of_dvc(error):
            raise
        return Plan(stages=(), problem=f"{pipeline}: {error}")


def _needs(stage: Any, stages: Sequence[Any]) -> set[str]:
    """The names of the stages whose outputs a stage reads."""
    reads = [str(dependency.fs_path) for dependency in stage.deps]
    return {
        other.name
        for other in stages
        if other is not stage and any(_shares(path, str(out.fs_path)) for out in other.outs for path in reads)
    }


def ordered(stages: Sequence[Any]) -> Iterator[tuple[Any, set[str]]]:
    """DVC's stages in topological order, each with the names of those that it reads; the order in the file breaks
    ties, for reproducible runs.

    Raises:
        ConfigError: stages need each other.
    """
    left = {stage.name: (stage, _needs(stage, stages)) for stage in stages}
    while left:
        name = next((name for name, (_, needs) in left.items() if not needs & left.keys()), None)
        if name is None:
            raise ConfigError(f"{stages[0].path}: these stages need each other: {', '.join(left)}")
        yield left.pop(name)


def _stage(stage: Any, needs: Set[str], repo: Any, changes: Changes, *, files: bool) -> Stage:
    meta = stage.meta or {}
    requested = changes.requested(stage)
    return Stage(
        name=stage.name,
        address=f"{repo.fs.relpath(stage.path, repo.root_dir)}:{stage.name}",
        needs=tuple(sorted(needs)),
        reasons=(*requested, *changes.reasons(stage, files=files)),
        always=bool(stage.always_changed),
        metrics=tuple(repo.fs.relpath(out.fs_path, repo.root_dir) for out in stage.outs if out.metric),
        limit_s=60.0 * meta.get("minutes", LIMIT_S / 60),
        retries=meta.get("retries", 0),
        force=bool(requested),
        present=all(dependency.exists for dependency in stage.deps if dependency is not changes.identity(stage)),
    )


def _data(repo: Any) -> str:
    """`absent`, `changed` (or not yet added) or `same`."""
    if not Path(DATA).exists():
        return "absent"
    if not Path(f"{DATA}.dvc").exists() or repo.tmp_dir is None:
        return "changed"
    (stage,) = repo.stage.load_all(f"{DATA}.dvc")
    return "changed" if stage.status() else "same"
