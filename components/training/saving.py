"""Checkpoints that are written while training goes on.

`Saver.save` copies the state into main memory; a thread writes the copy. Training waits only if the preceding
checkpoint is not written yet. A checkpoint that is not complete when the process is killed does not exist, so training
resumes from the preceding one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from components.errors import TrainingError
from components.training.checkpoint import CheckpointStore
from components.training.distributed import World
from components.training.loop import TrainingState


class Saver:
    """Writes the checkpoints of a run. All workers must call its methods; rank 0 writes."""

    def __init__(self, store: CheckpointStore, world: World) -> None:
        self.store, self.world = store, world
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: Future[None] | None = None

    @torch.no_grad()
    def save(self, state: TrainingState, numbers: Mapping[str, Any]) -> None:
        """Begin to write a checkpoint: `state`, and `numbers` as JSON values.

        Raises:
            TrainingError: the preceding checkpoint could not be written.
        """
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
