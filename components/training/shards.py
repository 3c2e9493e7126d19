"""Files of a state that is divided among the workers: one in safetensors per worker, with the place of each part in its
tensor (torch.distributed.checkpoint)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from components.artifacts import digest_file, sync


def write_shards(
    folder: Path, tensors: Mapping[str, Tensor], *, group: dist.ProcessGroup, written: Callable[[Path], None]
) -> dict[str, str]:
    """Write this worker's part of the tensors, in a call by all workers together.

    Args:
        folder: may be the same for all workers or not.
        tensors: DTensors; or whole tensors, the same on every worker, each of which one worker writes.
        group: of the workers, for exchanges on the CPU.
        written: called with each file of this worker.

    Returns:
        Name and SHA-256 digest of every file of all workers.

    Raises:
        OSError: a worker cannot write; on every worker.
    """
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        dcp.save(dict(tensors), storage_writer=writer, process_group=group)
    except dcp.CheckpointException as error:
        causes = [cause for cause, _ in error.failures.values()]
        raise next((cause for cause in causes if isinstance(cause, OSError)), error) from error
    own: dict[str, str] = {}
    outcome: dict[str, str] | OSError = own
    try:
        # torch numbers the files by worker, from 1.
        for file in sorted(folder.glob(f"shard-{dist.get_rank(group) + 1:05d}-*")):
            own[file.name] = digest_file(file)
            written(file)
        sync(folder)
    except OSError as error:
        outcome = error
    outcomes: list[dict[str, str] | OSError] = [{}] * dist.get_world_size(group)
    dist.all_gather_object(outcomes, outcome, group=group)
    digests: dict[str, str] = {}
    for one in outcomes:
        if isinstance(one, OSError):
            raise one
        digests |= one
    return digests


def read_shards(folder: Path) -> dict[str, Tensor]:
    """The whole tensors whose parts are in the files of a folder."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    reader = HuggingFaceStorageReader(str(folder))
    facts = reader.read_metadata().state_dict_metadata
    found = {
        name: torch.empty(fact.size, dtype=fact.properties.dtype)
        for name, fact in facts.items()
        if isinstance(fact, TensorStorageMetadata)
    }
    with warnings.catch_warnings():
        # That this process reads alone is intended.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        dcp.load(found, storage_reader=reader, no_dist=True)
    return found
