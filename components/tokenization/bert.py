"""What WordPiece and the word vocabulary share: text is normalised and cut into words the BERT way.

Devlin et al. 2019 and google-research/bert `tokenization.py`, as in the `tokenizers` library: control characters
vanish, every kind of white space separates, a CJK ideograph or a punctuation mark is a word by itself; with
`lowercase`, letters are lower-cased and (with `strip_accents`) lose their combining marks.
"""

from __future__ import annotations

import json
import re
import unicodedata
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend
from tokenizers import normalizers, pre_tokenizers
from tokenizers.models import Model

from components.artifacts import write_atomic
from components.errors import ArtifactError
from components.tokenization.base import Ids, Tokenizer, well_formed
from components.tokenization.distinct import DistinctWordEncoder, count_distinct
from components.tokenization.segmenters import SEGMENTERS, Segmentation
from components.tokenization.special import END, PAD, START

VOCABULARY: Final = "tokenizer.json"
#: Share of combining marks among a sample's characters from which they are letters of the script and must be kept.
MARKS_SHARE: Final = 0.01
WORDS_AT_ONCE: Final = 1 << 14

_HIDDEN = frozenset({PAD, START, END})
# Where a space is left out when words are joined again: before closing marks, after opening ones, around an
# apostrophe, hyphen, slash or underscore inside a word.
_NO_SPACE_BEFORE = frozenset(".,;:!?%)]}'-/_\u2019\u2026\u201d\u3002\uff0c")
_NO_SPACE_AFTER = frozenset("([{'-/_\u2019\u201c#@$")


class BertWordsTokenizer(Tokenizer):
    """Base of the tokenizers that cut words the BERT way.

    `decode` joins pieces into words and puts spaces where English would; encoding its text again gives the same ids,
    if none of them is UNK or special and no segmenter is at work. Case, control characters and the exact white space
    of the original are lost.

    Args:
        lowercase: lower-case everything.
        strip_accents: take combining marks off letters ("é" and "e" are one); BERT does it whenever it lower-cases,
            which would destroy scripts whose vowels are combining marks, such as Thai.
    """

    def __init__(
        self,
        pieces: Sequence[str],
        *,
        segmentation: Segmentation,
        lowercase: bool,
        strip_accents: bool,
        frequencies: NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(pieces, segmentation=segmentation, frequencies=frequencies)
        self.lowercase = lowercase
        self.strip_accents = strip_accents
        self.backend = backend(
            self._model({piece: index for index, piece in enumerate(self.pieces)}),
            lowercase=lowercase,
            strip_accents=strip_accents,
        )
        self._distinct = DistinctWordEncoder(self._encode_words, lowercase=lowercase)

    @abstractmethod
    def _model(self, vocabulary: dict[str, int]) -> Model:
        """The model of the `tokenizers` library over `vocabulary`."""

    def _encode_words(self, words: list[str]) -> list[list[int]]:
        ids: list[list[int]] = []
        # In groups, because the library's result for a word is a hundred times larger than its ids.
        for start in range(0, len(words), WORDS_AT_ONCE):
            group = words[start : start + WORDS_AT_ONCE]
            ids += [encoding.ids for encoding in self.backend.encode_batch_fast(group, add_special_tokens=False)]
        return ids

    def encode_ragged(self, texts: Sequence[str]) -> tuple[Ids, NDArray[np.int64]]:
        return self._distinct.encode(texts)

    def encode_with_offsets(self, text: str) -> tuple[Ids, list[tuple[int, int]]]:
        spaced, inserted = self.segmentation.spaced_with_insertions(well_formed(text))
        encoding = self.backend.encode(spaced, add_special_tokens=False)
        spans = np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        # A position moves back by the number of spaces that were inserted before it.
        spans = spans - np.searchsorted(np.asarray(inserted, dtype=np.int64), spans)
        return np.asarray(encoding.ids, dtype=np.int32), [(start, end) for start, end in spans.tolist()]

    def decode(self, ids: Iterable[int]) -> str:
        words: list[str] = []
        for id_ in ids:
            piece = self.spelling(id_)
            if id_ in _HIDDEN:
                continue
            if words and self.continues(id_):
                words[-1] += self.surface(id_)
            else:
                words.append(piece)
        scripts = [] if self.segmentation.name == "none" else [segmenter.script for segmenter in SEGMENTERS.values()]
        return join_words(words, scripts=scripts)

    def _settings(self) -> dict[str, Any]:
        return {"lowercase": self.lowercase, "strip_accents": self.strip_accents}

    def _write_vocabulary(self, directory: Path) -> None:
        write_atomic(directory / VOCABULARY, self.backend.to_str(pretty=True) + "\n")

    @classmethod
    def _read_vocabulary(cls, directory: Path) -> list[str]:
        vocabulary = json.loads((directory / VOCABULARY).read_text(encoding="utf-8"))["model"]["vocab"]
        pieces = sorted(vocabulary, key=vocabulary.__getitem__)
        if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
            raise ArtifactError(f"{directory / VOCABULARY}: ids are not 0..{len(pieces) - 1}, each once")
        return pieces


def backend(model: Model, *, lowercase: bool, strip_accents: bool) -> Backend:
    """A tokenizer of the `tokenizers` library with BERT's normaliser and pre-tokenizer, and no added tokens."""
    result = Backend(model)
    result.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=strip_accents, lowercase=lowercase
    )
    result.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return result


def count_words(texts: Sequence[str], cutter: Backend) -> Counter[str]:
    """How often each word of `texts` comes, words cut by the normaliser and the pre-tokenizer of `cutter`."""

    def cut(part: str) -> list[str]:
        return [word for word, _ in cutter.pre_tokenizer.pre_tokenize_str(cutter.normalizer.normalize_str(part))]

    return count_distinct(texts, cut, lowercase=cutter.normalizer.lowercase)


def marks_are_letters(texts: Iterable[str]) -> bool:
    """Whether a sample's script writes letters as combining marks, so that stripping them would destroy it.

    In composed text (NFC) of Latin, Greek or Cyrillic there are next to none.
    """
    counts: Counter[str] = Counter()
    characters = 0
    for text in texts:
        characters += len(text)
        if not text.isascii():
            counts.update(unicodedata.normalize("NFC", text))
    marks = sum(count for character, count in counts.items() if unicodedata.category(character) == "Mn")
    return marks > MARKS_SHARE * characters


def join_words(words: Sequence[str], *, scripts: Sequence[re.Pattern[str]] = ()) -> str:
    """Words and punctuation marks as a line of text; no space between two characters of one of the `scripts`."""
    parts = list(words[:1])
    for before, word in pairwise(words):
        left, right = before[-1], word[0]
        joined = right in _NO_SPACE_BEFORE or left in _NO_SPACE_AFTER
        if not joined and not any(script.match(left) and script.match(right) for script in scripts):
            parts.append(" ")
        parts.append(word)
    return "".join(parts)
