"""DVC's status of every stage, written as JSON: `python -m flows.plan dvc.yaml plan.json`.

Runs in a process of its own: DVC takes locks, depends on the working directory and configures logging, and the flow
imports Prefect only. The status of the whole pipeline takes about a second; `dvc repro` takes half a second per stage
even if nothing has changed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from components.core.artifacts import write_atomic
from components.core.errors import ConfigError
from flows.changes import Changes

#: Time limit of a stage in seconds, unless its `meta` has one.
LIMIT_S = 3600.0
DATA = "data"
PARAMS = "params.yaml"


@dataclass(frozen=True)
class Stage:
    """A stage of dvc.yaml and the reasons for which DVC would run it.

    Attributes:
        reasons: one sentence per change; empty if the stage is up to date. `always` is not a reason.
        always: whether the stage runs even if nothing has changed.
        metrics: its metrics files, relative to the repository.
        limit_s: time limit in seconds.
        retries: number of retries after a crash.
        force: whether DVC has to run it, because a full rebuild was requested.
        present: whether all of its dependencies exist now.
        budget_until: time of `time.monotonic` at which the budget of the run is used up; None: no limit.
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
    def from_json(cls, text: str) -> Plan:
        """Parse the content of the file that `python -m flows.plan` writes."""
        raw: dict[str, Any] = json.loads(text)
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


def compute_plan(pipeline: Path, *, files: bool = False) -> Plan:
    """The plan of a dvc.yaml; errors of DVC and of the settings are returned as `Plan.problem`.

    The working directory must be the root of the repository.

    Args:
        files: whether the reasons name the files of raw data that have changed.
    """
    import networkx
    from dvc.exceptions import DvcException
    from dvc.repo import Repo
    from dvc.repo.index import Index

    try:
        with Repo() as repo, repo.lock:
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
    if not Path(f"{DATA}.dvc").exists():
        return "changed"
    (stage,) = repo.stage.load_all(f"{DATA}.dvc")
    return "changed" if stage.status() else "same"


if __name__ == "__main__":
    write_atomic(Path(sys.argv[2]), json.dumps(asdict(compute_plan(Path(sys.argv[1])))))
