"""Rule-based sentence splitting, accurate enough to sample pairs of adjacent sentences.

A sentence ends at `.`, `!`, `?` or an ellipsis (with closing quotes and brackets) before white space, unless a
lower-case letter follows (abbreviations such as "e.g. this"); at Chinese and Japanese full stops; at a blank line; and
at a line break, unless a lower-case letter follows (wrapped text). Thai has no full stop: a space between two Thai
characters ends a clause, which is the usual unit.
"""

from __future__ import annotations

import re

# Each alternative matches all following white space possessively, so that the scan is linear for every text.
_BREAK = re.compile(r"[.!?\u2026][\"'\u201d\u2019)\]]*+\s++|[\u3002\uff01\uff1f][\u300d\u300f\uff09]*+\s*+|\n\s*+")
_THAI_SPACE = re.compile(r"(?<=[\u0e01-\u0e5b])\s++(?=[\u0e01-\u0e5b])")


def sentence_starts(text: str, *, thai: bool = False) -> list[int]:
    """Character positions at which the sentences of `text` start, ascending, beginning with 0.

    A sentence extends to the next start; white space between two sentences is part of the first.
    """
    starts = {0}
    for match in _BREAK.finditer(text):
        end = match.end()
        if end < len(text) and not (text[end].islower() and match.group().count("\n") < 2):
            starts.add(end)
    if thai:
        starts.update(match.end() for match in _THAI_SPACE.finditer(text))
    return sorted(starts)
