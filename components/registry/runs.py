"""What the registry reads from a fine-tuned system's runs.parquet: one row for each test or dev row of each run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from components.config import FROZEN
from components.errors import ArtifactError
from components.registry.promotion import score_of

#: A class or slice counts as hurt by transfer when it loses more than this against the same model from scratch.
HURT = 0.01
ALL = -1


@dataclass(frozen=True)
class Runs:
    """The rows of one split at the largest label budget, `seeds` runs one after another.

    `budget` is the number of labels a class (-1: all); the arrays have one entry a row; slices may hold None.
    """

    budget: int
    seeds: NDArray[np.int64]
    labels: NDArray[np.int64]
    predictions: NDArray[np.int64]
    slices: NDArray[np.object_]

    def score(self, metric: str, where: NDArray[np.bool_] | None = None) -> float:
        """Mean over seeds of a metric on the rows `where` (all of them by default)."""
        chosen = np.ones(len(self.labels), dtype=bool) if where is None else where
        return float(
            np.mean(
                [
                    score_of(self.labels[mine], self.predictions[mine], metric=metric)
                    for seed in np.unique(self.seeds[chosen])
                    for mine in (chosen & (self.seeds == seed),)
                ]
            )
        )

    def class_f1(self, label: int) -> float:
        """F1 of one class, its hits counted over all seeds."""
        hits = int(((self.labels == label) & (self.predictions == label)).sum())
        size = int((self.labels == label).sum() + (self.predictions == label).sum())
        return 2 * hits / size if size else 0.0


def read_runs(path: Path, *, split: str) -> Runs | None:
    """The runs at the largest budget, or None if the file has no row of the split.

    Raises:
        ArtifactError: the file is missing, damaged or lacks a column.
    """
    columns = ["start", "budget", "seed", "label", "prediction", "slice"]
    try:
        table = pq.read_table(path, columns=["split", *columns])
    except (OSError, ValueError, KeyError) as error:
        raise ArtifactError(f"{path}: cannot be read ({error}); run the stage finetune again") from error
    if missing := sorted(set(columns) - set(table.column_names)):
        raise ArtifactError(f"{path}: has no column {missing[0]!r}; run the stage finetune again")
    # The same encoder left frozen stands in the same file; what is registered is the fine-tuned one.
    tuned = pc.invert(pc.ends_with(table["start"], FROZEN))
    table = table.filter(pc.and_(pc.equal(table["split"], split), tuned))
    if table.num_rows == 0:
        return None
    budgets: set[Any] = set(table["budget"].to_pylist())
    largest = ALL if ALL in budgets else max(budgets)
    table = table.filter(pc.equal(table["budget"], largest))
    seeds, labels, predictions = (table[name].to_numpy().astype(np.int64) for name in ("seed", "label", "prediction"))
    slices = np.array(table["slice"].to_pylist(), dtype=object)
    return Runs(budget=int(largest), seeds=seeds, labels=labels, predictions=predictions, slices=slices)


def transfer_warnings(task: Path, system: str, *, names: list[str], metric: str, slice_rows: int) -> list[str]:
    """Where the transferred system does worse on test than the same family from scratch: negative transfer, which a
    better mean can hide.

    Args:
        task: `{out}/finetuned/<task>`.
        system: `<family>-<start>`.
        names: of the labels, by number.
        metric: for slices.
        slice_rows: smaller slices do not count.

    Returns:
        A sentence for every class and slice that loses more than 0.01; none if there is no scratch system beside it.
    """
    family, start = system.rsplit("-", 1)
    beside = task / f"{family}-scratch" / "runs.parquet"
    if start == "scratch" or not beside.is_file():
        return []
    transferred, scratch = (read_runs(path, split="test") for path in (task / system / "runs.parquet", beside))
    if transferred is None or scratch is None or transferred.budget != scratch.budget:
        return []
    told = []

    def compare(what: str, before: float, after: float) -> None:
        if before - after > HURT:
            told.append(f"transfer hurts on {what}: {after:.3f} against {before:.3f} from scratch")

    for label in np.unique(scratch.labels):
        compare(f"class {names[label]!r}", scratch.class_f1(label), transferred.class_f1(label))
    for name in sorted({name for name in scratch.slices if name}):
        masks = [runs.slices == name for runs in (scratch, transferred)]
        if masks[0].sum() / len(np.unique(scratch.seeds)) >= slice_rows and masks[1].any():
            compare(f"slice {name!r}", scratch.score(metric, masks[0]), transferred.score(metric, masks[1]))
    return told
