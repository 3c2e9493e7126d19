"""Batches for contrastive training: texts of balanced classes, each text once in a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from components.models.base import Batch
from components.task_models.base import Encoded
from components.task_models.sampler import collate
from components.tasks.data import Target
from components.training.rng import counter_rng
from components.training.windows import Sampler

Indices = NDArray[np.int64]


class ContrastiveSampler(Sampler):
    """The same number of rows of each class in every step; if there are too many classes for two rows each, the
    classes take turns.

    Classes and the rows of a class are each read in a sequence of random permutations, so that the rows of a class are
    used equally often; rows that do not fill the last step of a permutation are left out of it. A row with several
    labels belongs to the class of each, a row without labels to a class of its own. A row that is due twice in a step
    is in its batch once.

    Args:
        encoded: N rows.
        targets: N vectors of label indices.
        rows: of a step.
        seed: of the order.
    """

    def __init__(
        self,
        encoded: Sequence[Encoded],
        targets: Sequence[Target],
        *,
        rows: int,
        seed: int,
    ) -> None:
        self.encoded, self.targets = encoded, targets
        self.seed = seed
        self.sizes = np.asarray([sum(map(len, row.pieces)) for row in encoded], dtype=np.int64)
        known = sorted({int(label) for target in targets for label in target})
        self.classes = [np.flatnonzero([label in target for target in targets]) for label in known]
        if (none := np.flatnonzero([len(target) == 0 for target in targets])).size:
            self.classes.append(none)
        #: Classes in a step, and rows of each.
        self.width = min(len(self.classes), max(1, rows // 2))
        self.depth = max(2, rows // self.width)
        self._before = [0]

    def rows(self, step: int) -> Indices:
        """Row indices of a step, ascending."""
        found = []
        for turn in range(step * self.width, (step + 1) * self.width):
            # Every class has one turn in a round.
            time, place = divmod(turn, len(self.classes))
            chosen = int(self._order("classes", time, len(self.classes))[place])
            members = self.classes[chosen]
            cycle, position = divmod(time, max(1, len(members) // self.depth))
            order = self._order(f"rows {chosen}", cycle, len(members))
            found.append(members[order[position * self.depth : (position + 1) * self.depth]])
        return np.unique(np.concatenate(found))

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The batch of a step, or the part of it on one rank."""
        rows = self.rows(step)[rank::world]
        return collate([self.encoded[row] for row in rows], [self.targets[row] for row in rows])

    def tokens_before(self, step: int) -> int:
        """Number of tokens in the batches before a step."""
        while len(self._before) <= step:
            self._before.append(self._before[-1] + int(self.sizes[self.rows(len(self._before) - 1)].sum()))
        return self._before[step]

    def _order(self, purpose: str, cycle: int, size: int) -> Indices:
        return counter_rng(self.seed, purpose, cycle).permutation(size)
