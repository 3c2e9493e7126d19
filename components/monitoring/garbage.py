"""What can be deleted: checkpoints, cached features, outputs without a stage, logs.

Checkpoints and features have digests as names; age decides, because no stage knows the digests of other settings. A run
that is interrupted for longer than `gc.checkpoint_days` starts from the beginning.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from components.artifacts import MANIFEST
from components.drift.traffic import ROWS_SUFFIX, Segment, segments
from components.errors import StorageError

if TYPE_CHECKING:
    import pyarrow.fs

DAY_S = 86400.0


@dataclass(frozen=True)
class Garbage:
    """Something that can be deleted.

    Attributes:
        kind: `checkpoints`, `features`, `outputs`, `logs`, `versions` or `DVC cache`.
        name: path or name.
        size: bytes.
        reason: why it is not needed, in words.
        delete: deletes it.
    """

    kind: str
    name: str
    size: int
    reason: str
    delete: Callable[[], None]


def old_checkpoints(storage: str, *, days: float, now: float | None = None) -> Iterator[Garbage]:
    """Checkpoints of runs that were last written more than `days` ago.

    Args:
        storage: `cluster.storage`: a folder, or s3://bucket/prefix.
        days: minimum age.
        now: seconds since the epoch; None: the clock.

    Raises:
        StorageError: the storage cannot be read.
    """
    # Imported here because every run imports this module, for the sizes of its outputs.
    import pyarrow as pa
    import pyarrow.fs

    try:
        where = storage if "://" in storage else str(Path(storage).absolute())
        files, root = pyarrow.fs.FileSystem.from_uri(where)
        infos = files.get_file_info(pyarrow.fs.FileSelector(root, recursive=True, allow_not_found=True))
    except (OSError, pa.ArrowInvalid) as error:
        raise StorageError(f"cluster.storage {storage}: cannot be read ({error})") from error
    runs: dict[str, list[tuple[float, int]]] = {}
    for info in infos:
        if info.type == pyarrow.fs.FileType.File:
            key = info.path[len(root.rstrip("/")) + 1 :].partition("/")[0]
            runs.setdefault(key, []).append((info.mtime.timestamp() if info.mtime else 0.0, info.size or 0))
    for key, found in sorted(runs.items()):
        age = _days(max(written for written, _ in found), now)
        if age > days:
            yield Garbage(
                "checkpoints",
                f"{storage}/{key}",
                sum(size for _, size in found),
                f"last written {age:.0f} days ago",
                _deleting(files, f"{root.rstrip('/')}/{key}"),
            )


def _deleting(files: pyarrow.fs.FileSystem, path: str) -> Callable[[], None]:
    def delete() -> None:
        import pyarrow.fs

        if files.get_file_info(path).type == pyarrow.fs.FileType.Directory:
            files.delete_dir(path)
        else:
            files.delete_file(path)

    return delete


def old_features(folder: Path, *, days: float, now: float | None = None) -> Iterator[Garbage]:
    """Cached features that were last used more than `days` ago."""
    for manifest in sorted(folder.glob(f"[!.]*/{MANIFEST}")):
        age = _days(manifest.stat().st_mtime, now)
        if age > days:
            reason = f"last used {age:.0f} days ago"
            yield Garbage(
                "features", str(manifest.parent), size_of(manifest.parent), reason, _removing(manifest.parent)
            )


def orphaned_outputs(former: Iterable[tuple[str, Path]], current: Iterable[Path]) -> Iterator[Garbage]:
    """Outputs of stages that the settings no longer have.

    Args:
        former: (stage, output) of every stage that ever ran, from dvc.lock.
        current: outputs of the present stages. An output that overlaps with one of them is kept.
    """
    kept = [path.absolute() for path in current]
    seen: set[Path] = set()
    for stage, path in former:
        own = path.absolute()
        if own in seen or not own.exists() or any(_overlap(own, other) for other in kept):
            continue
        seen.add(own)
        yield Garbage(
            "outputs", str(path), size_of(own), f"of {stage}, which the settings no longer have", _removing(own)
        )


def _overlap(one: Path, other: Path) -> bool:
    return one == other or one in other.parents or other in one.parents


def old_logs(state: Path, *, days: float, now: float | None = None) -> Iterator[Garbage]:
    """Log files below `.headstart` that were last written more than `days` ago."""
    for path in sorted(state.glob("**/*.log*")):
        if path.is_file() and _days(path.stat().st_mtime, now) > days:
            age = _days(path.stat().st_mtime, now)
            yield Garbage("logs", str(path), path.stat().st_size, f"last written {age:.0f} days ago", _removing(path))


def old_traffic(folder: Path, *, days: float, now: float | None = None) -> Iterator[Garbage]:
    """Segments of the traffic log that were last written more than `days` ago and that no process writes to."""
    for segment in segments(folder):
        with suppress(FileNotFoundError):
            age = _days(segment.path.stat().st_mtime, now)
            if age > days and not segment.written:
                name = str(segment.path.with_name(segment.path.name.removesuffix(ROWS_SUFFIX)))
                yield Garbage("logs", name, segment.size, f"last written {age:.0f} days ago", _dropping(segment))


def _dropping(segment: Segment) -> Callable[[], None]:
    def delete() -> None:
        if not segment.written:
            segment.delete()

    return delete


def _removing(path: Path) -> Callable[[], None]:
    def delete() -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    return delete


def _days(moment: float, now: float | None) -> float:
    return ((time.time() if now is None else now) - moment) / DAY_S


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size if path.exists() else 0
    total = 0
    for file in path.rglob("*"):
        with suppress(OSError):
            if not file.is_dir() or file.is_symlink():
                total += file.lstat().st_size
    return total


def in_units(size: float) -> str:
    """Bytes in words: `1.2 GB`."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
