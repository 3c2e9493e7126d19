"""How much of a text is read, from the sizes of texts; free of torch."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: Lengths in pieces, of which the least is used that holds nearly all texts. Longer texts are read in windows.
LENGTHS: Final = (64, 128, 256)
#: Share of the texts that are not cut, up to `LONGEST` pieces, because the time grows with them.
WHOLE: Final = 0.95
LONGEST: Final = 2048


@dataclass(frozen=True)
class Extent:
    """What is read of a text."""

    max_length: int
    chunk: int | None = None
    cut: float = 0.0


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
