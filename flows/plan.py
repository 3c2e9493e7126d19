"""What DVC thinks of every stage, as JSON: `python -m flows.plan dvc.yaml`.

A process of its own: DVC's locks, its working directory and its logging belong to the process that imports it, and the
flow imports Prefect only. One reading of the whole pipeline costs a second; `dvc repro` of each stage would cost half
a second a stage only to say that nothing has changed.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from components.errors import ConfigError

#: Seconds, if `meta` of a stage does not say.
LIMIT_S = 3600.0
DATA = "data"


@dataclass(frozen=True)
class Stage:
    """A stage of dvc.yaml and why DVC would run it.

    `needs` are the stages whose outputs it reads. `reasons` is empty for a stage that is up to date; a stage that
    always runs has none of its own by that. `present`: all that it reads exists now. Paths are relative to the
    repository.
    """

    name: str
    address: str
    needs: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    always: bool = False
    metrics: tuple[str, ...] = ()
    limit_s: float = LIMIT_S
    retries: int = 0
    present: bool = True

    @property
    def group(self) -> str:
        """`pretrain` of `pretrain@ulmfit`."""
        return self.name.partition("@")[0]


@dataclass(frozen=True)
class Plan:
    """The stages in the order of the graph; whether `data/` differs from data.dvc."""

    stages: tuple[Stage, ...]
    data: str = "absent"
    problem: str | None = field(default=None)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """What `python -m flows.plan` prints."""
        raw: dict[str, Any] = json.loads(text)
        stages: list[dict[str, Any]] = [
            {key: tuple(value) if isinstance(value, list) else value for key, value in stage.items()}
            for stage in raw.pop("stages")
        ]
        return cls(stages=tuple(Stage(**stage) for stage in stages), **raw)

    def refuse_problem(self) -> None:
        """Stop at what DVC could not read.

        Raises:
            ConfigError: with DVC's message.
        """
        if self.problem:
            raise ConfigError(self.problem)

    def ancestors(self, names: set[str]) -> set[str]:
        """The named stages and all that they need, directly or not."""
        by_name = {stage.name: stage for stage in self.stages}
        found: set[str] = set()
        waiting = sorted(names)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(by_name[name].needs)
        return found


def read_plan(pipeline: Path) -> Plan:
    """Ask DVC; run in the repository's root."""
    import networkx
    from dvc.exceptions import DvcException
    from dvc.repo import Repo
    from dvc.repo.index import Index

    try:
        with Repo() as repo, repo.lock:
            index = Index.from_file(repo, str(pipeline))
            # Edges go from a stage to those that it needs; sorted by the file's own order, so that runs look alike.
            place = {stage: number for number, stage in enumerate(index.stages)}
            order = networkx.lexicographical_topological_sort(index.graph.reverse(), key=place.__getitem__)
            stages = tuple(_stage(stage, index.graph, repo) for stage in order)
            return Plan(stages=stages, data=_data(repo))
    except DvcException as error:
        return Plan(stages=(), problem=f"{pipeline}: {error}")


def _stage(stage: Any, graph: Any, repo: Any) -> Stage:
    entries = stage.status().get(stage.addressing, [])
    reasons = [
        f"{what} {_changed(state)}"
        for entry in entries
        if isinstance(entry, dict)
        for files in entry.values()
        for what, state in files.items()
    ]
    reasons += [entry for entry in entries if isinstance(entry, str) and entry != "always changed"]
    if reasons and not any(dependency.hash_info for dependency in stage.deps):
        # dvc.lock does not know it: DVC calls every file modified or deleted then.
        reasons = ["it has not run yet"]
    meta = stage.meta or {}
    return Stage(
        name=stage.name,
        address=f"{repo.fs.relpath(stage.path, repo.root_dir)}:{stage.name}",
        needs=tuple(sorted(needed.name for needed in graph.successors(stage) if needed.name)),
        reasons=tuple(reasons),
        always=bool(stage.always_changed),
        metrics=tuple(repo.fs.relpath(out.fs_path, repo.root_dir) for out in stage.outs if out.metric),
        limit_s=60.0 * meta.get("minutes", LIMIT_S / 60),
        retries=meta.get("retries", 0),
        present=all(dependency.exists for dependency in stage.deps),
    )


def _changed(state: Any) -> str:
    """DVC's word for a dependency (a text), or for the keys of a params file (a map)."""
    return state if isinstance(state, str) else "(" + ", ".join(f"{key} {how}" for key, how in state.items()) + ")"


def _data(repo: Any) -> str:
    """`absent`, `changed` (also: never added) or `same`."""
    if not Path(DATA).exists():
        return "absent"
    if not Path(f"{DATA}.dvc").exists():
        return "changed"
    (stage,) = repo.stage.load_all(f"{DATA}.dvc")
    return "changed" if stage.status() else "same"


if __name__ == "__main__":
    print(json.dumps(asdict(read_plan(Path(sys.argv[1])))))
