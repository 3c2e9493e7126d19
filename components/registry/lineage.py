"""Lineage and provenance of a model: versions of its data, DVC's lock, the git commit, code, settings, machine.
`provenance.json` is stored with the run of a version and holds names, counts and digests, but no text."""

import json
import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from components.core.artifacts import digest_text, read_json, read_manifest
from components.core.commits import commit_of
from components.core.data_version import UNKNOWN, DataVersion, data_versions, lock_stages
from components.core.errors import ArtifactError
from components.core.processors import cores, processor_name

SCHEMA: Final = 1
#: Key of the provenance -> folder of corpora of raw documents, and of the labelled data of tasks.
FOLDERS: Final = {"corpora": "corpus", "tasks": "examples"}


@dataclass(frozen=True)
class Lineage:
    """Data, code and stages of one run of the pipeline.

    Attributes:
        commit: of git, with `-dirty` if files differ from it.
        inputs: path of each input of the run -> its version. Several inputs may have one version, if one folder
            holds them.
        stages: name -> its entry in DVC's lock.
    """

    commit: str
    inputs: dict[str, DataVersion]
    stages: dict[str, Any]

    def before(self, output: Path) -> tuple[dict[str, Any], set[str]]:
        """The stages that write `output`, relative to the repository, or outputs below it, and all stages before them,
        by name; and all paths that they read or write."""
        # An output that an earlier version made by a stage of another name has two entries, the newest one last.
        made = {out["path"]: name for name, stage in self.stages.items() for out in stage.get("outs", [])}
        waiting, stages, paths = [output.as_posix()], dict[str, Any](), set[str]()
        while waiting:
            if (path := waiting.pop()) not in paths:
                paths.add(path)
                for out, name in made.items():
                    if f"{out}/".startswith(f"{path}/"):
                        stages[name] = self.stages[name]
                        waiting += [entry["path"] for entry in self.stages[name].get("deps", [])]
        return stages, paths

    def data_of(self, output: Path) -> dict[str, str]:
        """Path -> digest of the data that the stage of `output` or a stage before it has read; all data if the lock
        lacks it."""
        stages, paths = self.before(output)
        return {version.path: version.digest for path, version in self.inputs.items() if path in paths or not stages}

    def tags(self, output: Path) -> dict[str, str]:
        """Tags of a model version."""
        outs = {out["path"]: out.get("md5") for stage in self.stages.values() for out in stage.get("outs", [])}
        return {
            "git_commit": self.commit,
            "dvc_output": outs.get(output.as_posix()) or UNKNOWN,
            "data": ", ".join(f"{path}={digest}" for path, digest in self.data_of(output).items()) or UNKNOWN,
        }


def read_lineage(project: Path, *, out: Path, data: Mapping[str, Path]) -> Lineage:
    versions = data_versions(data, project=project, out=out)
    inputs = {Path(path).as_posix(): versions[name] for name, path in data.items()}
    return Lineage(commit_of(project) or UNKNOWN, inputs, lock_stages(project, out=out))


def provenance(lineage: Lineage, *, out: Path, output: Path) -> dict[str, Any]:
    """The provenance of the model in `output`, as a JSON object. Keys: schema; code: digest of what each stage can
    reach; stages: DVC's entries of the model's stage and all stages before it; settings: stage -> resolved settings;
    libraries; corpora and tasks: name -> {md5, digest, rows: of each file, and facts of the manifest}; machine."""
    stages, _ = lineage.before(output)
    stages = {name: stages[name] for name in sorted(stages) if name != "identity"}  # of all stages
    identities = {
        name: read_json(
            out / "identity" / f"{name.replace('@', '/')}.json", made_by="the stage identity", missing_ok=True
        )
        for name in stages
    }
    code = {
        name: digest_text(json.dumps([identity.get("code"), identity.get("libraries")], sort_keys=True))
        for name, identity in identities.items()
    }
    libraries = {key: value for identity in identities.values() for key, value in identity.get("libraries", {}).items()}
    outs = {Path(entry["path"]): entry.get("md5") for stage in stages.values() for entry in stage.get("outs", [])}
    return {
        "schema": SCHEMA,
        "code": code,
        "stages": stages,
        "settings": {name: identity.get("settings", {}) for name, identity in identities.items()},
        "libraries": dict(sorted(libraries.items())),
        **{
            kind: {path.name: _described(path, md5) for path, md5 in outs.items() if path.parent == out / folder}
            for kind, folder in FOLDERS.items()
        },
        "machine": machine(),
    }


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
        "processor": processor_name() or platform.processor() or "unknown",
        "cores": cores(),
        "cluster": os.environ.get("RAY_ADDRESS", "local"),
    }
