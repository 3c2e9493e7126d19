"""Lineage and provenance of a model: versions of its data, DVC's lock, the git commit, code, settings, machine.
`provenance.json` is stored with the run of a version and holds names, counts and digests, but no text."""

import hashlib
import json
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from components.core.artifacts import digest_text, json_of, read_manifest
from components.core.commits import commit_of
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
        stages, paths = self._before(output)
        return {version.path: version.digest for path, version in self.inputs.items() if path in paths or not stages}

    def datasets(self, output: Path) -> dict[str, str]:
        """Inputs of `output`: the data, then the outputs of other stages that its stage depends on, with DVC's MD5."""
        entries = [entry for _, stage in self.stages_of(output.as_posix()) for entry in stage.get("deps", [])]
        made = {entry["path"]: entry["md5"] for entry in entries if entry.get("md5") and self.stages_of(entry["path"])}
        return self.data_of(output) | made

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
    commit, changed, _ = (commit_of(project) or UNKNOWN).partition("-dirty")
    dirty = UNKNOWN if commit == UNKNOWN else "true" if changed else "false"
    return Lineage(commit, dirty, inputs, digest if counted else UNKNOWN, stages)


def provenance(
    lineage: Lineage, *, out: Path, output: Path, parent: Version | None, teachers: Sequence[Version] = ()
) -> dict[str, Any]:
    """The provenance of the model in `output`, as a JSON object. Keys: schema; code {commit, dirty, stages}: digest of
    the code that each stage can reach; stages: DVC's entries of the model's stage and all stages before it; settings:
    stage -> resolved settings; libraries; data: path -> digest; corpora and tasks: name -> {md5, digest, rows: of
    each file, and facts of the manifest}; published: encoders that were imported, whose training text is
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
        "corpora": {path.name: _described(path, md5) for path, md5 in outs.items() if path.parent == out / CORPUS},
        "tasks": {path.name: _described(path, md5) for path, md5 in outs.items() if path.parent == out / EXAMPLES},
        "published": published,
        "parents": [parent.label] if parent is not None else [],
        "teachers": [teacher.label for teacher in teachers],
        "machine": machine(),
    }


def _identity(out: Path, stage: str) -> dict[str, Any]:
    name, _, item = stage.partition("@")
    path = out / "identity" / name / f"{item}.json" if item else out / "identity" / f"{name}.json"
    try:
        return dict(json_of(path))
    except (OSError, ValueError, TypeError):
        return {}


def _described(output: Path, md5: str | None) -> dict[str, Any]:
    """DVC's digest of an output and, if it is complete, what its manifest says of it."""
    try:
        manifest = read_manifest(output)
    except ArtifactError:
        return {"md5": md5}
    facts = {key: value for key, value in manifest.facts.items() if key in ("files", "shards", "counts", "digests")}
    rows = {path.stem: pq.read_metadata(path).num_rows for path in sorted(output.glob("*.parquet"))}
    return {"md5": md5, "digest": manifest.digest, "rows": rows, **facts}


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
