"""What every sampler is: batches as pure functions of (seed, step), contract 6.

A sampler is asked for the batch of any step, in any order, by any number of workers: the global batch is the same, and
each worker is given its share of the rows. Nothing is kept between calls but read-ahead buffers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from components.errors import DataError, TrainingError
from components.models.base import Batch, ModelConfig

Ids = NDArray[np.int64]


class Tokens(Protocol):
    """What samplers need of a token store: one endless stream of documents' pieces, each document ending with END."""

    @property
    def documents(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def offsets(self) -> Ids:
        """(documents + 1,) position of each document's first piece in the stream."""
        ...

    def span(self, start: int, length: int) -> Ids:
        """`length` pieces from position `start`, across documents, going on at 0 after the end."""
        ...

    def sentence_starts(self, document: int) -> NDArray[Any]:
        """Position of each sentence's first piece in its document; the first is 0."""
        ...


class Sampler(ABC):
    """Makes the batch of a step."""

    @abstractmethod
    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The rows of step `step` that belong to worker `rank` of `world`, int64 on the CPU."""

    @abstractmethod
    def tokens_before(self, step: int) -> int:
        """Input tokens of all global batches before `step`."""

    def rate_scale(self, step: int) -> float:
        """What the learning rate of this step is multiplied by."""
        return 1.0


class WindowSampler(Sampler):
    """Common part of the samplers over a token store.

    Args:
        store: the tokens.
        batch_size: rows of the global batch.
        window: tokens of a row (on average, where `jitter` varies it).
        seed: decides order, windows and masks.
        vocabulary: number of pieces, for random replacements.
        jitter: standard deviation of the window's length.
        config: the model's, for samplers of families that set what is drawn (negatives, masks) there.
        pieces: id -> piece, for samplers that look into pieces (whole words).

    Raises:
        DataError: the store holds fewer tokens than one batch needs rows.
    """

    def __init__(
        self,
        store: Tokens,
        *,
        batch_size: int,
        window: int,
        seed: int,
        vocabulary: int,
        jitter: float = 0,
        config: ModelConfig | None = None,
        pieces: Sequence[str] = (),
    ) -> None:
        if store.tokens < 2 * batch_size:
            raise DataError(
                f"the corpus holds {store.tokens} tokens, too few for batches of {batch_size} rows; "
                "add text or lower training.batch_size"
            )
        self.store, self.batch_size, self.window, self.seed = store, batch_size, window, seed
        self.vocabulary, self.jitter = vocabulary, jitter
        self.config, self.pieces = config, pieces

    def _rows(self, rank: int, world: int) -> range:
        if self.batch_size % world:
            raise TrainingError(
                f"training.batch_size {self.batch_size} cannot be shared out among {world} workers; "
                "choose a multiple of the number of workers"
            )
        share = self.batch_size // world
        return range(rank * share, (rank + 1) * share)
