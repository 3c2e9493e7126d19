"""The accepted versions of the data: a file next to the settings, which belongs to the history of the repository.

One JSON object: unit -> versions in the order in which they were accepted. A version is an object, and a line of the
file, so that git shows what was accepted:

    digest, time, by    of the content, when and by whom (user and host) it was accepted
    reason              of the operator; `BY_RULE` if no rule was violated
    findings            the violations that were accepted, or warned about
    files               digests of the files of a corpus
    statistics          of its rows; null if later versions have been accepted since
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from components.core.artifacts import write_atomic
from components.core.environment import who
from components.core.errors import ArtifactError
from components.data.checks.measure import Unit

#: Number of versions per unit that are kept, and number of these that have statistics.
KEPT = 100
WITH_STATISTICS = 2
#: What is not kept of older versions.
OLDER: dict[str, Any] = {"files": [], "statistics": None}
#: Value of `reason` of a version that violated no rule.
BY_RULE = "no violation"
_EMPTY = {"digest": "", "time": "", "by": "", "reason": BY_RULE, "findings": []} | OLDER

Version = dict[str, Any]
Record = dict[str, list[Version]]


def read(path: Path) -> Record:
    """The accepted versions by unit; empty if there is no file.

    Raises:
        ArtifactError: the file is damaged.
    """
    try:
        return _parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path}: damaged ({error}); restore it from git, or delete it") from error


def _parse(text: str) -> Record:
    """The record; versions that earlier versions of Headstart wrote may lack keys.

    Raises:
        ValueError: it is damaged.
    """
    try:
        record = json.loads(text)
        return {unit: [_EMPTY | version for version in versions] for unit, versions in record.items()}
    except (TypeError, AttributeError) as error:
        raise ValueError(f"not a record of accepted data ({error})") from error


def merge(ours: str, theirs: str) -> str:
    """The texts of two records as one: all versions of both, in the order of their times.

    Raises:
        ValueError: one of them is damaged.
    """
    first, second = _parse(ours), _parse(theirs)
    merged: Record = {}
    for unit in first | second:
        both = [*second.get(unit, []), *first.get(unit, [])]
        versions = {(version["digest"], version["time"], version["by"]): version for version in both}
        merged[unit] = sorted(versions.values(), key=lambda version: str(version["time"]))
    return _text(merged)


def accept(path: Path, units: Iterable[Unit], *, reason: str) -> list[str]:
    """Record versions as accepted, unless they are the last accepted ones already.

    Raises:
        ArtifactError: the file is damaged or cannot be written.
    """
    record = read(path)
    given = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "by": who(), "reason": reason}
    new: list[str] = []
    for unit in units:
        versions = record.setdefault(unit.name, [])
        if not versions or versions[-1]["digest"] != unit.digest:
            version = {"digest": unit.digest} | given | {"findings": [*unit.findings]}
            version |= {"files": [digest for _, digest, _ in unit.parts]}
            versions.append(version | {"statistics": unit.statistics | {"positions": {}}})
            new.append(unit.name)
    if new:
        write_atomic(path, _text(record))
    return new


def _text(record: Record) -> str:
    """The file: statistics of the last versions only, one line per version."""
    units = []
    for unit in sorted(record):
        older, last = record[unit][-KEPT:-WITH_STATISTICS], record[unit][-WITH_STATISTICS:]
        lines = map(json.dumps, [*(version | OLDER for version in older), *last])
        units.append(f"{json.dumps(unit)}: [\n" + ",\n".join(lines) + "\n]")
    return "{\n" + ",\n".join(units) + "\n}\n"
