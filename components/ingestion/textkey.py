"""When two short texts count as the same."""

from __future__ import annotations

import re

_NOT_WORDS = re.compile(r"[\W_]+")


def text_key(text: str) -> str:
    """The text without case, punctuation and white space; equal keys mean the same text for splits and exclusions."""
    return _NOT_WORDS.sub(" ", text.casefold()).strip()
