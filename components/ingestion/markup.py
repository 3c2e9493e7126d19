"""From HTML to plain text, paragraph by paragraph.

Regular expressions, not a parser: documentation texts hold fragments (unclosed paragraphs, nested lists) that a
parser has to guess about, and they come by the ten thousand.
"""

from __future__ import annotations

import html
import re

#: Tags after which a new line begins; every other known tag stands inside a line and leaves no trace.
_BLOCK_NAMES = """
    address article aside blockquote body br caption center dd div dl dt fieldset figcaption figure footer form h1
    h2 h3 h4 h5 h6 head header hr html important li main nav note ol p para pre section table tbody td tfoot th
    thead title tr ul xhtml zonbook
"""
BLOCK = frozenset(_BLOCK_NAMES.split())
_INLINE_NAMES = """
    a abbr acronym b bdi bdo big cite code data del dfn em font i img input ins kbd label link mark meta q s samp
    small span strike strong sub sup time tt u var wbr
"""
INLINE = frozenset(_INLINE_NAMES.split())
_ATTRIBUTES = r"""(?:\s+[\w:.-]+\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'<>]+))*\s*"""
# Only the tags of HTML, and only with well-formed attributes: `<unk>`, `a <b and c> d` and `List<String>` are text.
_KNOWN_BLOCK = re.compile(rf"</?(?:{'|'.join(sorted(BLOCK))}){_ATTRIBUTES}/?>", re.IGNORECASE)
_KNOWN_INLINE = re.compile(rf"</?(?:{'|'.join(sorted(INLINE))}){_ATTRIBUTES}/?>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
_ANY_BLOCK = re.compile(rf"</?(?:{'|'.join(sorted(BLOCK))})(?:\s[^<>]*)?/?>", re.IGNORECASE)
_ANY_INLINE = re.compile(r"</?[A-Za-z][A-Za-z0-9]*(?:\s[^<>]*)?/?>|<!--.*?-->", re.DOTALL)
_HIDDEN = re.compile(r"<(script|style)\b[^>]*>.*?</\1\s*>", re.IGNORECASE | re.DOTALL)
# A tag between a word and its full stop leaves a space there; `.NET` and `:param` keep theirs.
_LOOSE = re.compile(r" ([,.;:)\]])(?=\s|$)")


def plain_text(text: str, *, any_tag: bool = False) -> str:
    """The text of an HTML fragment: one line a paragraph or list item, entities decoded, no empty lines.

    Args:
        text: the fragment.
        any_tag: take every `<word ...>` for a tag, as in documentation that writes a literal `<` as `&lt;`;
            else only the tags of HTML.
    """
    # By far most fragments are one paragraph without anything inside.
    if text.startswith("<p>") and text.endswith("</p>") and text.count("<") == 2:
        text = text[3:-4]
    elif "<" in text:
        text = strip_tags(text, any_tag=any_tag)
    if "&" in text:
        text = html.unescape(text)
    lines = [" ".join(line.split()) for line in text.split("\n")]
    return _LOOSE.sub(r"\1", "\n".join([line for line in lines if line]))


def strip_tags(text: str, *, any_tag: bool = False) -> str:
    """Tags taken out, block tags replaced by a line break, scripts and style sheets dropped; entities stay."""
    if "</s" in text or "</S" in text:
        text = _HIDDEN.sub("\n", text)
    block, inline = (_ANY_BLOCK, _ANY_INLINE) if any_tag else (_KNOWN_BLOCK, _KNOWN_INLINE)
    return inline.sub("", block.sub("\n", text))
