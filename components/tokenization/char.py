"""Character vocabulary learned from the corpus, for any script (Flair: Akbik et al. 2018)."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from components.core.artifacts import json_of, write_atomic
from components.core.errors import DataError
from components.data.segmenters import Segmentation
from components.settings.tokenizer import CharSettings
from components.tokenization.base import Ids, Tokenizer, well_formed
from components.tokenization.distinct import chunks
from components.tokenization.special import FIRST_ORDINARY, OMITTED, SPECIAL_PIECES, UNK

VOCABULARY: Final = "vocabulary.json"
_CODE_POINTS: Final = 0x110000


class CharTokenizer(Tokenizer):
    """One piece per code point, including white space; case is kept. `decode` is the exact inverse except for
    characters outside the vocabulary, which become U+FFFD. Segmentation does not affect the ids."""

    kind = "char"
    segmented = False

    def __init__(
        self, pieces: Sequence[str], *, segmentation: Segmentation, frequencies: NDArray[np.int64] | None = None
    ) -> None:
        super().__init__(pieces, segmentation=segmentation, frequencies=frequencies)
        self._id_of = np.full(_CODE_POINTS, UNK, dtype=np.int32)
        self._id_of[[ord(piece) for piece in self.pieces[FIRST_ORDINARY:]]] = np.arange(FIRST_ORDINARY, len(pieces))

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        return [self._id_of[code_points(text)] for text in texts]

    def encode_ragged(self, texts: Sequence[str]) -> tuple[Ids, NDArray[np.int64]]:
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum([len(text) for text in texts], out=offsets[1:])
        return self._id_of[code_points("".join(texts))], offsets

    def encode_with_offsets(self, text: str) -> tuple[Ids, list[tuple[int, int]]]:
        return self._id_of[code_points(text)], [(index, index + 1) for index in range(len(text))]

    def decode(self, ids: Iterable[int]) -> str:
        return "".join("\ufffd" if id_ == UNK else self.pieces[id_] for id_ in ids if id_ not in OMITTED)

    def _settings(self) -> dict[str, Any]:
        return {}

    def _write_vocabulary(self, directory: Path) -> None:
        write_atomic(directory / VOCABULARY, json.dumps(self.pieces, indent=0) + "\n")

    @classmethod
    def _read_vocabulary(cls, directory: Path) -> list[str]:
        return json_of(directory / VOCABULARY)


def code_points(text: str) -> NDArray[np.uint32]:
    """The code points of `text`, (len(text),) uint32; lone surrogates are kept."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


#: Minimum frequency of a character.
LEAST_COUNT: Final = 2


def train_char(texts: Sequence[str], *, settings: CharSettings, segmentation: Segmentation) -> CharTokenizer:
    """Learn a vocabulary of the most frequent characters. Raises DataError: no character is frequent enough."""
    counts = np.zeros(_CODE_POINTS, dtype=np.int64)
    for run in chunks(texts):
        counts += np.bincount(code_points(well_formed("".join(run))), minlength=_CODE_POINTS)
    frequent = np.flatnonzero(counts >= LEAST_COUNT)
    # The sort is stable: characters with equal counts stay in code-point order.
    ranked = frequent[np.argsort(-counts[frequent], kind="stable")][: max(0, settings.max_vocabulary - FIRST_ORDINARY)]
    if len(ranked) == 0:
        raise DataError(
            f"tokenizer.char: no character of the corpus occurs {LEAST_COUNT} times and fits into "
            f"{settings.max_vocabulary} pieces; raise max_vocabulary, or add text"
        )
    return CharTokenizer([*SPECIAL_PIECES, *map(chr, ranked)], segmentation=segmentation)
