"""Lineage of a model: versions of its data, DVC's lock, the git commit."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.data_version import UNKNOWN, DataVersion, data_versions, lock_stages


@dataclass(frozen=True)
class Lineage:
    """Data, code and stages of one run of the pipeline.

    Attributes:
        commit: git commit, or "unknown" outside of a repository.
        dirty: "true" if tracked files differ from the commit, else "false"; "unknown" outside of a repository.
        inputs: path of each input of the run -> its version. Several inputs may have one version, that of the folder
            that holds them.
        lock: SHA-256 of the lock's stages except `register` and `promote`, whose outputs change with every
            registration; "unknown" without a lock.
        stages: the lock's stages by name, as DVC writes them.
    """

    commit: str
    dirty: str
    inputs: dict[str, DataVersion]
    lock: str
    stages: dict[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> dict[str, str]:
        """Path -> digest of the data that the run has read."""
        return _digests(self.inputs)

    def stages_of(self, path: str) -> list[tuple[str, dict[str, Any]]]:
        """Name and entry of the DVC stages that write `path`, relative to the repository, or outputs below it."""
        return [
            (name, stage)
            for name, stage in self.stages.items()
            if any(out["path"] == path or out["path"].startswith(f"{path}/") for out in stage.get("outs", []))
        ]

    def data_of(self, output: Path) -> dict[str, str]:
        """Path -> digest of the data that the stage of `output` or a stage before it has read; all data of the run if
        the lock does not hold the stage."""
        if not self.stages_of(output.as_posix()):
            return self.data
        waiting, reached = [output.as_posix()], set[str]()
        while waiting:
            path = waiting.pop()
            if path not in reached:
                reached.add(path)
                waiting += [entry["path"] for _, stage in self.stages_of(path) for entry in stage.get("deps", [])]
        return _digests({path: version for path, version in self.inputs.items() if path in reached})

    def datasets(self, output: Path) -> list[DataVersion]:
        """Inputs of `output`: the data, then the outputs of other stages that its stage depends on, with DVC's MD5."""
        dependencies = [entry for _, stage in self.stages_of(output.as_posix()) for entry in stage.get("deps", [])]
        return [DataVersion(path, digest) for path, digest in self.data_of(output).items()] + [
            DataVersion(entry["path"], entry["md5"])
            for entry in dependencies
            if entry.get("md5") and self.stages_of(entry["path"])
        ]

    def tags(self, output: Path) -> dict[str, str]:
        """Tags of a model version."""
        stages = self.stages_of(output.as_posix())
        outs = {out["path"]: out.get("md5", UNKNOWN) for _, stage in stages for out in stage.get("outs", [])}
        return {
            "git_commit": self.commit,
            "git_dirty": self.dirty,
            "dvc_lock": self.lock,
            "dvc_stage": stages[0][0] if stages else UNKNOWN,
            "dvc_output": outs.get(output.as_posix(), UNKNOWN),
            "data": ", ".join(f"{path}={digest}" for path, digest in self.data_of(output).items()) or UNKNOWN,
        }


def read_lineage(project: Path, *, out: Path, data: Mapping[str, Path]) -> Lineage:
    """Read the lineage of a run.

    Args:
        project: the repository.
        out: the run's folder.
        data: output of the run that is made from raw data -> path of the data.

    Raises:
        ArtifactError: the lock or a .dvc file is damaged, or data cannot be read.
    """
    stages = lock_stages(project, out=out)
    versions = data_versions(data, project=project, out=out)
    commit, dirty = _git(project)
    counted = {name: stage for name, stage in stages.items() if name not in ("register", "promote")}
    digest = hashlib.sha256(json.dumps(counted, sort_keys=True, default=str).encode()).hexdigest()
    return Lineage(
        commit=commit,
        dirty=dirty,
        inputs={Path(path).as_posix(): versions[name] for name, path in data.items()},
        lock=digest if counted else UNKNOWN,
        stages=stages,
    )


def _digests(versions: Mapping[str, DataVersion]) -> dict[str, str]:
    return {version.path: version.digest for version in versions.values()}


def _git(project: Path) -> tuple[str, str]:
    def ask(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(project), *arguments], capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout.strip()

    try:
        return ask("rev-parse", "HEAD"), "true" if ask("status", "--porcelain", "--untracked-files=no") else "false"
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN, UNKNOWN
