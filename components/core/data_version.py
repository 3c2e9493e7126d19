"""Versions of the data that a run reads: names and digests.

DVC's files are read as YAML, because components do not import DVC.
"""

import configparser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from components.core.artifacts import digest_tree
from components.core.errors import ArtifactError

#: Digest of data that no longer exists, and of which DVC has no record.
UNKNOWN = "unknown"
#: Folders of a run one of which every run has: words models have neither corpus nor encoder.
IN_EVERY_RUN = ("corpus", "encoder", "examples", "identity")


class DataVersion(NamedTuple):
    """A file or folder of data and its digest (at most 36 characters)."""

    path: str
    digest: str


def data_versions(paths: Mapping[str, Path], *, project: Path, out: Path) -> dict[str, DataVersion]:
    """The version of each input of a run.

    The digest is read from the .dvc file that covers the path (the version then belongs to the covered folder),
    otherwise from the run's lock, which records it when a stage reads the path. Otherwise it is 32 hexadecimal
    characters of the SHA-256 of the files.

    Args:
        paths: name -> path of an input, relative to `project` or absolute.

    Raises:
        ArtifactError: a .dvc file or the lock is damaged, or a file cannot be read.
    """
    recorded = {
        dependency["path"]: str(dependency["md5"])
        for stage in lock_stages(project, out=out).values()
        for dependency in stage.get("deps", [])
        if dependency.get("md5")
    }
    return {name: _version(Path(path), project, recorded) for name, path in paths.items()}


def _version(path: Path, project: Path, recorded: Mapping[str, str]) -> DataVersion:
    for covered in (path, *path.parents):
        if covered.name and (collected := read_yaml(project / f"{covered.as_posix()}.dvc")):
            outs = collected.get("outs") or [{}]
            if outs[0].get("md5"):
                return DataVersion(covered.as_posix(), str(outs[0]["md5"]))
    name = str(path)
    if name in recorded:
        return DataVersion(name, recorded[name])
    if not (project / path).exists():
        return DataVersion(name, UNKNOWN)
    try:
        return DataVersion(name, digest_tree(project / path)[:32])
    except OSError as error:
        raise ArtifactError(f"{error.filename}: cannot be read ({error.strerror}); check the file") from error


def lock_stages(project: Path, *, out: Path) -> dict[str, Any]:
    """The stages of a run's lock by name, as DVC writes them; empty without a lock.

    Args:
        out: the run's folder. Its lock is dvc.lock or experiments/NAME/dvc.lock, whichever holds one of
            `IN_EVERY_RUN` below `out`. An experiment's folder may be inside the folder of another run.

    Raises:
        ArtifactError: a lock is damaged.
    """
    for stages in locks(project):
        outs = [Path(entry["path"]) for stage in stages.values() for entry in stage.get("outs", [])]
        if any(output.is_relative_to(out / folder) for output in outs for folder in IN_EVERY_RUN):
            return stages
    return {}


def locks(project: Path) -> Iterator[dict[str, Any]]:
    """The stages of each lock of a repository, that of the project first, then those of experiments.

    Raises:
        ArtifactError: a lock is damaged.
    """
    for path in (project / "dvc.lock", *sorted(project.glob("experiments/*/dvc.lock"))):
        yield (read_yaml(path) or {}).get("stages") or {}


def dvc_config() -> dict[str, dict[str, str]]:
    """Section -> key -> value of DVC's configuration of the repository that is the working directory."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read([".dvc/config", ".dvc/config.local"], encoding="utf-8")
    return {section: {key: value.strip('"') for key, value in parser[section].items()} for section in parser.sections()}


def read_yaml(path: Path) -> dict[str, Any] | None:
    """A file that DVC wrote; None if it does not exist.

    Raises:
        ArtifactError: the file is damaged.
    """
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (yaml.YAMLError, ValueError, OSError) as error:
        raise ArtifactError(f"{path}: not readable as YAML ({error}); restore it from git") from error
    if not isinstance(raw, dict):
        raise ArtifactError(f"{path}: not what DVC writes; restore it from git")
    return raw
