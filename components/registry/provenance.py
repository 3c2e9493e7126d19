"""The provenance of a model version, stored with its run as `provenance.json`: raw files, corpora, labelled data,
settings, code, libraries, machine and parents.

It holds names, counts and digests, and no text. `headstart trace` prints it, and `headstart forget` finds by it which
versions have learned from a document.
"""

from __future__ import annotations

import json
import os
import platform
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from components.artifacts import digest_text, read_manifest
from components.errors import ArtifactError
from components.processors import cores, processor_name
from components.registry.lineage import Lineage
from components.tracking import Version

#: Name of the document (`Registry.document`).
PROVENANCE: Final = "provenance"
SCHEMA: Final = 1
#: Stage whose output is a corpus of raw documents, and stage whose output is the labelled data of a task.
CORPUS, EXAMPLES = "corpus", "examples"


def provenance(
    lineage: Lineage, *, out: Path, output: Path, parent: Version | None, teachers: Sequence[Version] = ()
) -> dict[str, Any]:
    """The provenance of the model in `output`, as a JSON object.

    Keys: schema; code {commit, dirty, stages}: digest of the code that each stage can reach; stages: DVC's entries of
    the model's stage and all stages before it; settings: stage -> resolved settings; libraries; data: path -> digest;
    corpora: name -> {digest, md5, files, shards, keys, rows, counts}; tasks: name -> {digests, md5, rows};
    published: encoders that were imported, whose training text is unknown; parents: labels; teachers: labels; machine.

    Args:
        lineage: of the run.
        out: the run's folder.
        output: directory of the model's stage.
        parent: version of the model that this one was initialised from.
        teachers: versions whose predictions this one has learned.
    """
    stages = _closure(lineage, output)
    identities = {name: _identity(out, name) for name in stages}
    outs = {entry["path"]: entry for stage in stages.values() for entry in stage.get("outs", [])}
    published = {
        name: {key.rpartition(".")[2]: value for key, value in found["settings"].items() if value is not None}
        for name, found in identities.items()
        if any(key.endswith(".source") and value for key, value in found.get("settings", {}).items())
    }
    return {
        "schema": SCHEMA,
        "code": {
            "commit": lineage.commit,
            "dirty": lineage.dirty,
            "stages": {name: _code_digest(found) for name, found in identities.items()},
        },
        "stages": stages,
        "settings": {name: found.get("settings", {}) for name, found in identities.items()},
        "libraries": dict(sorted(_merged(found.get("libraries", {}) for found in identities.values()).items())),
        "data": lineage.data_of(output),
        "corpora": {
            Path(path).name: _corpus(Path(path), entry)
            for path, entry in outs.items()
            if Path(path).parent == out / CORPUS
        },
        "tasks": {
            Path(path).name: _task(Path(path), entry)
            for path, entry in outs.items()
            if Path(path).parent == out / EXAMPLES
        },
        "published": {
            name: {key: value for key, value in found.items() if key in ("source", "digest")}
            for name, found in published.items()
        },
        "parents": [parent.label] if parent is not None else [],
        "teachers": [teacher.label for teacher in teachers],
        "model": _trained(output),
        "machine": machine(),
    }


def _closure(lineage: Lineage, output: Path) -> dict[str, Any]:
    """DVC's entries of the stage of `output` and of all stages that it depends on, by name."""
    waiting, found = [output.as_posix()], dict[str, Any]()
    while waiting:
        for name, stage in lineage.stages_of(waiting.pop()):
            if name not in found:
                found[name] = stage
                waiting += [entry["path"] for entry in stage.get("deps", [])]
    found.pop("identity", None)  # of all stages; each one's own is in the settings and libraries
    return dict(sorted(found.items()))


def _identity(out: Path, stage: str) -> dict[str, Any]:
    name, _, item = stage.partition("@")
    path = out / "identity" / name / f"{item}.json" if item else out / "identity" / f"{name}.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _code_digest(identity: Mapping[str, Any]) -> str:
    return digest_text(json.dumps([identity.get("code"), identity.get("libraries")], sort_keys=True))


def _merged(parts: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in parts:
        found |= part
    return found


def _corpus(directory: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    try:
        manifest = read_manifest(directory)
    except ArtifactError:
        return {"md5": entry.get("md5")}
    facts = manifest.facts
    return {
        "md5": entry.get("md5"),
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


def _task(directory: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    try:
        manifest = read_manifest(directory)
        rows = {split: _rows(directory / f"{split}.parquet") for split in manifest.facts["digests"]}
    except (ArtifactError, OSError):
        return {"md5": entry.get("md5")}
    return {"md5": entry.get("md5"), "digests": manifest.facts["digests"], "rows": rows}


def _trained(output: Path) -> dict[str, Any]:
    """Facts of the model's manifest that are numbers or text: seed, precision, tokens, seconds."""
    try:
        facts = read_manifest(output).facts
    except ArtifactError:
        return {}
    return {name: value for name, value in facts.items() if isinstance(value, str | int | float | bool)}


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
