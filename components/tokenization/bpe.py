"""Byte-level BPE: any text as pieces of its UTF-8 bytes, without a loss.

Sennrich, Haddow and Birch 2016 (Neural Machine Translation of Rare Words with Subword Units) over bytes, as in Radford
et al. 2019 (GPT-2): a text is cut into words with the space before each, numbers, punctuation and white space; the
bytes of each part, written as 256 printable characters, are joined by the learned merges.
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
from components.tokenization.base import Ids, Tokenizer, well_formed
from components.tokenization.bert import VOCABULARY, WORDS_AT_ONCE, BertWordsTokenizer
from components.tokenization.distinct import Bytes, DistinctWordEncoder, count_distinct, starts_of_texts_too
from components.tokenization.segmenters import Segmentation
from components.tokenization.special import END, FIRST_ORDINARY, PAD, SPECIAL_PIECES, START
from components.tokenization.wordpiece import check_size, repeated

#: Stands between words that a segmenter told apart: a code point that Unicode keeps out of text, so that taking it out
#: again leaves the text as it was.
SEPARATOR: Final = "\ufdd0"
#: GPT-2's cut: `{0}` is what a word consists of, letters and, where marks count as such, combining marks.
PATTERN: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?[{0}]+| ?\p{{N}}+| ?[^\s{0}\p{{N}}]+|\s+(?!\S)|\s+"

_HIDDEN = frozenset({PAD, START, END})
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
#: Byte -> the character that stands for it: itself if printable, the others in order from U+0100.
_CHARACTER = {byte: chr(byte) for byte in _PRINTABLE}
_CHARACTER |= {byte: chr(0x100 + index) for index, byte in enumerate(sorted(set(range(256)) - set(_PRINTABLE)))}
_BYTE = {character: byte for byte, character in _CHARACTER.items()}
_SPACE_CHARACTER = _CHARACTER[ord(" ")]

# Classes of a byte for the cut: 0 may be anything (part of a longer character, a control).
_LETTER, _DIGIT, _MARK, _APOSTROPHE, _SPACE, _WHITE, _BEYOND = range(1, 8)
_CLASS = np.zeros(256, dtype=np.uint8)
_CLASS[0x21:0x7F] = _MARK
_CLASS[[*range(ord("0"), ord("9") + 1)]] = _DIGIT
_CLASS[[*range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1)]] = _LETTER
_CLASS[ord("'")] = _APOSTROPHE
_CLASS[ord(" ")] = _SPACE
_CLASS[[*b"\t\n\x0b\x0c\r"]] = _WHITE
# First bytes of characters that are no white space (that begins with C2, E1, E2 or E3; SEPARATOR with EF).
_CLASS[[byte for byte in range(0xC3, 0xF5) if byte not in (0xE1, 0xE2, 0xE3, 0xEF)]] = _BEYOND
# _CUTS[a, b]: whether b after a always begins a part, in a text of which nothing else is known.
_CUTS = np.zeros((8, 8), dtype=bool)
_CUTS[np.ix_([_LETTER, _DIGIT, _MARK, _APOSTROPHE], [_SPACE, _WHITE])] = True
_CUTS[_LETTER, [_DIGIT, _MARK, _APOSTROPHE]] = True
_CUTS[_DIGIT, [_LETTER, _MARK, _APOSTROPHE]] = True
_CUTS[_MARK, [_LETTER, _DIGIT]] = True
_NO_SPACE = np.isin(np.arange(8), [_LETTER, _DIGIT, _MARK, _APOSTROPHE, _BEYOND])


class BytePairTokenizer(Tokenizer):
    """Pieces are byte sequences in GPT-2's spelling ("Ġthe" is " the"); there is no unknown text.

    `decode` gives every text back exactly, whatever is in it: NUL, emoji, Thai, any white space. Only a lone surrogate,
    which UTF-8 cannot hold, becomes U+FFFD; and where a segmenter is at work, U+FDD0 (no character) vanishes. Bytes
    that are no UTF-8, as a cut through a character leaves them, decode as U+FFFD.

    A special piece has no merges, so text never yields it. A span of `encode_with_offsets` holds the space before a
    word; the spans of a character's several pieces are all that character.

    Args:
        merges: pairs of pieces, first the ones that are joined first.
        marks: combining marks are parts of words, without which Thai, Arabic or Hindi words fall to pieces; GPT-2 and
            RoBERTa take them for punctuation.
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
        except Exception as error:  # the library's own type: a merge whose parts or whole are no pieces
            raise ValueError(f"merges do not fit the pieces: {error}") from error
        self.backend = Backend(model)
        self.backend.pre_tokenizer = pre_tokenizer(marks=marks, segmentation=segmentation)
        self._distinct = DistinctWordEncoder(
            self._encode_parts, cut=_cut if segmentation.name == "none" else _cut_segmented, stripped=False
        )

    def _encode_parts(self, parts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = []
        for start in range(0, len(parts), WORDS_AT_ONCE):
            group = parts[start : start + WORDS_AT_ONCE]
            ids += [encoding.ids for encoding in self.backend.encode_batch_fast(group, add_special_tokens=False)]
        return ids

    def encode_ragged(self, texts: Sequence[str]) -> tuple[Ids, NDArray[np.int64]]:
        return self._distinct.encode(texts)

    def encode_with_offsets(self, text: str) -> tuple[Ids, list[tuple[int, int]]]:
        cut, inserted = self.segmentation.spaced_with_insertions(well_formed(text), SEPARATOR)
        encoding = self.backend.encode(cut, add_special_tokens=False)
        spans = np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2)
        spans = spans - np.searchsorted(np.asarray(inserted, dtype=np.int64), spans)
        return np.asarray(encoding.ids, dtype=np.int32), [(start, end) for start, end in spans.tolist()]

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(self._bytes(id_) for id_ in ids if id_ not in _HIDDEN).decode("utf-8", "replace")

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
    """Merge the most frequent pair of pieces until the vocabulary is full; `texts` are already segmented.

    Only the counts of the words matter, so the library is given each word as often as it comes, cut already.

    Raises:
        DataError: the texts give fewer pieces than asked for, or the special pieces and the bytes alone are more.
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
            vocab_size=settings.vocabulary,
            min_frequency=settings.min_frequency,
            special_tokens=list(SPECIAL_PIECES),
            initial_alphabet=list(_BYTE),
            show_progress=False,
        ),
    )
    learned = json.loads(learner.to_str())["model"]
    pieces = sorted(learned["vocab"], key=learned["vocab"].__getitem__)
    check_size(len(pieces), asked=settings.vocabulary, key="tokenizer.bpe.vocabulary")
    return BytePairTokenizer(pieces, merges=learned["merges"], segmentation=segmentation)


def pre_tokenizer(*, marks: bool, segmentation: Segmentation) -> pre_tokenizers.PreTokenizer:
    """What cuts a text before its bytes are joined; arguments as of `BytePairTokenizer`."""
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
    """Cut where GPT-2's pattern always does, judged from neighbouring bytes alone.

    What follows a cut is matched as in the whole text, since the pattern never looks back; and what precedes it also,
    since the pattern looks ahead from white space only. A last space before what is no white space always leads a part,
    whatever stands before it.
    """
    return starts_of_texts_too(_begins(data), ends)


def _cut_segmented(data: Bytes, ends: NDArray[np.int32]) -> NDArray[np.int64]:
    """As `_cut`, and before each SEPARATOR (EF B7 90), which no part goes across."""
    start = _begins(data)
    start[:-2] |= (data[:-2] == 0xEF) & (data[1:-1] == 0xB7) & (data[2:] == 0x90)
    return starts_of_texts_too(start, ends)


def _begins(data: Bytes) -> NDArray[np.bool_]:
    kind = _CLASS[data]
    start = np.zeros(len(data), dtype=bool)
    start[1:] = _CUTS[kind[:-1], kind[1:]]
    start[:-1] |= (kind[:-1] == _SPACE) & _NO_SPACE[kind[1:]]
    return start
