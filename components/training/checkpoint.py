"""Checkpoints: complete or absent, verified when read, and keyed by the run that they belong to (contract 7).

A checkpoint is a directory `step-<n>` with `state.safetensors` and `state.json` (numbers, and the digest of the
former). Locally it is written under a unique name, synchronised to disk and renamed. An S3 store has no rename: there
`state.json` is written last, and a directory without it is no checkpoint. The newest two are kept.
"""

import copy
import errno
import hashlib
import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from components.cluster.distributed import World
from components.core.artifacts import digest_file, json_of, partial_path, sweep, sync, write_json
from components.core.errors import CheckpointUnavailableError, TrainingError
from components.training.loop import TrainingState

TENSORS = "state.safetensors"
NUMBERS = "state.json"
PREFIX = "step-"
KEEP = 2
#: Answers of an S3 store that do not change by themselves: credentials that are wrong or have expired, missing
#: permissions, no such bucket (pyarrow has no error classes for them).
REJECTED = re.compile(
    r"HTTP status 40[0-7]\b|AWS Error (ACCESS_DENIED|EXPIRED|INVALID_|SIGNATURE_|MISSING_AUTHENTICATION|UNRECOGNIZED|"
    r"NO_SUCH_BUCKET|RESOURCE_NOT_FOUND)"
)
#: Number of attempts of a worker to read the checkpoint that rank 0 has selected, and seconds between two attempts: on
#: network file systems a new directory entry can become visible on other nodes up to a minute later.
READ_ATTEMPTS, READ_SECONDS = 20, 5.0


