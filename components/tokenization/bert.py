"""BERT's normalisation and word splitting, shared by WordPiece and word vocabularies.

Devlin et al. 2019 and google-research/bert `tokenization.py`, as in the `tokenizers` library: control characters are
removed, white space separates words, every CJK ideograph and punctuation mark is a word; `lowercase` lower-cases
letters, `strip_accents` removes combining marks.
"""

import re
import unicodedata
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend
from tokenizers import normalizers, pre_tokenizers
from tokenizers.models import Model

from components.data.segmenters import SEGMENTERS, Segmentation
from components.tokenization.distinct import DistinctWordEncoder, LibraryTokenizer, count_distinct
from components.tokenization.special import OMITTED

#: Share of combining marks in a sample from which they count as letters of the script and are kept.
MARKS_SHARE: Final = 0.01

# Decoding inserts no space before closing punctuation, after opening punctuation, and around an apostrophe, hyphen,
# slash or underscore.
_NO_SPACE_BEFORE = frozenset(".,;:!?%)]}'-/_\u2019\u2026\u201d\u3002\uff0c")
_NO_SPACE_AFTER = frozenset("([{'-/_\u2019\u201c#@$")


class BertWords(TypedDict):
    segmentation: Segmentation
    lowercase: bool
    strip_accents: bool
    frequencies: NotRequired[NDArray[np.int64] | None]


class BertWordsTokenizer(LibraryTokenizer):
    """Base class of tokenizers that split words like BERT.

    `decode` joins pieces into words with English spacing. Encoding the result gives the same ids if none is UNK or
    special and there is no segmentation. `strip_accents`: whether combining marks are removed ("é" becomes "e"). BERT
    does so whenever it lower-cases, which destroys scripts whose vowels are combining marks, such as Thai."""

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
        """The library's model of `vocabulary`, piece -> id."""

    def decode(self, ids: Iterable[int]) -> str:
        scripts = [] if self.segmentation.name == "none" else [segmenter.script for segmenter in SEGMENTERS.values()]
        return join_words(self._words(ids), scripts=scripts)

    def _words(self, ids: Iterable[int]) -> list[str]:
        words: list[str] = []
        for id_ in ids:
            piece = self.spelling(id_)
            if id_ in OMITTED:
                continue
            if words and self.continues(id_):
                words[-1] += self.surface(id_)
            else:
                words.append(piece)
        return words

    def _settings(self) -> dict[str, Any]:
        return {"lowercase": self.lowercase, "strip_accents": self.strip_accents}


def backend(model: Model, *, lowercase: bool, strip_accents: bool) -> Backend:
    """A tokenizer of the library with BERT's normaliser and pre-tokenizer, without added tokens."""
    result = Backend(model)
    result.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=strip_accents, lowercase=lowercase
    )
    result.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return result


def count_words(texts: Sequence[str], cutter: Backend) -> Counter[str]:
    """Word counts of `texts`, split by the normaliser and the pre-tokenizer of `cutter`."""

    def cut(part: str) -> list[str]:
        return [word for word, _ in cutter.pre_tokenizer.pre_tokenize_str(cutter.normalizer.normalize_str(part))]

    return count_distinct(texts, cut, lowercase=cutter.normalizer.lowercase)


def marks_are_letters(texts: Iterable[str]) -> bool:
    """Whether combining marks are letters of the sample's script and must not be stripped: NFC text in Latin, Greek or
    Cyrillic script has almost none."""
    counts: Counter[str] = Counter()
    characters = 0
    for text in texts:
        characters += len(text)
        if not text.isascii():
            counts.update(unicodedata.normalize("NFC", text))
    marks = sum(count for character, count in counts.items() if unicodedata.category(character) == "Mn")
    return marks > MARKS_SHARE * characters


def join_words(words: Sequence[str], *, scripts: Sequence[re.Pattern[str]] = ()) -> str:
    """Join words and punctuation marks to a text, without spaces between characters of one of the `scripts`."""
    parts = list(words[:1])
    for before, word in pairwise(words):
        left, right = before[-1], word[0]
        joined = right in _NO_SPACE_BEFORE or left in _NO_SPACE_AFTER
        if not joined and not any(script.match(left) and script.match(right) for script in scripts):
            parts.append(" ")
        parts.append(word)
    return "".join(parts)
