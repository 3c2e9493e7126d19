"""The encoding of a text file: given, or guessed from its bytes."""

import codecs
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import chardet

from components.core.errors import DataError

UTF8: Final = "utf-8"
#: Byte order mark -> encoding; the longer marks first, because UTF-32 begins like UTF-16.
MARKS: Final = (
    (codecs.BOM_UTF8, UTF8),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: Bytes from which the encoding is guessed: of a larger file the beginning, and parts of the rest.
SAMPLE: Final = 8_000_000
_PART, _PARTS = 1 << 16, 64
#: Bytes of lines beyond ASCII that the detection reads.
_READ: Final = 200_000
#: Of a file with at least this many characters beyond ASCII for each byte that is not UTF-8, those bytes are damaged.
_DAMAGED: Final = 10
#: Share of NUL bytes from which a file is no text of one byte or more a character.
_BINARY: Final = 0.05
#: Encodings that files have today; others, of mainframes or DOS, are no guess. Those of one language that differ in a
#: few characters are represented by the largest.
CANDIDATES: Final = (
    *("gb18030", "cp932", "euc_jp", "iso2022_jp", "cp949", "big5", "cp874", "koi8_r", "koi8_u", "mac_roman"),
    *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "iso8859_2"),
)
#: In a text without words of letters beyond ASCII alone, a western guess is preferred to others that are less than this
#: factor more probable: few characters say little.
_WESTERN: Final = 2.0
#: Lines that are searched for a character that two encodings read differently, and characters shown on its sides.
_LINES, _AROUND = 200, 40
_WORD: Final = re.compile(r"[^\W\d_]+")
_LATIN: Final = re.compile("[A-Za-z]")
_FOREIGN: Final = re.compile(rb"[\x80-\xff]{3}")


@dataclass(frozen=True)
class Encoding:
    """An encoding.

    Attributes:
        name: of a codec of Python.
        example: a line with characters beyond ASCII, as it is decoded; empty if the encoding is UTF-8 or given.
        others: further candidates, the most probable first.
        telling: a character of the example, its bytes, and what another candidate reads; in words.
    """

    name: str = UTF8
    example: str = ""
    others: tuple[str, ...] = ()
    telling: str = ""


def detect_encoding(path: Path, sample: bytes) -> Encoding:
    """The encoding of a file: by its byte order mark, UTF-8 if the bytes are, else the most probable one.

    Raises:
        DataError: no encoding fits; the message names candidates.
    """
    for mark, name in MARKS:
        if sample.startswith(mark):
            return Encoding(name)
    if sample.count(b"\0") > len(sample) * _BINARY:
        return _wide(path, sample)
    try:
        sample.decode()
    except UnicodeDecodeError:
        text = sample.decode(errors="replace")
        beyond, bad = sum(not character.isascii() for character in text), text.count("\ufffd")
        return Encoding() if beyond - bad >= _DAMAGED * bad or _is_mixed(sample) else _guessed(path, sample)
    if sample.isascii() and b"\x1b$" in sample:
        return _guessed(path, sample)
    return Encoding()


def _is_mixed(sample: bytes) -> bool:
    """Whether at least half of the lines beyond ASCII are UTF-8; in other encodings, few are by chance."""
    lines = [line for line in sample.split(b"\n") if not line.isascii()]
    return sum(not decode(line)[1] for line in lines) >= max(2, len(lines) / 2)


def decode(raw: bytes) -> tuple[str, int]:
    """A text in UTF-8 in which bytes that are no UTF-8 are U+FFFD, and their number."""
    try:
        return raw.decode(), 0
    except UnicodeDecodeError:
        return raw.decode(errors="replace"), len(raw) - len(raw.decode(errors="ignore").encode())


