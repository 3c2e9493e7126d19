"""Unigram tokenizer: the most probable segmentation of a word under a unigram model of its pieces (Kudo 2018).

As in SentencePiece (Kudo and Richardson 2018), "▁" marks the space before a word. Text is normalised (NFKC, single
spaces); the `tokenizers` library finds the best path through the lattice of pieces by the Viterbi algorithm.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Backend

from components.artifacts import write_atomic
from components.errors import ArtifactError
from components.settings.tokenizer import UnigramSettings
from components.tokenization.base import Ids, well_formed
from components.tokenization.distinct import (
    VOCABULARY,
    DistinctWordEncoder,
    LibraryTokenizer,
    count_distinct,
    cut_at_spaces,
)
from components.tokenization.segmenters import SEGMENTERS, Segmentation
from components.tokenization.special import FIRST_ORDINARY, OMITTED, SPECIAL_PIECES, UNK
from components.tokenization.unigram_trainer import SPACE, learn_unigram
from components.tokenization.wordpiece import ALPHABET_SHARE, LEAST_ALPHABET, check_size, frequent_characters

#: Pre-tokenizer: words are separated by white space and marked by "▁".
WORDS: Final[dict[str, Any]] = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "WhitespaceSplit"},
        {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True},
    ],
}


def normalization(*, lowercase: bool) -> dict[str, Any]:
    """NFKC, SentencePiece's default normalisation, in the notation of the library.

    NFKC decomposes the Thai and Lao vowel sign AM, which is always composed in text; two rules compose it again.
    """
    composed = {"\u0e4d\u0e32": "\u0e33", "\u0ecd\u0eb2": "\u0eb3"}
    steps: list[dict[str, Any]] = [{"type": "Nmt"}, {"type": "NFKC"}]
    steps += [{"type": "Replace", "pattern": {"String": two}, "content": sign} for two, sign in composed.items()]
    return {"type": "Sequence", "normalizers": steps + [{"type": "Lowercase"}] * lowercase}


class UnigramTokenizer(LibraryTokenizer):
    """Pieces with probabilities; the first piece of a word begins with "▁".

    `decode` returns the normalised text: words separated by single spaces, each run of unknown characters (UNK) as
    U+FFFD. Encoding it again gives the same ids if none is UNK or special and there is no segmentation.

    Args:
        pieces: id -> piece.
        scores: log probability of each piece; the scores of special pieces are not used.
        segmentation: see `Tokenizer`.
        normalizer, pre_tokenizer: in the notation of the `tokenizers` library (tokenizer.json). Learned vocabularies
            use `normalization` and `WORDS`; published ones have their own.
        frequencies: see `Tokenizer`.
    """

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
        content = json.loads((directory / VOCABULARY).read_text(encoding="utf-8"))
        return {name: content[name] for name in ("scores", "normalizer", "pre_tokenizer")}

    @classmethod
    def _read_vocabulary(cls, directory: Path) -> list[str]:
        pieces: list[str] = json.loads((directory / VOCABULARY).read_text(encoding="utf-8"))["pieces"]
        return pieces


def train_unigram(texts: Sequence[str], *, settings: UnigramSettings, segmentation: Segmentation) -> UnigramTokenizer:
    """Learn pieces and their probabilities from word counts.

    As for WordPiece, the alphabet is limited; words with rarer characters are not trained on.

    Raises:
        DataError: the texts yield too few pieces, or the vocabulary is smaller than special pieces and alphabet.
    """
    rules = normalization(lowercase=settings.lowercase)
    cutter = UnigramTokenizer(
        SPECIAL_PIECES,
        scores=[0.0] * FIRST_ORDINARY,
        segmentation=segmentation,
        normalizer=rules,
        pre_tokenizer=WORDS,
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
