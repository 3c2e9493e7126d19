"""What can be deleted: checkpoints, cached features, outputs without a stage, logs, versions of registered models.

Checkpoints and features have digests as names; age decides, because no stage knows the digests of other settings.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from components.core.artifacts import MANIFEST
from components.pipeline.monitoring.disk import size_of
from components.pipeline.stages import STAGES
from components.registry.drift.traffic import ROWS_SUFFIX, Segment, segments
from components.settings.params import Params

if TYPE_CHECKING:
    from components.registry.ledger import State
    from components.registry.tracking import Version


DAY_S = 86400.0
#: Previous champions that are kept, so that a rollback can reach them.
KEPT_CHAMPIONS = 5
#: Tags that keep a version: it was marked by a person or by a command, such as `headstart forget`.
MARKS = ("tainted", "keep")


@dataclass(frozen=True)
class Garbage:
    """Something that can be deleted.

    Attributes:
        kind: `checkpoints`, `features`, `outputs`, `logs`, `versions` or `DVC cache`.
    """

    kind: str
    name: str
    size: int
    reason: str
    delete: Callable[[], object]


def old_checkpoints(storage: str, *, days: float, now: float | None = None) -> Iterator[Garbage]:
    """Checkpoints of runs that were last written more than `days` ago.

    Raises:
        StorageError: the storage cannot be read.
    """
    from components.cluster.entries import entries, file_system  # imports pyarrow.fs

    for entry in entries(storage):
        if (age := _days(entry.written, now)) > days:
            files, root = file_system(storage)
            delete = partial(files.delete_dir, f"{root}/{entry.name}")
            yield Garbage(
                "checkpoints", f"{storage}/{entry.name}", entry.size, f"last written {age:.0f} days ago", delete
            )


def old_features(folder: Path, *, days: float, now: float | None = None) -> Iterator[Garbage]:
    """Cached features that were last used more than `days` ago."""
    from components.cluster.entries import feature_tables

    for table in feature_tables(folder):
        if (age := _days((table / MANIFEST).stat().st_mtime, now)) > days:
            yield _of_path("features", table, f"last used {age:.0f} days ago")


def orphaned_outputs(former: Iterable[tuple[str, Path]], current: Iterable[Path]) -> Iterator[Garbage]:
    """Outputs of stages that the settings no longer have.

    Args:
        former: (stage, output) of every stage that ever ran, from dvc.lock.
        current: outputs of the present stages. An output that overlaps with one of them is kept.
    """
    kept = [path.absolute() for path in current]
    seen: set[Path] = set()
    for stage, path in former:
        output = path.absolute()
        overlaps = any(output == other or output in other.parents or other in output.parents for other in kept)
        # A folder without a manifest is of a stage that somebody else wrote into dvc.yaml.
        written = (output / MANIFEST).is_file() if output.is_dir() else stage.partition("@")[0] in STAGES
        if output not in seen and output.exists() and written and not overlaps:
            seen.add(output)
            yield _of_path("outputs", path, f"of {stage}, which the settings no longer have")


def old_logs(state: Path, *, days: float, now: float | None = None) -> Iterator[Garbage]:
    """Log files below `.headstart` that were last written more than `days` ago."""
    for path in sorted(state.glob("**/*.log*")):
        if path.is_file() and (age := _days(path.stat().st_mtime, now)) > days:
            yield _of_path("logs", path, f"last written {age:.0f} days ago")


def old_traffic(folder: Path, *, days: float, now: float | None = None) -> Iterator[Garbage]:
    """Segments of the traffic log that were last written more than `days` ago and that no process writes to."""
    for segment in segments(folder):
        with suppress(FileNotFoundError):
            age = _days(segment.path.stat().st_mtime, now)
            if age > days and not segment.written:
                name = str(segment.path).removesuffix(ROWS_SUFFIX)
                yield Garbage("logs", name, segment.size, f"last written {age:.0f} days ago", partial(_drop, segment))


def _drop(segment: Segment) -> None:
    if not segment.written:
        segment.delete()


def _of_path(kind: str, path: Path, reason: str) -> Garbage:
    return Garbage(kind, str(path), size_of(path), reason, partial(_remove, path.absolute()))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _days(moment: float, now: float | None) -> float:
    return ((time.time() if now is None else now) - moment) / DAY_S


def old_versions(params: Params) -> Iterator[Garbage]:
    """Versions that the rule of `params.gc` does not keep, of the models that `params.run` names, oldest first.

    Raises:
        RegistryError: the registry cannot be reached.
    """
    from components.registry.ledger import Ledger  # the import of MLflow takes seconds
    from components.registry.tracking import connect

    registry = connect(params.registry)
    ledger, rule, prefix = Ledger(registry), params.gc, params.registry.prefix
    tasks = [params.registry.model_name(task) for task in params.run.tasks]
    encoders = [f"{prefix}-{family}-{start}" for family in params.run.families for start in ("pretrained", "adapted")]
    versions = {name: registry.versions(name) for name in [*tasks, *encoders]}
    kept: dict[str, set[str]] = {}
    parents: set[str] = set()
    # Classifiers first, then the adapted encoders, whose parents are encoders too.
    for name in [*tasks, *reversed(encoders)]:
        state = ledger.state(name, params.registry.alias) if name in tasks else None
        kept[name] = keep(
            versions[name], state, registry.aliased(name), newest=rule.keep_versions, champions=KEPT_CHAMPIONS
        )
        kept[name] |= {version.number for version in versions[name] if version.label in parents}
        parents |= {version.tags.get("parent", "") for version in versions[name] if version.number in kept[name]}
    reason = f"not among the newest {rule.keep_versions}, never chosen by a person, no recent champion"
    for version in [version for name in versions for version in versions[name] if version.number not in kept[name]]:
        yield Garbage("versions", version.label, registry.size(version), reason, partial(registry.delete, version))


def keep(
    versions: Sequence[Version], state: State | None, aliased: set[str], *, newest: int, champions: int
) -> set[str]:
    """Numbers of the versions that are kept.

    Args:
        state: of the alias of the model; None for encoders.
    """
    numbers = {version.number for version in versions[-newest:]} | aliased
    numbers |= {version.number for version in versions if any(version.tags.get(mark) for mark in MARKS)}
    if state is None:
        return numbers
    numbers |= {number for number, _ in state.champions[-champions:]}
    for change in state.changes:
        if change.by_person:
            # Both the version that a person chose and the one that it replaced.
            numbers |= {change["before"], change["after"]} - {None}
    return numbers | {version.number for version in versions if version.digest in state.vetoes}
