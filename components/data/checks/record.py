"""The accepted versions of the data: a file next to the settings, which belongs to the history of the repository.

One JSON object: unit -> versions in the order in which they were accepted, each with the digest of its content, time,
user and host, reason and, for the last ones, the statistics. A line of the file is one version, so that git shows what
was accepted.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from components.core.artifacts import write_atomic
from components.core.environment import who
from components.core.errors import ArtifactError
from components.data.checks.measure import Statistics, Unit

#: Number of versions per unit that are kept, and number of these that have statistics.
KEPT = 100
WITH_STATISTICS = 2
#: What is not kept of older versions.
OLDER: dict[str, Any] = {"files": [], "statistics": None}
#: Value of `reason` of a version that violated no rule.
BY_RULE = "no violation"


@dataclass(frozen=True)
class Accepted:
    """An accepted version of a unit.

    Attributes:
        reason: of the operator; `BY_RULE` if no rule was violated.
        findings: the violations that were accepted, or warned about.
        files: digests of the files of a corpus.
        statistics: of its rows; None if later versions have been accepted since.
    """

    digest: str
    time: str
    by: str
    reason: str = BY_RULE
    findings: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    statistics: dict[str, Any] | None = None

    def measured(self) -> Statistics | None:
        """The statistics; None if there are none."""
        return None if self.statistics is None else Statistics.from_dict(self.statistics)


Record = dict[str, list[Accepted]]


def read(path: Path) -> Record:
    """The accepted versions by unit; empty if there is no file.

    Raises:
        ArtifactError: the file is damaged.
    """
    try:
        return _parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{path}: damaged ({error}); restore it from git, or delete it") from error


def _parse(text: str) -> Record:
    return {unit: [Accepted(**version) for version in versions] for unit, versions in json.loads(text).items()}


def merge(ours: str, theirs: str) -> str:
    """The texts of two records as one: all versions of both, in the order of their times.

    Raises:
        ValueError: one of them is damaged.
    """
    try:
        first, second = _parse(ours), _parse(theirs)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"not a record of accepted data ({error})") from error
    merged: Record = {}
    for unit in [*first, *(name for name in second if name not in first)]:
        versions = {
            (version.digest, version.time, version.by): version
            for version in [*second.get(unit, []), *first.get(unit, [])]
        }
        merged[unit] = sorted(versions.values(), key=lambda version: version.time)
    return _text(merged)


def last(versions: Sequence[Accepted], *, other_than: str) -> Accepted | None:
    """The last accepted version with statistics and another content; None if there is none."""
    usable = [version for version in versions if version.digest != other_than and version.measured() is not None]
    return usable[-1] if usable else None


def accept(path: Path, units: Iterable[tuple[Unit, list[str]]], *, reason: str = BY_RULE) -> list[str]:
    """Record versions as accepted, unless they are the last accepted ones already.

    Raises:
        ArtifactError: the file is damaged or cannot be written.
    """
    record = read(path)
    now, by = datetime.now(UTC).isoformat(timespec="seconds"), who()
    new: list[str] = []
    for unit, findings in units:
        versions = record.setdefault(unit.name, [])
        if not versions or versions[-1].digest != unit.digest:
            files = [digest for _, digest, _ in unit.parts]
            versions.append(Accepted(unit.digest, now, by, reason, findings, files, unit.statistics.compact()))
            new.append(unit.name)
    if new:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, _text(record))
    return new


def _text(record: Record) -> str:
    """The file: statistics of the last versions only, one line per version."""
    units = []
    for unit in sorted(record):
        versions = record[unit][-KEPT:]
        lines = [
            json.dumps(vars(version) | (OLDER if index < len(versions) - WITH_STATISTICS else {}))
            for index, version in enumerate(versions)
        ]
        units.append(f"{json.dumps(unit)}: [\n" + ",\n".join(lines) + "\n]")
    return "{\n" + ",\n".join(units) + "\n}\n"
