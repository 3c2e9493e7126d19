"""Byte-pair encoding (Sennrich, Haddow and Birch 2016).

Byte-level BPE encodes any text without loss, as in GPT-2 (Radford et al. 2019): a text is split into words with their
leading space, numbers, punctuation and white space; the bytes of each part, written as 256 printable characters, are
merged by the learned rules. The BPE of GPT (Radford et al. 2018) merges the characters of BERT's words; it is only
imported.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Unpack

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from components.core.artifacts import json_of
from components.data.segmenters import Segmentation
from components.settings.tokenizer import BytePairSettings
from components.tokenization.base import Tokenizer
from components.tokenization.bert import BertWords, BertWordsTokenizer
from components.tokenization.distinct import (
    VOCABULARY,
    Bytes,
    DistinctWordEncoder,
    LibraryTokenizer,
    count_distinct,
    starts_of_texts_too,
)
from components.tokenization.special import FIRST_ORDINARY, OMITTED, SPECIAL_PIECES, UNK
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

# Whether a byte begins a character that is certainly not white space: printable ASCII, and first bytes of longer ones,
# without the first bytes of white space (C2, E1, E2, E3) and of SEPARATOR (EF).
_BEGINS_WORD = np.zeros(256, dtype=bool)
_BEGINS_WORD[[*range(0x21, 0x7F), *(byte for byte in range(0xC3, 0xF5) if byte not in (0xE1, 0xE2, 0xE3, 0xEF))]] = True


class _Merging(LibraryTokenizer):
    """Tokenizers with `merges`, pairs of pieces in order of priority."""

    merges: list[tuple[str, str]]

    def _rules(self) -> list[tuple[str, str]]:
        return self.merges

    @classmethod
    def _read_rules(cls, directory: Path) -> dict[str, Any]:
        return {"merges": json_of(directory / VOCABULARY)["model"]["merges"]}


class BytePairTokenizer(_Merging):
    """Pieces are byte sequences in GPT-2's notation ("Ġthe" is " the"); there are no unknown pieces.

    `decode` is the exact inverse, but for lone surrogates (U+FFFD) and, with segmentation, the noncharacter U+FDD0.
    Bytes that are not UTF-8 decode as U+FFFD. Special pieces have no merges, so text is never encoded to them. Spans of
    `encode_with_offsets` include the leading space of a word; all pieces of one character have its span. `marks`:
    whether combining marks are part of words, as Thai, Arabic and Hindi need; GPT-2 and RoBERTa treat them as
    punctuation. `added`: published pieces that are cut out of a text before it is split into words, such as runs of
    spaces; `composed`: text is composed first (Unicode, NFC), and `decode` returns it so; `digits`: each digit is a
    word, without the space before it."""

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
        added: Sequence[str] = (),
        composed: bool = False,
        digits: bool = False,
        frequencies: NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(pieces, segmentation=segmentation, frequencies=frequencies)
        self.merges = [(left, right) for left, right in merges]
        self.marks, self.added, self.composed, self.digits = marks, list(added), composed, digits
        vocabulary = {piece: index for index, piece in enumerate(self.pieces)}
        self.backend = Backend(_merging(vocabulary, self.merges))
        self.backend.pre_tokenizer = pre_tokenizer(marks=marks, segmentation=segmentation, digits=digits)
        self.backend.add_tokens([AddedToken(piece) for piece in self.added])
        if composed:
            self.backend.normalizer = normalizers.NFC()
        cut = _cut_single if self.added else _cut if segmentation.name == "none" else _cut_segmented
        cut = _cut_letters if digits else cut
        self._distinct = DistinctWordEncoder(self._encode_words, cut=cut, stripped=False)

    def after_prompt(self, prompt: str) -> list[int]:
        self.lead = prompt[len(prompt.rstrip()) :]
        return super().after_prompt(prompt)

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(self._bytes(id_) for id_ in ids if id_ not in OMITTED).decode("utf-8", "replace")

    def continues(self, id_: int) -> bool:
        return not self.pieces[id_].startswith(_SPACE_CHARACTER)

    def surface(self, id_: int) -> str:
        return self._bytes(id_).decode("utf-8", "ignore").removeprefix(" ")

    def _bytes(self, id_: int) -> bytes:
        piece = self.pieces[id_]
        plain = id_ < FIRST_ORDINARY or not _BYTE.keys() >= set(piece)
        return piece.encode() if plain else bytes(_BYTE[character] for character in piece)

    def _settings(self) -> dict[str, Any]:
        published = {"added": self.added, "composed": self.composed, "digits": self.digits}
        return {"marks": self.marks} | {name: value for name, value in published.items() if value}

    @classmethod
    def _class_for(cls, settings: dict[str, Any]) -> type[Tokenizer]:
        return WordPairTokenizer if "lowercase" in settings else cls


#: Suffix of pieces at the end of a word.
WORD_END: Final = "</w>"


class WordPairTokenizer(_Merging, BertWordsTokenizer):
    """BPE over the characters of BERT's words, as GPT has it: the last piece of a word ends with `WORD_END`, and only
    other pieces are continued. Characters without a piece are UNK."""

    kind = "bpe"

    def __init__(self, pieces: Sequence[str], *, merges: Sequence[Sequence[str]], **others: Unpack[BertWords]) -> None:
        self.merges = [(left, right) for left, right in merges]
        super().__init__(pieces, **others)

    def _model(self, vocabulary: dict[str, int]) -> models.Model:
        return _merging(vocabulary, self.merges, end_of_word_suffix=WORD_END)

    def continues(self, id_: int) -> bool:
        return id_ >= FIRST_ORDINARY and not self.pieces[id_].endswith(WORD_END)

    def surface(self, id_: int) -> str:
        return self.pieces[id_].removesuffix(WORD_END)

    def _words(self, ids: Iterable[int]) -> list[str]:
        pieces = (f"[UNK]{WORD_END}" if id_ == UNK else self.pieces[id_] for id_ in ids if id_ not in OMITTED)
        return [word for word in "".join(pieces).split(WORD_END) if word]


def _merging(vocabulary: dict[str, int], merges: list[tuple[str, str]], **options: str) -> models.Model:
    try:
        return models.BPE(vocabulary, merges, unk_token="[UNK]", **options)
    except Exception as error:  # the library raises plain Exception: a merge refers to an unknown piece
        raise ValueError(f"merges do not fit the pieces: {error}") from error


#: Minimum frequency of a merged pair.
LEAST_COUNT: Final = 2


def train_bpe(texts: Sequence[str], *, settings: BytePairSettings, segmentation: Segmentation) -> BytePairTokenizer:
    """Learn merges of the most frequent pairs until the vocabulary is full, from every word as often as it occurs.
    Raises DataError: too few pieces, or the vocabulary is smaller than the special pieces and the bytes."""
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
            min_frequency=LEAST_COUNT,
            special_tokens=list(SPECIAL_PIECES),
            initial_alphabet=list(_BYTE),
            show_progress=False,
        ),
    )
    learned = json.loads(learner.to_str())["model"]
    pieces = sorted(learned["vocab"], key=learned["vocab"].__getitem__)
    check_size(len(pieces), settings, kind="bpe")
    return BytePairTokenizer(pieces, merges=learned["merges"], segmentation=segmentation)


def pre_tokenizer(*, marks: bool, segmentation: Segmentation, digits: bool = False) -> pre_tokenizers.PreTokenizer:
    """The pre-tokenizer of a byte-level BPE vocabulary; arguments as in `BytePairTokenizer`."""
    pattern = Regex(PATTERN.format(r"\p{L}\p{M}" if marks else r"\p{L}"))
    segments = [] if segmentation.name == "none" else [pre_tokenizers.Split(SEPARATOR, "removed")]
    return pre_tokenizers.Sequence(
        [
            *segments,
            *([pre_tokenizers.Digits(individual_digits=True)] if digits else []),
            pre_tokenizers.Split(pattern, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _cut(data: Bytes, ends: NDArray[np.int32]) -> NDArray[np.int64]:
    # A part always begins at a space before another character. Splitting there changes no match: the pattern has no
    # look-behind, and looks ahead from white space only.
    return starts_of_texts_too(_begins(data, ends), ends)


def _cut_single(data: Bytes, ends: NDArray[np.int32]) -> NDArray[np.int64]:
    """`_cut`, but not in a run of spaces, which may be one piece."""
    start = _begins(data, ends)
    start[1:] &= data[:-1] != ord(" ")
    return starts_of_texts_too(start, ends)


def _cut_letters(data: Bytes, ends: NDArray[np.int32]) -> NDArray[np.int64]:
    """`_cut` before ASCII letters only: the white space before a digit is one part."""
    start = _begins(data, ends)
    start[:-1] &= ((data[1:] | 32) >= ord("a")) & ((data[1:] | 32) <= ord("z"))
    start[1:] &= data[:-1] != ord(" ")
    return starts_of_texts_too(start, ends)


def _cut_segmented(data: Bytes, ends: NDArray[np.int32]) -> NDArray[np.int64]:
    """`_cut`, and a split before each SEPARATOR (EF B7 90), which no part crosses."""
    start = _begins(data, ends)
    start[:-2] |= (data[:-2] == 0xEF) & (data[1:-1] == 0xB7) & (data[2:] == 0x90)
    return starts_of_texts_too(start, ends)


def _begins(data: Bytes, ends: NDArray[np.int32]) -> NDArray[np.bool_]:
    begins = np.append((data[:-1] == ord(" ")) & _BEGINS_WORD[data[1:]], False)
    # The last character of a text begins no word of the next one.
    begins[ends - 1] = False
    return begins
