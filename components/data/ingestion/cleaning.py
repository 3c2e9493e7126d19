"""Text normalisation: HTML to plain text, Unicode NFC, no control characters, plain white space.

HTML is read by regular expressions, not a parser: fragments of documentation have unclosed paragraphs and nested lists,
whose structure a parser would have to guess. The time is linear in the length of any text: no pattern matches past the
next `<`, and an end tag or a quote beyond it is searched for once.
"""

import html
import re
import unicodedata

#: Tags that become a line break; every other known tag is inline and is removed.
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
_ATTRIBUTE = re.compile(r"""\s++[\w:.-]++\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s"'<>]++)""")
_TAG_END = re.compile(r"\s*+/?>")
_PLAIN_ATTRIBUTE = r"""\s++[\w:.-]++\s*+=\s*+(?:"[^"<]*+"|'[^'<]*+'|[^\s"'<>]++)"""


def _known(names: frozenset[str]) -> str:
    # A match ends with ">", or with the name where an attribute may contain "<". Only HTML tags with well-formed
    # attributes are tags: `<unk>`, `a <b and c> d` and `List<String>` are text.
    return rf"</?(?:{'|'.join(sorted(names))})(?:(?>{_PLAIN_ATTRIBUTE})*+\s*+/?>|(?=\s))"


_KNOWN_BLOCK = re.compile(_known(BLOCK), re.IGNORECASE)
_KNOWN_INLINE = re.compile(f"{_known(INLINE)}|<!--", re.IGNORECASE)
_ANY_BLOCK = re.compile(rf"</?(?:{'|'.join(sorted(BLOCK))})(?:\s[^<>]*)?/?>", re.IGNORECASE)
_ANY_INLINE = re.compile(r"</?[A-Za-z][A-Za-z0-9]*(?:\s[^<>]*)?/?>|<!--")
_HIDDEN = re.compile(r"<(script|style)\b", re.IGNORECASE)
_HIDDEN_END = {name: re.compile(rf"</{name}\s*+>", re.IGNORECASE) for name in ("script", "style")}
# A removed tag leaves a space between a word and its full stop; `.NET` and `:param` keep theirs.
_LOOSE = re.compile(r" ([,.;:)\]])(?=\s|$)")


def plain_text(text: str) -> str:
    """The text of an HTML fragment, in which every `<word ...>` is a tag: one line per paragraph or list item, entities
    decoded, no empty lines."""
    # Most fragments are one paragraph without other tags.
    if text.startswith("<p>") and text.endswith("</p>") and text.count("<") == 2:
        text = text[3:-4]
    elif "<" in text:
        text = strip_tags(text, any_tag=True)
    if "&" in text:
        text = html.unescape(text)
    lines = [" ".join(line.split()) for line in text.split("\n")]
    return _LOOSE.sub(r"\1", "\n".join([line for line in lines if line]))


def strip_tags(text: str, *, any_tag: bool = False) -> str:
    """The text with block tags replaced by line breaks and without other tags, comments, scripts and style sheets.

    Entities are kept. With `any_tag`, every `<word ...>` is a tag, as in documentation that escapes a literal `<`;
    otherwise only HTML tags are.
    """
    if "</s" in text or "</S" in text:
        text = _remove_hidden(text)
    block, inline = (_ANY_BLOCK, _ANY_INLINE) if any_tag else (_KNOWN_BLOCK, _KNOWN_INLINE)
    return _replace_tags(_replace_tags(text, block, "\n"), inline, "")


def _remove_hidden(text: str) -> str:
    parts: list[str] = []
    done = position = start_tag_end = 0
    # Without the names that have no end tag in the rest of the text.
    end_tags = dict(_HIDDEN_END)
    while end_tags and (match := _HIDDEN.search(text, position)):
        position, name = match.end(), match[1].lower()
        if start_tag_end < position:
            start_tag_end = text.find(">", position) + 1
            if not start_tag_end:
                break
        if name in end_tags:
            if end := end_tags[name].search(text, start_tag_end):
                parts.append(text[done : match.start()])
                done = position = end.end()
            else:
                del end_tags[name]
    return "\n".join([*parts, text[done:]])


def _replace_tags(text: str, tags: re.Pattern[str], replacement: str) -> str:
    """All matches of `tags`, completed to whole tags and comments, replaced."""
    parts: list[str] = []
    done = position = 0
    failed: set[int] = set()
    has_comment_end = True
    while match := tags.search(text, position):
        position = match.end()
        match text[position - 1]:
            case ">":
                end = position
            case "-":
                comment_end = text.find("-->", position) if has_comment_end else -1
                has_comment_end = comment_end >= 0
                end = comment_end + 3 if has_comment_end else 0
            case _:
                end = _tag_end(text, position, failed)
        if end:
            parts.append(text[done : match.start()])
            done = position = end
    return replacement.join([*parts, text[done:]]) if parts else text


def _tag_end(text: str, position: int, failed: set[int]) -> int:
    """The end of a tag with attributes from `position`, or 0. `failed`: ends of attributes that no tag end follows."""
    visited: list[int] = []
    while position not in failed:
        visited.append(position)
        if end := _TAG_END.match(text, position):
            return end.end()
        if (attribute := _ATTRIBUTE.match(text, position)) is None:
            break
        position = attribute.end()
    failed.update(visited)
    return 0


_LINE_BREAKS = re.compile("\r\n?|[\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
# Control characters except tab and line feed; zero-width space, soft hyphen, byte order mark. Zero-width joiners and
# non-joiners are kept: they are part of the spelling of Persian, Hindi and emoji.
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u00ad\u200b\u2060\ufeff\ufdd0-\ufdef\ufffe\uffff]")


def clean(text: str, *, strip_markup: bool = True) -> str:
    """The normalised text; idempotent for text without markup.

    Line breaks are kept, with at most one empty line in a row; other white space becomes single spaces; lines are
    stripped. With `strip_markup`, HTML is converted to text (`components.data.ingestion.cleaning`) and entities are
    decoded.
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
