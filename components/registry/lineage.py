"""Lineage and provenance of a model: versions of its data, DVC's lock, the git commit, code, settings, machine.
`provenance.json` is stored with the run of a version and holds names, counts and digests, but no text."""

import hashlib
import json
import os
import platform
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from components.core.artifacts import Manifest, digest_text, json_of, read_manifest
from components.core.data_version import UNKNOWN, DataVersion, data_versions, lock_stages
from components.core.errors import ArtifactError
from components.core.processors import cores, processor_name
from components.registry.version import Version

SCHEMA: Final = 1
#: Folders of corpora of raw documents, and of the labelled data of tasks.
CORPUS, EXAMPLES = "corpus", "examples"


@dataclass(frozen=True)
class Lineage:
    """Data, code and stages of one run of the pipeline.

    Attributes:
        inputs: path of each input of the run -> its version. Several inputs may have one version, if one folder
            holds them.
        lock: SHA-256 of the lock's stages except `register` and `promote`, whose outputs change with every
            registration; "unknown" without a lock.
    """

    commit: str
    dirty: str
    inputs: dict[str, DataVersion]
    lock: str
    stages: dict[str, Any] = field(default_factory=dict)

    @property
    def data(self) -> dict[str, str]:
        """Path -> digest of the data that the run has read."""
        return {version.path: version.digest for version in self.inputs.values()}

    def stages_of(self, path: str) -> list[tuple[str, dict[str, Any]]]:
        """Name and entry of the DVC stages that write `path`, relative to the repository, or outputs below it."""
        return [
            (name, stage)
            for name, stage in self.stages.items()
            if any(out["path"] == path or out["path"].startswith(f"{path}/") for out in stage.get("outs", []))
        ]

    def _before(self, output: Path) -> tuple[dict[str, Any], set[str]]:
        """The stage of `output` and all stages before it, by name, and all paths that they read or write."""
        waiting, stages, paths = [output.as_posix()], dict[str, Any](), set[str]()
        while waiting:
            if (path := waiting.pop()) not in paths:
                paths.add(path)
                stages |= (writers := dict(self.stages_of(path)))
                waiting += [entry["path"] for stage in writers.values() for entry in stage.get("deps", [])]
        return stages, paths

    def data_of(self, output: Path) -> dict[str, str]:
        """Path -> digest of the data that the stage of `output` or a stage before it has read; all data if the lock
        lacks it."""
        if not self.stages_of(output.as_posix()):
            return self.data
        _, paths = self._before(output)
        return {version.path: version.digest for path, version in self.inputs.items() if path in paths}

    def datasets(self, output: Path) -> list[DataVersion]:
        """Inputs of `output`: the data, then the outputs of other stages that its stage depends on, with DVC's MD5."""
        entries = [entry for _, stage in self.stages_of(output.as_posix()) for entry in stage.get("deps", [])]
        made = [entry for entry in entries if entry.get("md5") and self.stages_of(entry["path"])]
        return [DataVersion(path, digest) for path, digest in self.data_of(output).items()] + [
            DataVersion(entry["path"], entry["md5"]) for entry in made
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
    stages = lock_stages(project, out=out)
    versions = data_versions(data, project=project, out=out)
    counted = {name: stage for name, stage in stages.items() if name not in ("register", "promote")}
    digest = hashlib.sha256(json.dumps(counted, sort_keys=True, default=str).encode()).hexdigest()
    inputs = {Path(path).as_posix(): versions[name] for name, path in data.items()}
    return Lineage(*_git(project), inputs, digest if counted else UNKNOWN, stages)


def _git(project: Path) -> tuple[str, str]:
    def ask(*arguments: str) -> str:
        command = ["git", "-C", str(project), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()

    try:
        return ask("rev-parse", "HEAD"), "true" if ask("status", "--porcelain", "--untracked-files=no") else "false"
    except (OSError, subprocess.SubprocessError):
        return UNKNOWN, UNKNOWN


def provenance(
    lineage: Lineage, *, out: Path, output: Path, parent: Version | None, teachers: Sequence[Version] = ()
) -> dict[str, Any]:
    """The provenance of the model in `output`, as a JSON object. Keys: schema; code {commit, dirty, stages}: digest of
    the code that each stage can reach; stages: DVC's entries of the model's stage and all stages before it; settings:
    stage -> resolved settings; libraries; data: path -> digest; corpora: name -> {digest, md5, files, shards, keys,
    rows, counts}; tasks: name -> {digests, md5, rows}; published: encoders that were imported, whose training text is
    unknown; parents: labels; teachers: labels; machine."""
    stages, _ = lineage._before(output)
    stages = {name: stages[name] for name in sorted(stages) if name != "identity"}  # of all stages
    identities = {name: _identity(out, name) for name in stages}
    settings = {name: identity.get("settings", {}) for name, identity in identities.items()}
    code = {
        name: digest_text(json.dumps([identity.get("code"), identity.get("libraries")], sort_keys=True))
        for name, identity in identities.items()
    }
    libraries = {key: value for identity in identities.values() for key, value in identity.get("libraries", {}).items()}
    facts = manifest.facts if (manifest := _manifest(output)) else {}
    outs = {Path(entry["path"]): entry.get("md5") for stage in stages.values() for entry in stage.get("outs", [])}
    published = {}
    for name, values in settings.items():
        source = {key.rpartition(".")[2]: value for key, value in values.items() if value is not None}
        if any(key.endswith(".source") and value for key, value in values.items()):
            published[name] = {key: source[key] for key in ("source", "digest") if key in source}
    return {
        "schema": SCHEMA,
        "code": {"commit": lineage.commit, "dirty": lineage.dirty, "stages": code},
        "stages": stages,
        "settings": settings,
        "libraries": dict(sorted(libraries.items())),
        "data": lineage.data_of(output),
        "corpora": {path.name: _corpus(path, md5) for path, md5 in outs.items() if path.parent == out / CORPUS},
        "tasks": {path.name: _task(path, md5) for path, md5 in outs.items() if path.parent == out / EXAMPLES},
        "published": published,
        "parents": [parent.label] if parent is not None else [],
        "teachers": [teacher.label for teacher in teachers],
        "model": {key: value for key, value in facts.items() if isinstance(value, str | int | float | bool)},
        "machine": machine(),
    }


def _identity(out: Path, stage: str) -> dict[str, Any]:
    name, _, item = stage.partition("@")
    path = out / "identity" / name / f"{item}.json" if item else out / "identity" / f"{name}.json"
    try:
        return dict(json_of(path))
    except (OSError, ValueError, TypeError):
        return {}


def _manifest(directory: Path) -> Manifest | None:
    try:
        return read_manifest(directory)
    except ArtifactError:
        return None


def _corpus(directory: Path, md5: str | None) -> dict[str, Any]:
    if (manifest := _manifest(directory)) is None:
        return {"md5": md5}
    facts = manifest.facts
    return {
        "md5": md5,
        "digest": manifest.digest,
        "files": facts["files"],
        "shards": {
            split: {name: _rows(directory / name) for name in names} for split, names in facts["shards"].items()
        },
        "keys": facts["keys"],
        "counts": {name: value for name, value in facts["counts"].items() if isinstance(value, int)},
    }


def _rows(shard: Path) -> int:
    return int(pq.read_metadata(shard).num_rows)


def _task(directory: Path, md5: str | None) -> dict[str, Any]:
    if (manifest := _manifest(directory)) is None:
        return {"md5": md5}
    digests = manifest.facts["digests"]
    rows = {split: _rows(directory / f"{split}.parquet") for split in digests}
    return {"md5": md5, "digests": digests, "rows": rows}


def machine() -> dict[str, Any]:
    """The machine that registers the model."""
    return {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "processor": processor_name(Path("/proc/cpuinfo")) or platform.processor() or "unknown",
        "cores": cores(),
        "cluster": os.environ.get("RAY_ADDRESS", "local"),
    }