def fingerprint(**parts: Any) -> str:
    """The key of a run's checkpoints: a digest of everything that its result depends on (settings, inputs, code)."""
    listing = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(listing.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Checkpoint:
    """A stored training state: tensors by name, and the JSON values that were saved with them."""

    step: int
    tensors: dict[str, Tensor]
    numbers: dict[str, Any]


class CheckpointStore:
    """The checkpoints of one run, in a folder or an S3 store; opening removes partial ones of workers that were killed.

    Args:
        storage: a folder, or s3://bucket/prefix (endpoint from AWS_ENDPOINT_URL).
        key: identifies the run; another configuration, tokenizer, corpus or code has another key (`fingerprint`).

    Raises TrainingError: the storage cannot be reached.
    """

    def __init__(self, storage: str, *, key: str) -> None:
        self.remote = "://" in storage
        # The working directory of a worker differs from the working directory of the stage.
        self.storage = storage.rstrip("/") if self.remote else str(Path(storage).absolute())
        self.key = key
        self.name = f"{self.storage}/{key}"
        try:
            if self.remote:
                self.files, self.root = pyarrow.fs.FileSystem.from_uri(self.name)
            else:
                self.files, self.root = pyarrow.fs.LocalFileSystem(), self.name
                sweep(Path(self.root), target=f"{PREFIX}*")
        except (OSError, pa.ArrowInvalid) as error:
            raise self._error(error)(f"cluster.storage {storage}: cannot be used ({error})") from error

    def save(self, step: int, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Write a checkpoint, then remove all but the newest two.

        Raises:
            TrainingError: no space, or no access. Earlier checkpoints are unchanged.
        """
        with self._reporting(step):
            if self.remote:
                with tempfile.TemporaryDirectory() as folder:
                    _write(Path(folder), tensors, numbers)
                    for name in (TENSORS, NUMBERS):
                        target = f"{self._path(step)}/{name}"
                        pyarrow.fs.copy_files(f"{folder}/{name}", target, pyarrow.fs.LocalFileSystem(), self.files)
            else:
                final = Path(self._path(step))
                with partial_path(final, folder=True) as partial:
                    _write(partial, tensors, numbers)
                    try:
                        partial.rename(final)
                    except OSError:
                        # The step exists already: a restarted run, or a worker that has outlived its stage, has written
                        # it. If it is complete, its content is the same and it is kept; otherwise it is replaced.
                        if _read(final, step) is None:
                            shutil.rmtree(final, ignore_errors=True)
                            partial.rename(final)
                    sync(final.parent)
            for old in self.steps()[:-KEEP]:
                self.files.delete_dir(self._path(old))

    @contextmanager
    def _reporting(self, step: int) -> Iterator[None]:
        """A block that writes a checkpoint; its errors say what to do."""
        try:
            yield
        except (OSError, SafetensorError) as error:
            full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "No space" in str(error)
            kept: list[int] = []
            with suppress(TrainingError):  # the storage may not answer now either
                kept = self.steps()
            if self._is_rejected(error):
                raise self._failure(f"checkpoint of step {step} cannot be written", error) from error
            kind = TrainingError if full else self._error(error)
            raise kind(
                f"{self.name}: checkpoint of step {step} cannot be written "
                f"({'no space left' if full else error}); free space or set cluster.storage to another location and "
                f"run again: training {f'resumes from step {kept[-1]}' if kept else 'restarts'}"
            ) from error

    def steps(self) -> list[int]:
        """Steps with a complete, unverified checkpoint, ascending. Raises TrainingError: no access."""
        results = []
        listing = pyarrow.fs.FileSelector(self.root, recursive=True, allow_not_found=True)
        try:
            entries = self.files.get_file_info(listing)
        except OSError as error:
            raise self._failure("checkpoints cannot be listed", error) from error
        for entry in entries:
            folder, _, name = entry.path.rpartition("/")
            folder = folder.rpartition("/")[2]
            if name == NUMBERS and folder.startswith(PREFIX):
                results.append(int(folder.removeprefix(PREFIX)))
        return sorted(results)

    def latest(self) -> Checkpoint | None:
        """The newest undamaged checkpoint; None without checkpoints.

        Raises:
            TrainingError: all checkpoints are damaged.
        """
        steps = self.steps()
        for step in reversed(steps):
            if (checkpoint := self._load(step)) is not None:
                return checkpoint
        if steps:
            raise TrainingError(f"{self.name}: every checkpoint is damaged; remove the folder to restart training")
        return None

    def latest_for_all(self, world: World) -> Checkpoint | None:
        """`latest` of rank 0, on every rank. Each rank must call it.

        Ranks must not choose for themselves: on shared storage one may see a checkpoint that another does not see yet.

        Raises:
            TrainingError: all checkpoints are damaged, or a rank cannot read the one of rank 0.
        """
        checkpoint: Checkpoint | None = None
        failure: TrainingError | None = None
        if world.is_main:
            try:
                checkpoint = self.latest()
            except TrainingError as error:
                failure = error
        step, failure = world.broadcast((checkpoint.step if checkpoint else None, failure))
        if failure is not None:
            raise failure
        if step is None or world.is_main:
            return checkpoint
        for attempt in range(READ_ATTEMPTS):
            if attempt:
                time.sleep(READ_SECONDS)
            if (checkpoint := self._load(step)) is not None:
                return checkpoint
        raise TrainingError(
            f"{self.name}: worker {world.rank} cannot read the checkpoint of step {step} that rank 0 reads; "
            "cluster.storage must be the same storage on every node"
        )

    def clear(self) -> None:
        """Remove all checkpoints of this run, once its output is written.

        Raises:
            TrainingError: the storage cannot be reached.
        """
        try:
            if self.files.get_file_info(self.root).type == pyarrow.fs.FileType.Directory:
                self.files.delete_dir(self.root)
        except OSError as error:
            raise self._failure("checkpoints cannot be removed", error) from error

    def _load(self, step: int) -> Checkpoint | None:
        if not self.remote:
            return _read(Path(self._path(step)), step)
        try:
            with tempfile.TemporaryDirectory() as folder:
                pyarrow.fs.copy_files(self._path(step), folder, self.files, pyarrow.fs.LocalFileSystem())
                return _read(Path(folder), step)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failure(f"checkpoint of step {step} cannot be read", error) from error

    def _error(self, error: Exception) -> type[TrainingError]:
        """An object store that fails may answer later; a local disk or a rejected request needs the user."""
        transient = self.remote and isinstance(error, OSError) and not self._is_rejected(error)
        return CheckpointUnavailableError if transient else TrainingError

    def _is_rejected(self, error: Exception) -> bool:
        return self.remote and REJECTED.search(str(error)) is not None

    def _failure(self, what: str, error: Exception) -> TrainingError:
        remedy = ""
        if self._is_rejected(error):
            remedy = (
                "; the store rejects the request: renew the credentials (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, "
                "AWS_SESSION_TOKEN) or their permissions, then run again: training resumes from its last checkpoint"
            )
        return self._error(error)(f"{self.name}: {what} ({error}){remedy}")

    def _path(self, step: int) -> str:
        return f"{self.root}/{PREFIX}{step:09d}"


def _write(folder: Path, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
    save_file(dict(tensors), folder / TENSORS)
    sync(folder / TENSORS)
    content = {"sha256": {TENSORS: digest_file(folder / TENSORS)}, "numbers": dict(numbers)}
    write_json(folder / NUMBERS, content)
    sync(folder / NUMBERS)


def _read(folder: Path, step: int) -> Checkpoint | None:
    try:
        content = json_of(folder / NUMBERS)
        if digest_file(folder / TENSORS) != content["sha256"][TENSORS]:
            return None
        return Checkpoint(step, load_file(folder / TENSORS), content["numbers"])
    except (OSError, ValueError, KeyError, AttributeError, SafetensorError):
        return None


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start with a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


class Saver:
    """Writes the checkpoints of a run. All workers must call its methods; rank 0 writes."""

    def __init__(self, store: CheckpointStore, world: World) -> None:
        self.store, self.world = store, world
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    @torch.no_grad()
    def save(self, state: TrainingState, numbers: Mapping[str, Any]) -> None:
        """Begin to write a checkpoint; `numbers` are JSON values. Raises TrainingError: the preceding one failed."""
        self.wait()
        tensors = state.tensors(self.world)
        if not self.world.is_main:
            return
        copied = {name: tensor.clone() for name, tensor in tensors.items()}
        content = copy.deepcopy({"state": state.numbers(), **numbers})
        self._writing = self._thread.submit(self.store.save, state.step, copied, content)

    def wait(self) -> None:
        """Wait until the last checkpoint is written.

        Raises:
            TrainingError: it could not be written; on every worker.
        """
        failure: TrainingError | None = None
        if self._writing is not None:
            try:
                self._writing.result()
            except TrainingError as error:
                failure = error
            self._writing = None
        if failure := self.world.broadcast(failure):
            raise failure

    def close(self) -> None:
        """Wait for the checkpoint that is being written, also when the run is interrupted."""
        self._thread.shutdown()
