"""Text normalisation: markup removal, Unicode NFC, no control characters, plain white space."""

from __future__ import annotations

import html
import re
import unicodedata

from components.ingestion.markup import strip_tags

_LINE_BREAKS = re.compile("\r\n?|[\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
# Control characters except tab and line feed; zero-width space, soft hyphen, byte order mark. Zero-width joiners and
# non-joiners are kept: they are part of the spelling of Persian, Hindi and emoji.
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u00ad\u200b\u2060\ufeff\ufdd0-\ufdef\ufffe\uffff]")


def clean(text: str, *, strip_markup: bool = True) -> str:
    """The normalised text; idempotent for text without markup.

    Line breaks are kept, with at most one empty line in a row; other white space becomes single spaces; lines are
    stripped. With `strip_markup`, HTML is converted to text (`components.ingestion.markup`) and entities are decoded.
    """
    if strip_markup:
        if "<" in text:
            text = strip_tags(text)
        if "&" in text:
            text = html.unescape(text)
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    # These tests run in C; most texts need none of the passes below.
    printable = text.replace("\n", "").isprintable()
    if not printable:
        text = _LINE_BREAKS.sub("\n", text)
        text = _INVISIBLE.sub("", text)
    if not printable or "  " in text or " \n" in text or "\n " in text:
        text = "\n".join([" ".join(line.split()) for line in text.split("\n")])
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text.strip()
