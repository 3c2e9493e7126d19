"""Texts that say what labels mean (`data.tasks.<name>.label_texts`)."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Fewer letters are no word.
LEAST_LETTERS = 2
_SEPARATORS = re.compile(r"[_-]+|(?<=[a-z0-9])(?=[A-Z])")


def text_of(label: str) -> str:
    """A label as a text: spaces for underscores and hyphens, and before capital letters."""
    return _SEPARATORS.sub(" ", label).strip() or label


def are_words(texts: Iterable[str]) -> bool:
    """Whether each text has letters, so that it can mean something to a language model; `0` has none."""
    return all(sum(map(str.isalpha, text)) >= LEAST_LETTERS for text in texts)
