"""Unigram tokenizer: the most probable segmentation of a word under a unigram model of its pieces (Kudo 2018).

As in SentencePiece (Kudo and Richardson 2018), "▁" marks the space before a word. Text is normalised (NFKC, single
spaces); the `tokenizers` library finds the best path through the lattice of pieces by the Viterbi algorithm.

Training is expectation maximisation (Kudo 2018, section 3.2): P(word) = sum over segmentations of the product of
p(piece). From a large seed vocabulary, two steps alternate until the requested size is reached: EM estimates p, and the
pieces whose removal reduces the likelihood least are removed. The trainer of the library is not deterministic, because
it sums in the order of a hash table; here the order is fixed.

Shape suffixes: W words of one length, K start positions of the pieces that end at one position.
"""

import json
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend

from components.core.artifacts import json_of, write_atomic
from components.core.errors import ArtifactError
from components.data.segmenters import SEGMENTERS, Segmentation
from components.settings.tokenizer import UnigramSettings
from components.tokenization.base import Ids, well_formed
from components.tokenization.distinct import (
    VOCABULARY,
    DistinctWordEncoder,
    LibraryTokenizer,
    count_distinct,
    cut_at_spaces,
)
from components.tokenization.special import FIRST_ORDINARY, OMITTED, SPECIAL_PIECES, UNK
from components.tokenization.wordpiece import ALPHABET_SHARE, LEAST_ALPHABET, check_size, frequent_characters

#: Marks the beginning of a word.
SPACE: Final = "\u2581"
#: Maximum number of characters of a piece (SentencePiece's default).
LONGEST_PIECE: Final = 16
#: Longer words are split into parts of this many characters.
LONGEST_WORD: Final = 32
#: Size of the seed vocabulary in multiples of the requested size, and its minimum; ranked by frequency times length.
SEEDS: Final = 10
LEAST_SEEDS: Final = 10_000
#: Share of the pieces kept per round, and EM steps per round (SentencePiece's defaults).
KEPT: Final = 0.75
STEPS: Final = 2
#: Pieces with a smaller expected count are removed immediately.
RARE: Final = 0.5
#: Pruning stops at this multiple of the requested size; then the most probable pieces are selected.
MARGIN: Final = 1.1

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Group:
    """Lattices of the words of one length.

    Attributes:
        rows: (W,) indices into the list of all words.
        ending: for each end j = 1 .. length, (W, K) ids of the pieces with start j - K .. j - 1; the number of pieces
            if there is no such piece.
    """

    rows: NDArray[np.int64]
    ending: list[NDArray[np.int64]]


def learn_unigram(words: Mapping[str, int], *, size: int) -> list[tuple[str, float]]:
    """At most `size` (piece, log probability), most probable first; deterministic for given counts. Every character of
    `words` is a piece; if there are more than `size` characters, only these are pieces."""
    parts: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(0, len(word), LONGEST_WORD):
            parts[word[start : start + LONGEST_WORD]] += count
    counted = dict(sorted(parts.items()))
    characters = sorted({character for word in counted for character in word})
    pieces, weights = _seeds(counted, characters, limit=max(LEAST_SEEDS, SEEDS * size))
    scores = np.log(weights / weights.sum())
    texts, times = list(counted), np.fromiter(counted.values(), dtype=np.float64, count=len(counted))
    while True:
        for _ in range(STEPS):
            lattices = _lattices(texts, pieces)
            counts = _expected(lattices, times, scores)
            kept = (counts >= RARE) | _single(pieces)
            pieces, counts = [piece for piece, keep in zip(pieces, kept, strict=True) if keep], counts[kept]
            scores = np.log(np.maximum(counts, RARE) / np.maximum(counts, RARE).sum())
        if len(pieces) <= max(MARGIN * size, len(characters)):
            break
        room = max(int(MARGIN * size), int(KEPT * len(pieces)), len(characters))
        pieces, scores = _pruned(pieces, counts, scores, room=room)
    order = np.lexsort((np.arange(len(pieces)), -scores, ~_single(pieces)))[: max(size, len(characters))]
    taken = [(pieces[index], float(scores[index])) for index in order]
    return sorted(taken, key=lambda entry: (-entry[1], entry[0]))


def _seeds(words: Mapping[str, int], characters: list[str], *, limit: int) -> tuple[list[str], Floats]:
    """All characters and the best substrings by frequency times length, at most `limit`, and their weights.

    Substrings occur at least twice. As in SentencePiece, the characters of a piece after "▁" are of one kind."""
    counts: dict[str, int] = defaultdict(int)
    for word, times in words.items():
        kinds = [_kind(character) for character in word]
        for start in range(len(word)):
            first = start + (word[start] == SPACE)
            for end in range(start + 1, min(len(word), start + LONGEST_PIECE) + 1):
                if first < end and kinds[end - 1] != kinds[first]:
                    break
                counts[word[start:end]] += times
    longer = [(times * len(piece), piece) for piece, times in counts.items() if len(piece) > 1 and times > 1]
    longer.sort(key=lambda entry: (-entry[0], entry[1]))
    best = longer[: max(0, limit - len(characters))]
    weights = [counts[character] for character in characters] + [weight for weight, _ in best]
    return [*characters, *(piece for _, piece in best)], np.asarray(weights, dtype=np.float64)


