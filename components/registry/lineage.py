"""Lineage of a model: digests of its data, DVC's lock, the git commit.

`dvc.lock` and `data.dvc` are read as YAML, because components do not import DVC.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from components.errors import ArtifactError
from components.tracking import DatasetDigest

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Lineage:
    """Data, code and stages of one run of the pipeline.

    Attributes:
        commit: git commit, or "unknown" outside of a repository.
        dirty: "true" if tracked files differ from the commit, else "false"; "unknown" outside of a repository.
        data: digest of data/ from data.dvc, or None if data is not versioned.
        lock: SHA-256 of the lock's stages except `register` and `promote`, whose outputs change with every
            registration; "unknown" without a lock.
        stages: the lock's stages by name, as DVC writes them.
    """

    commit: str
    dirty: str
    data: DatasetDigest | None
    lock: str
    stages: dict[str, Any] = field(default_factory=dict)

    def stage_of(self, output: Path) -> tuple[str, dict[str, Any]] | None:
        """Name and entry of the DVC stage that writes `output` (relative to the repository)."""
        wanted = output.as_posix()
        for name, stage in self.stages.items():
            if any(out.get("path") == wanted for out in stage.get("outs", [])):
                return name, stage
        return None

    def datasets(self, output: Path) -> list[DatasetDigest]:
        """Inputs of `output`: data/ as a whole, then every dependency of its stage with DVC's MD5."""
        found = [self.data] if self.data is not None else []
        stage = self.stage_of(output)
        dependencies = stage[1].get("deps", []) if stage is not None else []
        return found + [
            DatasetDigest(dependency["path"], dependency["md5"])
            for dependency in dependencies
            if dependency.get("md5") and not dependency["path"].startswith("components")  # code
        ]

    def tags(self, output: Path) -> dict[str, str]:
        """Tags of a model version."""
        stage = self.stage_of(output)
        outs = {out["path"]: out.get("md5", UNKNOWN) for out in stage[1].get("outs", [])} if stage is not None else {}
        return {
            "git_commit": self.commit,
            "git_dirty": self.dirty,
            "dvc_lock": self.lock,
            "dvc_stage": stage[0] if stage is not None else UNKNOWN,
            "dvc_output": outs.get(output.as_posix(), UNKNOWN),
            "data": self.data.digest if self.data is not None else UNKNOWN,
        }


def read_lineage(project: Path, *, out: Path) -> Lineage:
    """Read the lineage of a run from the repository's data.dvc, its commit, and DVC's lock.

    Args:
        project: the repository.
        out: the run's folder. Its lock is the one that knows outputs below it: dvc.lock, or that of an experiment
            (experiments/NAME/dvc.lock).

    Raises:
        ArtifactError: the lock or `data.dvc` is damaged.
    """
    stages = _stages(project, out)
    outs = (_yaml(project / "data.dvc") or {}).get("outs", [])
    data = DatasetDigest(str(outs[0].get("path", "data")), str(outs[0]["md5"])) if outs and outs[0].get("md5") else None
    commit, dirty = _git(project)
    counted = {name: stage for name, stage in stages.items() if name not in ("register", "promote")}
    digest = hashlib.sha256(json.dumps(counted, sort_keys=True, default=str).encode()).hexdigest()
    return Lineage(commit=commit, dirty=dirty, data=data, lock=digest if counted else UNKNOWN, stages=stages)


def _stages(project: Path, out: Path) -> dict[str, Any]:
    for path in (project / "dvc.lock", *sorted(project.glob("experiments/*/dvc.lock"))):
        stages = dict((_yaml(path) or {}).get("stages") or {})
        outs = [Path(entry["path"]) for stage in stages.values() for entry in stage.get("outs", [])]
        if any(path.is_relative_to(out / "encoder") for path in outs):
            return stages
    return {}


def _yaml(path: Path) -> dict[str, Any] | None:
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise ArtifactError(f"{path}: not readable as YAML ({error}); restore it from git") from error
    if not isinstance(raw, dict):
        raise ArtifactError(f"{path}: not what DVC writes; restore it from git")
    return raw


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