def _wide(path: Path, sample: bytes) -> Encoding:
    """UTF-16 or UTF-32 without a mark."""
    for name in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        unit = 2 if "16" in name else 4
        text = sample[: len(sample) // unit * unit].decode(name, errors="replace")
        if "\n" in text and "\0" not in text and text.count("\ufffd") < len(text) / 100:
            return Encoding(name, _example(text))
    line = sample.count(b"\n", 0, sample.index(b"\0")) + 1
    raise DataError(
        f"{path}, line {line}: contains a NUL byte, so it is no text file; save the data as csv, jsonl or parquet"
    )


def _guessed(path: Path, sample: bytes) -> Encoding:
    lines = b"\n".join(line for line in sample.splitlines() if not line.isascii() or b"\x1b" in line)
    guesses: dict[str, float] = {}
    # Words in ASCII say nothing, and there may be many.
    words = b" ".join(word for word in lines.split() if not word.isascii() or b"\x1b" in word)
    for guess in chardet.detect_all(words[:_READ], ignore_threshold=True):
        name = codecs.lookup(guess["encoding"]).name.replace("-", "_") if guess["encoding"] else ""
        if name in CANDIDATES and name not in guesses and _decodes(sample, name):
            guesses[name] = guess["confidence"]
    if not guesses:
        raise DataError(
            f"{path}: is not UTF-8, and no other encoding fits all of its bytes; convert it to UTF-8, or name its "
            f"encoding with --encoding (one of {', '.join(CANDIDATES)} or another that Python knows)"
        )
    text = lines.decode
    guesses = {name: guess for name, guess in guesses.items() if not _is_odd(text(name))} or guesses
    factor = 1.0 if _FOREIGN.search(lines) else _WESTERN
    names = sorted(guesses, key=lambda name: -guesses[name] * (factor if name == "cp1252" else 1))
    best = guesses[names[0]]
    others = tuple(name for name in names[1:] if guesses[name] * _WESTERN >= best)
    rivals = [*names[1:], *(name for name in CANDIDATES if name not in names and _decodes(lines, name))]
    example, telling = next(filter(None, (_telling(lines, names[0], rival) for rival in rivals)), ("", ""))
    return Encoding(names[0], example or _example(text(names[0])), others, telling)


def _telling(lines: bytes, name: str, rival: str) -> tuple[str, str] | None:
    """The text around the first character that two encodings read differently, and both readings in words."""
    for line in lines.split(b"\n")[:_LINES]:
        text = line.decode(name, errors="replace").strip()
        for place, character in enumerate(text):
            raw = b"" if character.isascii() else character.encode(name, errors="ignore")
            other = raw.decode(rival, errors="replace")
            if raw and other != character:
                around = text[max(0, place - _AROUND) : place + _AROUND]
                return around, f"{raw.hex(' ')} is {character!r}, in {rival} {other!r}"
    return None


def _decodes(sample: bytes, name: str) -> bool:
    try:
        text = sample.decode(name)
    except UnicodeDecodeError:
        return False
    # Control characters from 0x80 are in no text.
    return not any("\x80" <= character <= "\x9f" for character in set(text))


def _is_odd(text: str) -> bool:
    """Whether most words with a letter beyond ASCII mix Latin letters with letters of another script, as `caf\u03b9`
    does. Few do in text of that other script: `TV\uac00` in Korean."""
    words = [word for word in _WORD.findall(text) if not word.isascii()]
    beyond = [{letter for letter in word if not letter.isascii()} for word in words if _LATIN.search(word)]
    odd = sum(any(not unicodedata.name(letter, "").startswith("LATIN") for letter in each) for each in beyond)
    return 2 * odd > len(words)


def _example(text: str) -> str:
    return next((line.strip()[:80] for line in text.splitlines() if not line.isascii()), "")


def sample_of(path: Path, first: Sequence[bytes], *, compressed: bool) -> bytes:
    """Whole lines of a file: all of them, or the first ones and parts from the rest of a large file. `first`: its first
    blocks, decompressed."""
    begin = b"".join(first)
    size = path.stat().st_size
    if compressed or size <= len(begin):
        return begin
    parts = [begin[: begin.rfind(b"\n") + 1] or begin]
    with path.open("rb") as file:
        for number in range(_PARTS):
            file.seek(len(begin) + (size - len(begin)) * number // _PARTS)
            part = file.read(_PART)
            parts.append(part[part.find(b"\n") + 1 : part.rfind(b"\n") + 1])
    return b"".join(parts)
