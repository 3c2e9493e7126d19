"""DVC's status of every stage, with reasons."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.errors import ConfigError
from components.pipeline import running
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
        force: whether DVC has to run it, because a full rebuild was requested.
        present: whether all of its dependencies exist now.
        budget_until: time of `time.monotonic` at which the budget of the run is used up; None: no limit.
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
    budget_until: float | None = None
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
    """

    stages: tuple[Stage, ...]
    data: str = "absent"
    problem: str | None = None

    @classmethod
    def of(cls, raw: dict[str, Any]) -> Plan:
        """The plan of the dictionary that a process for DVC answers with."""
        stages: list[dict[str, Any]] = [
            {key: tuple(value) if isinstance(value, list) else value for key, value in stage.items()}
            for stage in raw.pop("stages")
        ]
        return cls(stages=tuple(Stage(**stage) for stage in stages), **raw)

    def refuse_problem(self) -> None:
        """Raise `problem`, if there is one.

        Raises:
            ConfigError: DVC could not read the pipeline, or the settings are invalid.
        """
        if self.problem:
            raise ConfigError(self.problem)

    def ancestors(self, names: set[str]) -> set[str]:
        """The named stages and all stages that they depend on, directly or indirectly."""
        by_name = {stage.name: stage for stage in self.stages}
        reached: set[str] = set()
        waiting = sorted(names)
        while waiting:
            name = waiting.pop()
            if name not in reached:
                reached.add(name)
                waiting.extend(by_name[name].needs)
        return reached


class Changes:
    """Compares the stages of a pipeline with their last runs.

    If code or settings have changed since the stage `identity` ran, the identities of all stages are computed here, so
    the reasons are those that DVC finds after that stage has run.

    Raises:
        ConfigError: the identities have to be computed and the settings are invalid.
    """

    def __init__(self, index: Any, repo: Any, *, params: Path) -> None:
        self.graph, self.repo = index.graph, repo
        writer = next((stage for stage in index.stages if stage.name == IDENTITY), None)
        self.folder = Path(writer.outs[0].fs_path) if writer is not None else None
        self._writer, self._params = writer, params

    @functools.cached_property
    def computed(self) -> dict[str, Identity] | None:
        """File name -> identity; None if the stage `identity` is up to date."""
        if self._writer is None or not self._writer.status():
            return None
        return {
            file_name(stage, item): value
            for stage, items in identities(load_params(self._params)).items()
            for item, value in items.items()
        }

    def identity(self, stage: Any) -> Any:
        """The dependency of a DVC stage on its identity; None if it has none."""
        return next((each for each in stage.deps if self.folder and self.folder in Path(each.fs_path).parents), None)

    def requested(self, stage: Any) -> list[str]:
        """The request of a full rebuild of a DVC stage, as a reason."""
        group, _, item = str(stage.name).partition("@")
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
        raw = {str(each): each for each in stage.deps if not self._made(each, stage)} if files else {}
        named = [f"{path} {_state(state)}{self._files(raw[path]) if path in raw else ''}" for path, state in states]
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

    def _made(self, dependency: Any, stage: Any) -> bool:
        """Whether a dependency of a stage is an output of another stage."""
        path = Path(dependency.fs_path)
        outs = [Path(out.fs_path) for needed in self.graph.successors(stage) for out in needed.outs if needed.name]
        return any(path == out or out in path.parents or path in out.parents for out in outs)

    def _files(self, dependency: Any) -> str:
        """`: a.txt (changed), b.txt (new)` for a folder of raw data, by DVC's listing in which it has the MD5 of the
        last run."""
        from dvc_data.hashfile.build import build
        from dvc_data.hashfile.hash_info import HashInfo
        from dvc_data.hashfile.tree import Tree

        path, before, odb = Path(dependency.fs_path), dependency.hash_info, self.repo.cache.local
        # DVC keeps no listing of a folder outside of the repository, such as the code of an installed Headstart.
        if not path.is_dir() or not before or not path.is_relative_to(self.repo.root_dir):
            return ""
        _, _, now = build(odb, str(path), dependency.fs, "md5", ignore=self.repo.dvcignore, dry_run=True)
        new = _listing(now)
        below = path.relative_to(self.repo.root_dir).parts[1:]
        for listing in Path(odb.path).glob("*/*.dir"):
            part = Tree()
            version = Tree.load(odb, HashInfo("md5", listing.parent.name + listing.name))
            for key, (meta, oid) in version.as_dict().items():
                if key[: len(below)] == below:
                    part.add(key[len(below) :], meta, oid)
            part.digest()
            if part.hash_info == before:
                old = _listing(part)
                value = [
                    f"{name} ({'new' if name not in old else 'removed' if name not in new else 'changed'})"
                    for name in sorted({*old, *new})
                    if old.get(name) != new.get(name)
                ]
                more = f" and {len(value) - NAMED} more" if len(value) > NAMED else ""
                return f": {', '.join(value[:NAMED])}{more}"
        return ""


def _listing(tree: Any) -> dict[str, str]:
    return {"/".join(key): oid.value for key, (_, oid) in tree.as_dict().items()}


def _state(state: Any) -> str:
    return state if isinstance(state, str) else "(" + ", ".join(f"{key} {how}" for key, how in state.items()) + ")"


def compute_plan(pipeline: Path, *, files: bool = False) -> Plan:
    """The plan of a dvc.yaml; errors of DVC and of the settings are returned as `Plan.problem`. The working directory
    must be the root of the repository."""
    import networkx
    from dvc.exceptions import DvcException
    from dvc.repo import Repo
    from dvc.repo.index import Index

    try:
        # Of a folder that no run has made a repository yet, every stage has not run.
        with Repo(uninitialized=not Path(".dvc").is_dir(), root_dir=str(Path.cwd())) as repo, repo.lock:
            index = Index.from_file(repo, str(pipeline))
            # Edges go from a stage to its dependencies. The order in the file breaks ties, for reproducible runs.
            position = {stage: number for number, stage in enumerate(index.stages)}
            order = networkx.lexicographical_topological_sort(index.graph.reverse(), key=position.__getitem__)
            changes = Changes(index, repo, params=pipeline.with_name(PARAMS))
            stages = tuple(_stage(stage, index.graph, repo, changes, files=files) for stage in order)
            return Plan(stages=stages, data=_data(repo))
    except DvcException as error:
        return Plan(stages=(), problem=f"{pipeline}: {error}")
    except ConfigError as error:
        return Plan(stages=(), problem=str(error))


def _stage(stage: Any, graph: Any, repo: Any, changes: Changes, *, files: bool) -> Stage:
    meta = stage.meta or {}
    requested = changes.requested(stage)
    return Stage(
        name=stage.name,
        address=f"{repo.fs.relpath(stage.path, repo.root_dir)}:{stage.name}",
        needs=tuple(sorted(needed.name for needed in graph.successors(stage) if needed.name)),
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