def _lattices(words: list[str], pieces: list[str]) -> list[_Group]:
    number = {piece: index for index, piece in enumerate(pieces)}
    none = len(pieces)
    longest = max(map(len, pieces), default=1)
    by_length: dict[int, list[int]] = defaultdict(list)
    for row, word in enumerate(words):
        by_length[len(word)].append(row)
    return [
        _Group(
            np.asarray(rows),
            [
                np.asarray(
                    [
                        [number.get(words[row][start:end], none) for start in range(max(0, end - longest), end)]
                        for row in rows
                    ]
                )
                for end in range(1, length + 1)
            ],
        )
        for length, rows in sorted(by_length.items())
    ]


def _expected(groups: list[_Group], times: Floats, scores: Floats) -> Floats:
    """Expected count of each piece in all words, by the forward-backward algorithm over the lattices."""
    scores = np.append(scores, -np.inf)
    counts = np.zeros(len(scores))
    for group in groups:
        length, size = len(group.ending), len(group.rows)
        forward = np.full((length + 1, size), -np.inf)
        backward = np.full((length + 1, size), -np.inf)
        forward[0] = backward[length] = 0
        for end, ids_WK in enumerate(group.ending, 1):
            before = forward[end - ids_WK.shape[1] : end].T
            forward[end] = np.logaddexp.reduce(before + scores[ids_WK], axis=1)
        for end in range(length, 0, -1):
            ids_WK = group.ending[end - 1]
            starts = slice(end - ids_WK.shape[1], end)
            backward[starts] = np.logaddexp(backward[starts], (scores[ids_WK] + backward[end][:, None]).T)
        for end, ids_WK in enumerate(group.ending, 1):
            before = forward[end - ids_WK.shape[1] : end].T
            share = np.exp(before + scores[ids_WK] + (backward[end] - forward[length])[:, None])
            counts += np.bincount(ids_WK.ravel(), (share * times[group.rows][:, None]).ravel(), minlength=len(scores))
    return counts[:-1]


def _pruned(pieces: list[str], counts: Floats, scores: Floats, *, room: int) -> tuple[list[str], Floats]:
    """The `room` pieces whose removal would reduce the likelihood most, by the expected count times the difference of
    the scores to the best other segmentation; single characters are always kept."""
    without = np.full(len(pieces), -np.inf)
    padded = np.append(scores, -np.inf)
    for group in _lattices(pieces, pieces):
        length = len(group.ending)
        best = np.full((length + 1, len(group.rows)), -np.inf)
        best[0] = 0
        for end, ids_WK in enumerate(group.ending, 1):
            if end == length:
                ids_WK = np.where(ids_WK == group.rows[:, None], len(pieces), ids_WK)
            best[end] = (best[end - ids_WK.shape[1] : end].T + padded[ids_WK]).max(axis=1)
        without[group.rows] = best[length]
    loss = np.where(_single(pieces), np.inf, counts * (scores - without))
    kept = np.sort(np.lexsort((np.arange(len(pieces)), -loss))[:room])
    return [pieces[index] for index in kept], scores[kept]


@cache
def _kind(character: str) -> str:
    """ "L" for letters and marks, "N" for numbers, "" for others."""
    category = unicodedata.category(character)
    return {"L": "L", "M": "L", "N": "N"}.get(category[0], "")


def _single(pieces: list[str]) -> NDArray[np.bool_]:
    return np.fromiter((len(piece) == 1 for piece in pieces), dtype=bool, count=len(pieces))


#: Pre-tokenizer: words are separated by white space and marked by "▁".
WORDS: Final[dict[str, Any]] = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "WhitespaceSplit"},
        {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True},
    ],
}


def normalization(*, lowercase: bool) -> dict[str, Any]:
    """NFKC, SentencePiece's default, in the notation of the library. NFKC decomposes the Thai and Lao vowel sign AM,
    which is always composed in text; two rules compose it again."""
    composed = {"\u0e4d\u0e32": "\u0e33", "\u0ecd\u0eb2": "\u0eb3"}
    steps: list[dict[str, Any]] = [{"type": "Nmt"}, {"type": "NFKC"}]
    steps += [{"type": "Replace", "pattern": {"String": two}, "content": sign} for two, sign in composed.items()]
    return {"type": "Sequence", "normalizers": steps + [{"type": "Lowercase"}] * lowercase}


