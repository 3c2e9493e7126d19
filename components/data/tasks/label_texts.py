"""Texts that say what labels mean (`data.tasks.<name>.label_texts`)."""

from __future__ import annotations

import re
from collections.abc import Iterable

import regex

#: Fewer letters are no word.
LEAST_LETTERS = 2
_HAN, _LETTERS = regex.compile(r"\p{Han}"), regex.compile(r"[\p{L}\p{M}]")
_SEPARATORS = re.compile(r"[_-]+|(?<=[a-z0-9])(?=[A-Z])")


def text_of(label: str) -> str:
    """A label as a text: spaces for underscores and hyphens, and before capital letters."""
    return _SEPARATORS.sub(" ", label).strip() or label


def are_words(texts: Iterable[str]) -> bool:
    """Whether each text has letters, so that it can mean something to a language model; `0` has none."""
    return all(_HAN.search(text) or len(_LETTERS.findall(text)) >= LEAST_LETTERS for text in texts)
