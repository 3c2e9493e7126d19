"""Texts of the rows on which a score is computed: of dev, of test, and of every row of train that a label budget draws
with any seed (their scores by cross-validation choose a model). No language model of a run reads them or their copies:
the stage `ingest` leaves them out of every corpus, and `tokenize` out of a task's texts.

The output of the stage `examples` has the distinct texts, sorted, as texts.json. It changes only if the texts do:
another label for a row that is drawn in any case, or other rows that no budget draws, leave every corpus up to date.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from components.core.artifacts import read_json, read_manifest, write_json, writing
from components.data.tasks.budgets import sample_rows
from components.data.tasks.data import Labels, Split, row_texts

KIND: Final = "judged"
FILE: Final = "texts.json"
#: Splits all of whose rows are judged.
HELD_OUT: Final = ("dev", "test")


def write_judged(
    output: Path,
    splits: Mapping[str, Split],
    *,
    kind: str,
    strata: Labels,
    budgets: Iterable[int],
    seeds: Iterable[int],
) -> None:
    """Write the texts of the judged rows. `strata`: (N,) of the rows of train, by which budgets are drawn."""
    seeds = list(seeds)
    drawn = [sample_rows(strata, budget, seed=seed)[0] for budget in budgets for seed in seeds]
    rows = [splits[split].fields for split in HELD_OUT]
    rows.append(splits["train"].take(np.unique(np.concatenate(drawn))).fields)
    texts = {text for part in rows for fields in part for text in row_texts(kind, fields) if text.strip()}
    with writing(output, kind=KIND) as draft:
        write_json(draft.path / FILE, {"texts": sorted(texts)})


def read_judged(directories: Iterable[Path]) -> list[str]:
    """The distinct texts of several tasks, sorted.

    Raises:
        ArtifactError: a directory is incomplete or damaged.
    """
    texts: set[str] = set()
    for directory in directories:
        read_manifest(directory, kind=KIND)
        texts.update(read_json(directory / FILE, made_by="the stage examples")["texts"])
    return sorted(texts)