class UnigramTokenizer(LibraryTokenizer):
    """Pieces with log probabilities `scores`; the first piece of a word begins with "▁".

    `decode` returns the normalised text: words separated by single spaces, each run of unknown characters (UNK) as
    U+FFFD. Encoding it again gives the same ids if none is UNK or special and there is no segmentation. `normalizer`
    and `pre_tokenizer` of published vocabularies are in the notation of tokenizer.json."""

    kind = "unigram"
    leads_with_space = True

    def __init__(
        self,
        pieces: Sequence[str],
        *,
        scores: Sequence[float],
        segmentation: Segmentation,
        normalizer: Mapping[str, Any] | None,
        pre_tokenizer: Mapping[str, Any],
        frequencies: NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(pieces, segmentation=segmentation, frequencies=frequencies)
        if len(scores) != len(self.pieces):
            raise ArtifactError(f"{len(scores)} scores for {len(self.pieces)} pieces of a unigram vocabulary")
        self.scores = list(scores)
        self.normalizer = normalizer
        self.pre_tokenizer = pre_tokenizer
        model = {
            "type": "Unigram",
            "unk_id": UNK,
            # Special pieces are prefixed with a space: the model receives no spaces, so text is never encoded to them.
            "vocab": [[f" {piece}", 0.0] for piece in SPECIAL_PIECES]
            + [[piece, score] for piece, score in zip(self.pieces, self.scores, strict=True)][FIRST_ORDINARY:],
            "byte_fallback": False,
        }
        rules = {"version": "1.0", "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "model": model}
        try:
            self.backend = Backend.from_str(json.dumps(rules))
        except Exception as error:  # the library raises plain Exception
            raise ValueError(f"rules of a unigram vocabulary: {error}") from error
        self._distinct = DistinctWordEncoder(self._encode_words, cut=cut_at_spaces)

    def encode_ragged(self, texts: Sequence[str]) -> tuple[Ids, NDArray[np.int64]]:
        if self.pre_tokenizer == WORDS:
            return super().encode_ragged(texts)
        # Other pre-tokenizers may depend on the context across white space.
        encoded = self._encode_words([well_formed(text) for text in texts])
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum([len(ids) for ids in encoded], out=offsets[1:])
        return np.asarray([id_ for ids in encoded for id_ in ids], dtype=np.int32), offsets

    def decode(self, ids: Iterable[int]) -> str:
        pieces = ("\ufffd" if id_ == UNK else self.pieces[id_] for id_ in ids if id_ not in OMITTED)
        text = "".join(pieces).replace(SPACE, " ").removeprefix(" ")
        if self.segmentation.name == "none":
            return text
        for segmenter in SEGMENTERS.values():
            words = text.split(" ")
            text = words[0] + "".join(
                word if before and word and segmenter.script.match(before[-1]) and segmenter.script.match(word[0])
                else f" {word}"
                for before, word in pairwise(words)
            )  # fmt: skip
        return text

    def continues(self, id_: int) -> bool:
        return not self.pieces[id_].startswith(SPACE)

    def surface(self, id_: int) -> str:
        return self.pieces[id_].replace(SPACE, " ").strip()

    def _settings(self) -> dict[str, Any]:
        return {}

    def _rules(self) -> dict[str, Any]:
        return {"scores": self.scores, "normalizer": self.normalizer, "pre_tokenizer": self.pre_tokenizer}

    def _write_vocabulary(self, directory: Path) -> None:
        content = {"pieces": self.pieces, **self._rules()}
        write_atomic(directory / VOCABULARY, json.dumps(content, indent=0) + "\n")

    @classmethod
    def _read_rules(cls, directory: Path) -> dict[str, Any]:
        content = json_of(directory / VOCABULARY)
        return {name: content[name] for name in ("scores", "normalizer", "pre_tokenizer")}

    @classmethod
    def _read_vocabulary(cls, directory: Path) -> list[str]:
        return json_of(directory / VOCABULARY)["pieces"]


def train_unigram(texts: Sequence[str], *, settings: UnigramSettings, segmentation: Segmentation) -> UnigramTokenizer:
    """Learn pieces and their probabilities from word counts; words with rare characters are not trained on.
    Raises DataError: too few pieces, or the vocabulary is smaller than special pieces and alphabet."""
    rules = normalization(lowercase=settings.lowercase)
    cutter = UnigramTokenizer(
        SPECIAL_PIECES, scores=[0.0] * FIRST_ORDINARY, segmentation=segmentation, normalizer=rules, pre_tokenizer=WORDS
    ).backend
    words = count_distinct(
        texts,
        lambda part: [word for word, _ in cutter.pre_tokenizer.pre_tokenize_str(cutter.normalizer.normalize_str(part))],
        cut=cut_at_spaces,
    )
    limit = max(LEAST_ALPHABET, int(settings.size * ALPHABET_SHARE))
    alphabet = set(frequent_characters(words, limit=limit)[0])
    spelt = {word: count for word, count in words.items() if alphabet.issuperset(word)}
    learned = learn_unigram(spelt, size=max(1, settings.size - FIRST_ORDINARY))
    check_size(FIRST_ORDINARY + len(learned), settings, kind="unigram")
    return UnigramTokenizer(
        [*SPECIAL_PIECES, *(piece for piece, _ in learned)],
        scores=[0.0] * FIRST_ORDINARY + [score for _, score in learned],
        segmentation=segmentation,
        normalizer=rules,
        pre_tokenizer=WORDS,
    )
