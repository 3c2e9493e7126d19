"""Where sentences start: a cheap rule, good enough to draw pairs of neighbouring sentences from.

A sentence ends at `.`, `!`, `?` or an ellipsis (closing quotes and brackets included) before white space, unless a
lower-case letter follows (which passes "e.g. this" and "approx. three"); at the full stops of Chinese and Japanese; at
a blank line; and at a line break, unless a lower-case letter follows (text wrapped at a line length goes on). Thai has
no full stop: there a space between two Thai characters ends a clause, which is the usual unit.
"""

from __future__ import annotations

import re

# Each alternative takes all the white space that follows, possessively, so that the scan is linear whatever the text.
_BREAK = re.compile(r"[.!?\u2026][\"'\u201d\u2019)\]]*+\s++|[\u3002\uff01\uff1f][\u300d\u300f\uff09]*+\s*+|\n\s*+")
_THAI_SPACE = re.compile(r"(?<=[\u0e01-\u0e5b])\s++(?=[\u0e01-\u0e5b])")


def sentence_starts(text: str, *, thai: bool = False) -> list[int]:
    """Positions of the characters at which the sentences of `text` start, ascending, the first always 0.

    Each sentence goes up to the next start, so that together they are the text; white space between two belongs to
    the first.
    """
    starts = {0}
    for match in _BREAK.finditer(text):
        end = match.end()
        if end < len(text) and not (text[end].islower() and match.group().count("\n") < 2):
            starts.add(end)
    if thai:
        starts.update(match.end() for match in _THAI_SPACE.finditer(text))
    return sorted(starts)
