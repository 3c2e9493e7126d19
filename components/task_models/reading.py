"""How much of the texts a task model reads: length of a sequence, windows, and the share of the texts that is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from components.models.base import LanguageModel
from components.settings.finetune import FinetuneSettings
from components.task_models.base import Task, most_pieces
from components.task_models.inputs import reads_apart, window_size
from components.tasks.data import Fields
from components.tokenization import Tokenizer

#: Lengths in pieces, of which the least is used that holds nearly all texts. Longer texts are read in windows.
LENGTHS: Final = (64, 128, 256)
#: Share of the texts that are not cut, up to `LONGEST` pieces, because the time grows with them.
WHOLE: Final = 0.95
LONGEST: Final = 2048
#: Maximum number of rows that are measured, evenly spaced.
ROWS: Final = 2000


@dataclass(frozen=True)
class Extent:
    """What is read of a text."""

    max_length: int
    chunk: int | None = None
    cut: float = 0.0


def sizes_of(
    rows: Sequence[Fields], tokenizer: Tokenizer, encoder: LanguageModel, settings: FinetuneSettings, *, task: Task
) -> NDArray[np.int64]:
    """(N,) pieces of the longest sequence of each row, special pieces included, if nothing were cut; of at most `ROWS`
    rows."""
    chosen = [rows[index] for index in np.unique(np.linspace(0, len(rows) - 1, min(len(rows), ROWS)).astype(int))]
    lengths = iter([len(pieces) for pieces in tokenizer.encode_batch([text for fields in chosen for text in fields])])
    counts = [[next(lengths) for _ in fields] for fields in chosen]
    item = len(encoder.special_tokens([]))
    if task.kind == "tagging":
        return np.asarray([sum(words) + item for words in counts])
    if len(counts[0]) == 1 or (task.kind in ("pair", "similarity") and reads_apart(settings, encoder)):
        return np.asarray([max(parts) + item for parts in counts])
    two = len(encoder.pair_tokens([], [])[0])
    return np.asarray([first + max(others) + two for first, *others in counts])


def reading_of(sizes: NDArray[np.int64], *, single: bool, most: int | None = None) -> Extent:
    """What is read of texts of (N,) pieces, so that at most 1 - `WHOLE` of them are cut."""
    lengths = [length for length in LENGTHS if most is None or length < most]
    if most is not None and most < LENGTHS[-1]:
        lengths.append(most)
    wanted = int(np.quantile(sizes, WHOLE, method="inverted_cdf"))
    length = next((length for length in lengths if wanted <= length), lengths[-1])
    chunk = length if single and wanted > length else None
    if chunk is not None:
        length = min(-(-wanted // chunk) * chunk, LONGEST)
    return Extent(length, chunk, float((sizes > length).mean()))


def share_cut(
    rows: Sequence[Fields], tokenizer: Tokenizer, encoder: LanguageModel, settings: FinetuneSettings, *, task: Task
) -> float:
    """Share of the rows (of at most `ROWS`) of which the model reads a part only; 0 for kinds that read units, in
    windows of any number."""
    if task.reads == "units" or not len(rows):
        return 0.0
    windows = task.single and window_size(settings, encoder) is not None
    most = settings.max_length if windows else most_pieces(settings, encoder)
    sizes = sizes_of(rows, tokenizer, encoder, settings, task=task)
    return float((sizes > most).mean())
