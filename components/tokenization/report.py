"""The vocabulary report: how well a vocabulary fits a text, overall and by script."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from components.tokenization.base import Tokenizer
from components.tokenization.special import FIRST_ORDINARY, UNK

NO_LETTERS = "none"


def count_words(spaced: Iterable[str]) -> Counter[str]:
    """Counts of the words between white space in segmented texts."""
    counts: Counter[str] = Counter()
    for text in spaced:
        counts.update(text.split())
    return counts


def report_on_words(tokenizer: Tokenizer, counts: Counter[str]) -> dict[str, Any]:
    """How well `tokenizer` fits a text.

    Args:
        counts: of the words between white space, after segmentation of languages without spaces. A word has
            the script of its first letter.

    Returns:
        kind; vocabulary, number of pieces including special ones; alphabet, number of distinct characters of the
        pieces; non_initial_share, share of the ordinary pieces that continue a word; words; pieces_per_word;
        characters_per_piece; unknown_rate, share of UNK among the pieces of the text; and scripts: script -> words,
        share_of_words, pieces_per_word, unknown_rate, vocabulary (number of pieces of the script).
    """
    words = list(counts)
    times = np.fromiter(counts.values(), dtype=np.int64, count=len(words))
    # In running text most words follow a space.
    ids, offsets = tokenizer.encode_ragged([f" {word}" for word in words] if tokenizer.leads_with_space else words)
    pieces = times * np.diff(offsets)
    before = np.concatenate(([0], np.cumsum(ids == UNK)))
    unknown = times * (before[offsets[1:]] - before[offsets[:-1]])
    characters = times * np.fromiter(map(len, words), dtype=np.int64, count=len(words))

    ordinary = range(FIRST_ORDINARY, tokenizer.vocab_size)
    continuing = sum(map(tokenizer.continues, ordinary))
    bare = [tokenizer.surface(id_) for id_ in ordinary]
    of_vocabulary = Counter(map(script_of, bare))

    members: dict[str, list[int]] = defaultdict(list)
    for index, word in enumerate(words):
        members[script_of(word)].append(index)
    scripts = {}
    for script, rows in sorted(members.items(), key=lambda item: -int(times[item[1]].sum())):
        scripts[script] = {
            "words": int(times[rows].sum()),
            "share_of_words": _ratio(times[rows].sum(), times.sum()),
            "pieces_per_word": _ratio(pieces[rows].sum(), times[rows].sum()),
            "unknown_rate": _ratio(unknown[rows].sum(), pieces[rows].sum()),
            "vocabulary": of_vocabulary[script],
        }
    return {
        "kind": tokenizer.kind,
        "vocabulary": tokenizer.vocab_size,
        "alphabet": len(set("".join(bare))),
        "non_initial_share": _ratio(continuing, len(ordinary)),
        "words": int(times.sum()),
        "pieces_per_word": _ratio(pieces.sum(), times.sum()),
        "characters_per_piece": _ratio(characters.sum(), pieces.sum()),
        "unknown_rate": _ratio(unknown.sum(), pieces.sum()),
        "scripts": scripts,
    }


def script_of(word: str) -> str:
    """The script of the first letter of `word` in lower case ("latin", "thai", "cjk"); "none" without a letter.

    Python has no script property; the first word of a letter's Unicode name is the name of its script.
    """
    return next((_script(character) for character in word if character.isalpha()), NO_LETTERS)


@cache
def _script(character: str) -> str:
    # The compatibility form assigns full-width and mathematical letters to their script.
    plain = unicodedata.normalize("NFKC", character)[0]
    return unicodedata.name(plain, NO_LETTERS).split()[0].lower()


def _ratio(part: float, whole: float) -> float:
    return float(part) / float(whole) if whole else 0.0
