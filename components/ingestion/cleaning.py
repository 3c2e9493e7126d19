"""One document's text in normal form: no mark-up, Unicode NFC, no control characters, plain white space."""

from __future__ import annotations

import html
import re
import unicodedata

from components.ingestion.markup import strip_tags

_LINE_BREAKS = re.compile("\r\n?|[\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
# Control characters but tab and line feed; zero-width space, soft hyphen, byte order mark. Zero-width (non-)joiners
# stay: Persian, Hindi and emoji are spelled with them.
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u00ad\u200b\u2060\ufeff\ufdd0-\ufdef\ufffe\uffff]")


def clean(text: str, *, strip_markup: bool = True) -> str:
    """The text in normal form; clean(clean(x)) == clean(x) for text without mark-up.

    Line breaks stay (at most one empty line in a row), other white space becomes single spaces, none of it stands
    around a line. With `strip_markup`, HTML tags go (block tags leave a line break) and entities are decoded.
    """
    if strip_markup:
        if "<" in text:
            text = strip_tags(text)
        if "&" in text:
            text = html.unescape(text)
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    # Tests in C first: most texts need nothing of what follows.
    printable = text.replace("\n", "").isprintable()
    if not printable:
        text = _LINE_BREAKS.sub("\n", text)
        text = _INVISIBLE.sub("", text)
    if not printable or "  " in text or " \n" in text or "\n " in text:
        text = "\n".join([" ".join(line.split()) for line in text.split("\n")])
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text.strip()
