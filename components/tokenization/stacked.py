"""Words for several tokenizers at once: every part of a stacked encoder splits them by its own rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from components.tokenization.base import PROBES, Ids, Tokenizer, load_tokenizer, well_formed
from components.tokenization.open_word import UnseenWords
from components.tokenization.segmenters import Segmentation
from components.tokenization.special import OMITTED, SPECIAL_PIECES

#: Folders of the parts' tokenizers.
PART: Final = "part-{}"

_WORD = re.compile(r"\S+")


class StackedTokenizer(Tokenizer):
    """Words between white space, as they are written; each distinct word has an id.

    Ids are assigned in order of occurrence and never change; they are valid for this object and its models, and must
    not be stored. The vocabulary consists of the special pieces only.

    Args:
        pieces: the special pieces.
        parts: tokenizers of the parts.
        segmentation: of languages without spaces.
        frequencies: must be None.
    """

    kind = "stacked"

    def __init__(
        self,
        pieces: Sequence[str] = SPECIAL_PIECES,
        *,
        parts: Sequence[Tokenizer],
        segmentation: Segmentation,
        frequencies: NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(pieces, segmentation=segmentation, frequencies=frequencies)
        self.parts = list(parts)
        self._words = UnseenWords(self.vocab_size)

    @classmethod
    def of(cls, parts: Sequence[Tokenizer]) -> StackedTokenizer:
        """The tokenizer of these parts, with the segmentation of the first part that has one."""
        names = [part.segmentation.name for part in parts if part.segmentation.name != "none"]
        return cls(parts=parts, segmentation=Segmentation(names[0] if names else "none"))

    def spelling(self, id_: int) -> str:
        return self.pieces[id_] if id_ < self.vocab_size else self._words.spelling(id_)

    def surface(self, id_: int) -> str:
        return self.spelling(id_)

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        return [self._encode(self.segmentation.spaced(well_formed(text))) for text in texts]

    def encode_ragged(self, texts: Sequence[str]) -> tuple[Ids, NDArray[np.int64]]:
        encoded = [self._encode(text) for text in texts]
        offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return np.concatenate([*encoded, np.zeros(0, dtype=np.int32)]).astype(np.int32), offsets

    def encode_with_offsets(self, text: str) -> tuple[Ids, list[tuple[int, int]]]:
        spaced, inserted = self.segmentation.spaced_with_insertions(well_formed(text))
        spans = np.asarray([match.span() for match in _WORD.finditer(spaced)], dtype=np.int64).reshape(-1, 2)
        spans = spans - np.searchsorted(np.asarray(inserted, dtype=np.int64), spans)
        return self._encode(spaced), [(start, end) for start, end in spans.tolist()]

    def decode(self, ids: Iterable[int]) -> str:
        """The words, joined by spaces."""
        return " ".join(self.spelling(id_) for id_ in ids if id_ not in OMITTED)

    def _encode(self, spaced: str) -> Ids:
        return np.asarray([self._words.id_of(word) for word in _WORD.findall(spaced)], dtype=np.int32)

    def _settings(self) -> dict[str, Any]:
        return {"parts": len(self.parts)}

    def _rules(self) -> Any:
        return [part.fingerprint() for part in self.parts]

    def _probed(self) -> Iterator[bytes]:
        # Words instead of ids, because the id of a word depends on the words before it.
        for text in PROBES:
            yield "\n".join(_WORD.findall(self.segmentation.spaced(text))).encode()

    def _write_vocabulary(self, directory: Path) -> None:
        for number, part in enumerate(self.parts):
            part.save(directory / PART.format(number))

    @classmethod
    def _read_vocabulary(cls, directory: Path) -> list[str]:
        return list(SPECIAL_PIECES)

    @classmethod
    def _read_rules(cls, directory: Path) -> dict[str, Any]:
        folders = sorted(directory.glob(PART.format("*")), key=lambda folder: int(folder.name.rpartition("-")[2]))
        return {"parts": [load_tokenizer(folder) for folder in folders]}
