"""What can be deleted: checkpoints, cached features, outputs without a stage, logs, versions of registered models.

Checkpoints and features have digests as names; age decides, because no stage knows the digests of other settings.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.core.artifacts import MANIFEST
from components.pipeline.monitoring.disk import size_of
from components.pipeline.stages import STAGES
from components.registry.drift.traffic import ROWS_SUFFIX, delete, is_written, segments
from components.settings.params import Params
from components.settings.registry import database_of

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
        written: of what is deleted by its age: when it was last written or used, in seconds since the epoch.
    """

    kind: str
    name: str
    size: int
    delete: Callable[[], object]
    reason: str = ""
    written: float = 0.0


def old(items: Iterable[Garbage], *, days: float, now: float | None = None) -> Iterator[Garbage]:
    """What was last written or used more than `days` ago."""
    for item in items:
        if (age := ((time.time() if now is None else now) - item.written) / DAY_S) > days:
            verb = "used" if item.kind == "features" else "written"
            yield replace(item, reason=f"last {verb} {age:.0f} days ago")


def checkpoints(storage: str) -> Iterator[Garbage]:
    """Checkpoints of runs. Raises StorageError if the storage cannot be read."""
    from components.cluster.entries import entries, file_system  # imports pyarrow.fs

    for entry in entries(storage):
        files, root = file_system(storage)
        delete = partial(files.delete_dir, f"{root}/{entry.name}")
        yield Garbage("checkpoints", f"{storage}/{entry.name}", entry.size, delete, written=entry.written)


def features(folder: Path) -> Iterator[Garbage]:
    """Cached features."""
    from components.cluster.entries import feature_tables

    for table in feature_tables(folder):
        yield _of_path("features", table, written=(table / MANIFEST).stat().st_mtime)


def logs(state: Path, traffic: Path) -> Iterator[Garbage]:
    """Log files below `.headstart`, and segments of the traffic log that no process writes to."""
    paths = [path for path in sorted(state.glob("**/*.log*")) if path.is_file()]
    for path in [*paths, *(path for path in segments(traffic) if not is_written(path))]:
        with suppress(FileNotFoundError):
            yield _of_path("logs", path, written=path.stat().st_mtime)


def _of_path(kind: str, path: Path, **further: Any) -> Garbage:
    return Garbage(
        kind, str(path).removesuffix(ROWS_SUFFIX), size_of(path), partial(_remove, path.absolute()), **further
    )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif path.suffix != ROWS_SUFFIX:
        path.unlink(missing_ok=True)
    elif not is_written(path):
        delete(path)


def orphaned_outputs(former: Iterable[tuple[str, Path]], current: Iterable[Path]) -> Iterator[Garbage]:
    """Outputs of stages that the settings no longer have.

    Args:
        former: (stage, output) of every stage that ever ran, from dvc.lock.
        current: outputs of the present stages. An output that overlaps with one of them is kept.
    """
    kept = [path.absolute() for path in current]
    # The first stage of an output counts.
    for path, stage in {path: stage for stage, path in reversed([*former])}.items():
        output = path.absolute()
        overlaps = any(output.is_relative_to(other) or other.is_relative_to(output) for other in kept)
        # A folder without a manifest is of a stage that somebody else wrote into dvc.yaml.
        written = (output / MANIFEST).is_file() if output.is_dir() else stage.partition("@")[0] in STAGES
        if output.exists() and written and not overlaps:
            yield _of_path("outputs", path, reason=f"of {stage}, which the settings no longer have")


def old_versions(params: Params) -> Iterator[Garbage]:
    """Versions that the rule of `params.gc` does not keep, of the models that `params.run` names, oldest first.

    Raises:
        RegistryError: the registry cannot be reached.
    """
    from components.registry.ledger import Ledger  # the import of MLflow takes seconds
    from components.registry.tracking import connect

    if (database := database_of(params.registry)) is not None and not database.is_file():
        return  # nothing was registered, and a list makes no database
    registry, settings, newest = connect(params.registry), params.registry, params.gc.keep_versions
    ledger, tasks = Ledger(registry), list(map(settings.model_name, params.run.tasks))
    families = product(params.run.families, ("pretrained", "adapted"))
    encoders = [settings.model_name("-".join(names)) for names in families]
    versions = {name: registry.versions(name) for name in [*tasks, *encoders]}
    kept: set[str] = set()
    # Classifiers first, then the adapted encoders, whose parents are encoders too.
    for name in [*tasks, *reversed(encoders)]:
        state = ledger.state(name) if name in tasks else None
        numbers = keep(versions[name], state, registry.aliased(name), newest=newest, champions=KEPT_CHAMPIONS)
        here = [version for version in versions[name] if version.number in numbers or version.label in kept]
        kept |= {label for version in here for label in (version.label, version.tags.get("parent", ""))}
    reason = f"not among the newest {newest}, never chosen by a person, no recent champion"
    for version in [each for listed in versions.values() for each in listed if each.label not in kept]:
        yield Garbage("versions", version.label, registry.size(version), partial(registry.delete, version), reason)


def keep(
    versions: Sequence[Version], state: State | None, aliased: set[str], *, newest: int, champions: int
) -> set[str]:
    """Numbers of the versions that are kept.

    Args:
        state: of the alias of the model; None for encoders.
    """
    numbers = {version.number for version in versions[-newest:]} | aliased
    vetoes = state.vetoes if state is not None else {}
    numbers |= {each.number for each in versions if each.digest in vetoes or not {*MARKS}.isdisjoint(each.tags)}
    if state is not None:
        numbers |= {number for number, _ in state.champions[-champions:]}
        # Both the version that a person chose and the one that it replaced.
        numbers |= {change[key] for change in state.changes if change.by_person for key in ("before", "after")} - {None}
    return numbers
