"""Byte-level BPE: lossless encoding of any text.

Byte-pair encoding (Sennrich, Haddow and Birch 2016) over UTF-8 bytes, as in GPT-2 (Radford et al. 2019): a text is
split into words with their leading space, numbers, punctuation and white space; the bytes of each part, written as 256
printable characters, are merged by the learned rules.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from components.artifacts import write_atomic
from components.settings.tokenizer import BytePairSettings
from components.tokenization.bert import BertWordsTokenizer
from components.tokenization.distinct import (
    VOCABULARY,
    Bytes,
    DistinctWordEncoder,
    LibraryTokenizer,
    count_distinct,
    starts_of_texts_too,
)
from components.tokenization.segmenters import Segmentation
from components.tokenization.special import FIRST_ORDINARY, OMITTED, SPECIAL_PIECES
from components.tokenization.wordpiece import check_size, repeated

#: Inserted between segmented words: a Unicode noncharacter, which does not occur in text and can be removed again.
SEPARATOR: Final = "\ufdd0"
#: GPT-2's pattern; `{0}` is the class of word characters: letters, and with `marks` combining marks.
PATTERN: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?[{0}]+| ?\p{{N}}+| ?[^\s{0}\p{{N}}]+|\s+(?!\S)|\s+"

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
#: Byte -> character: itself if printable; the other bytes follow from U+0100.
_CHARACTER = {byte: chr(byte) for byte in _PRINTABLE}
_CHARACTER |= {byte: chr(0x100 + index) for index, byte in enumerate(sorted(set(range(256)) - set(_PRINTABLE)))}
_BYTE = {character: byte for byte, character in _CHARACTER.items()}
_SPACE_CHARACTER = _CHARACTER[ord(" ")]

# Byte classes; 0 is unknown (part of a longer character, a control character).
_LETTER, _DIGIT, _MARK, _APOSTROPHE, _SPACE, _WHITE, _BEYOND = range(1, 8)
_CLASS = np.zeros(256, dtype=np.uint8)
_CLASS[0x21:0x7F] = _MARK
_CLASS[[*range(ord("0"), ord("9") + 1)]] = _DIGIT
_CLASS[[*range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1)]] = _LETTER
_CLASS[ord("'")] = _APOSTROPHE
_CLASS[ord(" ")] = _SPACE
_CLASS[[*b"\t\n\x0b\x0c\r"]] = _WHITE
# First bytes of multi-byte characters other than white space (C2, E1, E2, E3) and SEPARATOR (EF).
_CLASS[[byte for byte in range(0xC3, 0xF5) if byte not in (0xE1, 0xE2, 0xE3, 0xEF)]] = _BEYOND
# _CUTS[a, b]: whether a byte of class b after one of class a begins a part, whatever the context.
_CUTS = np.zeros((8, 8), dtype=bool)
_CUTS[np.ix_([_LETTER, _DIGIT, _MARK, _APOSTROPHE], [_SPACE, _WHITE])] = True
_CUTS[_LETTER, [_DIGIT, _MARK, _APOSTROPHE]] = True
_CUTS[_DIGIT, [_LETTER, _MARK, _APOSTROPHE]] = True
_CUTS[_MARK, [_LETTER, _DIGIT]] = True
_NO_SPACE = np.isin(np.arange(8), [_LETTER, _DIGIT, _MARK, _APOSTROPHE, _BEYOND])


class BytePairTokenizer(LibraryTokenizer):
    """Pieces are byte sequences in GPT-2's notation ("Ġthe" is " the"); there are no unknown pieces.

    `decode` is the exact inverse for every text, with two exceptions: a lone surrogate becomes U+FFFD, and with
    segmentation the noncharacter U+FDD0 is removed. Bytes that are not UTF-8 (a truncated character) decode as U+FFFD.

    Special pieces have no merges, so text is never encoded to them. Spans of `encode_with_offsets` include the leading
    space of a word; all pieces of one character have the span of the character.

    Args:
        merges: pairs of pieces in order of priority.
        marks: whether combining marks are part of words, as Thai, Arabic and Hindi need; GPT-2 and RoBERTa treat them
            as punctuation.
    """

    kind = "bpe"
    separator = SEPARATOR
    leads_with_space = True

    def __init__(
        self,
        pieces: Sequence[str],
        *,
        merges: Sequence[Sequence[str]],
        segmentation: Segmentation,
        marks: bool = True,
        frequencies: NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(pieces, segmentation=segmentation, frequencies=frequencies)
        self.merges = [(left, right) for left, right in merges]
        self.marks = marks
        vocabulary = {piece: index for index, piece in enumerate(self.pieces)}
        try:
            model = models.BPE(vocabulary, self.merges, unk_token="[UNK]")
        except Exception as error:  # the library raises plain Exception: a merge refers to an unknown piece
            raise ValueError(f"merges do not fit the pieces: {error}") from error
        self.backend = Backend(model)
        self.backend.pre_tokenizer = pre_tokenizer(marks=marks, segmentation=segmentation)
        self._distinct = DistinctWordEncoder(
            self._encode_words, cut=_cut if segmentation.name == "none" else _cut_segmented, stripped=False
        )

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(self._bytes(id_) for id_ in ids if id_ not in OMITTED).decode("utf-8", "replace")

    def continues(self, id_: int) -> bool:
        return not self.pieces[id_].startswith(_SPACE_CHARACTER)

    def surface(self, id_: int) -> str:
        return self._bytes(id_).decode("utf-8", "ignore").removeprefix(" ")

    def _bytes(self, id_: int) -> bytes:
        piece = self.pieces[id_]
        return piece.encode() if id_ < FIRST_ORDINARY else bytes(_BYTE[character] for character in piece)

    def _settings(self) -> dict[str, Any]:
        return {"marks": self.marks}

    def _rules(self) -> list[tuple[str, str]]:
        return self.merges

    def _write_vocabulary(self, directory: Path) -> None:
        write_atomic(directory / VOCABULARY, self.backend.to_str(pretty=True) + "\n")

    @classmethod
    def _read_rules(cls, directory: Path) -> dict[str, Any]:
        return {"merges": json.loads((directory / VOCABULARY).read_text(encoding="utf-8"))["model"]["merges"]}

    @classmethod
    def _read_vocabulary(cls, directory: Path) -> list[str]:
        return BertWordsTokenizer._read_vocabulary(directory)


def train_bpe(texts: Sequence[str], *, settings: BytePairSettings, segmentation: Segmentation) -> BytePairTokenizer:
    """Learn merges of the most frequent pairs until the vocabulary is full.

    Only word counts matter, so the library receives every word, already split, as often as it occurs.

    Raises:
        DataError: the texts yield too few pieces, or the vocabulary is smaller than the special pieces and the bytes.
    """
    cutter = pre_tokenizer(marks=True, segmentation=segmentation)
    words = count_distinct(
        texts,
        lambda part: [word for word, _ in cutter.pre_tokenize_str(part)],
        cut=_cut if segmentation.name == "none" else _cut_segmented,
        stripped=False,
    )
    learner = Backend(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    learner.train_from_iterator(
        repeated(words),
        trainers.BpeTrainer(
            vocab_size=settings.size,
            min_frequency=settings.min_frequency,
            special_tokens=list(SPECIAL_PIECES),
            initial_alphabet=list(_BYTE),
            show_progress=False,
        ),
    )
    learned = json.loads(learner.to_str())["model"]
    pieces = sorted(learned["vocab"], key=learned["vocab"].__getitem__)
    check_size(len(pieces), settings, kind="bpe")
    return BytePairTokenizer(pieces, merges=learned["merges"], segmentation=segmentation)


def pre_tokenizer(*, marks: bool, segmentation: Segmentation) -> pre_tokenizers.PreTokenizer:
    """The pre-tokenizer of a byte-level BPE vocabulary; arguments as in `BytePairTokenizer`."""
    pattern = Regex(PATTERN.format(r"\p{L}\p{M}" if marks else r"\p{L}"))
    segments = [] if segmentation.name == "none" else [pre_tokenizers.Split(SEPARATOR, "removed")]
    return pre_tokenizers.Sequence(
        [
            *segments,
            pre_tokenizers.Split(pattern, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _cut(data: Bytes, ends: NDArray[np.int32]) -> NDArray[np.int64]:
    """Positions at which GPT-2's pattern always splits, determined from adjacent bytes.

    Splitting there changes no match: the pattern has no look-behind, and looks ahead from white space only. A space
    before a character other than white space always begins a part.
    """
    return starts_of_texts_too(_begins(data), ends)


def _cut_segmented(data: Bytes, ends: NDArray[np.int32]) -> NDArray[np.int64]:
    """`_cut`, and a split before each SEPARATOR (EF B7 90), which no part crosses."""
    start = _begins(data)
    start[:-2] |= (data[:-2] == 0xEF) & (data[1:-1] == 0xB7) & (data[2:] == 0x90)
    return starts_of_texts_too(start, ends)


def _begins(data: Bytes) -> NDArray[np.bool_]:
    kind = _CLASS[data]
    start = np.zeros(len(data), dtype=bool)
    start[1:] = _CUTS[kind[:-1], kind[1:]]
    start[:-1] |= (kind[:-1] == _SPACE) & _NO_SPACE[kind[1:]]
    return start
