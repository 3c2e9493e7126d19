"""Interface of samplers: batches as pure functions of (seed, step), in any order and for any number of workers
(contract 6). The only state between calls is read-ahead buffers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from components.core.errors import DataError, TrainingError
from components.models.base import Batch, LanguageModel, ModelConfig

if TYPE_CHECKING:
    from components.tokenization import Tokenizer

Ids = NDArray[np.int64]


class Tokens(Protocol):
    """Interface of a token store for samplers: a cyclic stream of the documents' pieces, END after each document."""

    @property
    def documents(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def offsets(self) -> Ids:
        """(documents + 1,) position in the stream of each document's first piece, and the end."""

    def span(self, start: int, length: int) -> Ids:
        """(length,) pieces from position `start`, across documents; after the last piece the stream starts again."""

    def sentence_starts(self, document: int) -> NDArray[Any]:
        """Position in the document of each sentence's first piece; the first is 0."""


class Sampler(ABC):
    """Makes the batch of a step. A sampler defines `tokens` or `tokens_before`."""

    @abstractmethod
    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The rows of step `step` that belong to worker `rank` of `world`, int64 on the CPU."""

    def tokens(self, step: int) -> int:
        """Input tokens of the global batch of a step."""
        return self.tokens_before(step + 1) - self.tokens_before(step)

    def tokens_before(self, step: int) -> int:
        """Input tokens of all global batches before `step`."""
        return sum(map(self.tokens, range(step)))

    def rate_scale(self, step: int) -> float:
        """Factor of the learning rate in this step."""
        return 1.0

    @property
    def has_constant_shapes(self) -> bool:
        """Whether all batches of a worker have the same shapes."""
        return False


class WindowSampler(Sampler):
    """Base of the samplers over a token store.

    Args:
        window: tokens per row (on average, with `jitter`).
        seed: of the order of documents, windows and masks.
        vocabulary: number of pieces, for random replacements.
        jitter: standard deviation of the window length, in tokens; 0: constant length.
        config: config of the model, which contains the settings of some samplers (negatives, masks).
        pieces: id -> piece, for whole-word masking.

    Raises:
        DataError: the store contains fewer than two tokens per row of a batch.
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
                f"the corpus contains {store.tokens} tokens, too few for batches of {batch_size} rows; "
                "add text or lower training.batch_size"
            )
        self.store, self.batch_size, self.window, self.seed = store, batch_size, window, seed
        self.vocabulary, self.jitter = vocabulary, jitter
        self.config, self.pieces = config, pieces

    @property
    def has_constant_shapes(self) -> bool:
        # Samplers of windows of different lengths override this.
        return True

    def tokens_before(self, step: int) -> int:
        return step * self.batch_size * self.window

    def scores(self, model: LanguageModel, tokenizer: Tokenizer) -> dict[str, float]:
        """Further scores, by name, of a model in evaluation mode on documents of the store."""
        return {}

    def _rows(self, rank: int, world: int) -> range:
        if self.batch_size % world:
            raise TrainingError(
                f"training.batch_size {self.batch_size} cannot be divided among {world} workers; "
                "choose a multiple of the number of workers"
            )
        share = self.batch_size // world
        return range(rank * share, (rank + 1) * share)
