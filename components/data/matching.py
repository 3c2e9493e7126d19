"""Texts that are searched for: in values, in lines, and in the content of any file.

Texts are compared by their words: case, punctuation, white space and markup do not count. A value holds a text if the
two are equal, or if the text has at least `LEAST_WORDS` words and they occur in the value one after the other.
"""

import io
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from components.core.errors import DataError
from components.data.formats.parquets import PARQUET, open_table
from components.data.formats.rows import open_rows
from components.data.formats.textkey import text_key
from components.data.formats.words import words, words_of
from components.data.ingestion.cleaning import clean
from components.settings.formats import by_name, suffix_of

#: Words from which a text is also found inside of a longer one. Fewer words may occur anywhere by chance.
LEAST_WORDS = 5
#: Characters of a file that are searched at once. Longer texts are found if they are values of a table.
_WINDOW = 4_000_000
#: Numbers of texts up to which each one's longest word is searched for by itself.
_FEW = 8
_ASCII_WORDS = re.compile(r"[a-z0-9]{3,}")
#: Letters that case folding also makes of others: of the sharp s, and of ligatures.
_FOLDED = re.compile("ss|ff|fi|fl")
_EMPTY_LINE = re.compile(r"\n\s*\n")
_ARROW, _GZIP, _ZSTD = b"ARROW1", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_ARROW_STREAM = b"\xff\xff\xff\xff"
#: Beginnings of files that are not text: Arrow, and NumPy's arrays and archives.
_NUMBERS = (_ARROW, b"\x93NUMPY", b"PK\x03\x04")
#: Largest JSON document that is parsed as a whole.
_JSON_BYTES = 256_000_000


class Texts:
    """A set of texts to find."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.keys = list(dict.fromkeys(key for text in texts if (key := key_of(text))))
        self._whole = set(self.keys)
        self._long = [key for key in self.keys if len(words_of(key)) >= LEAST_WORDS]
        # A word of each text that a value has to contain. Non-ASCII letters may be escaped in a file.
        words = [max(_sure_words(key), key=len, default="") for key in self.keys]
        self._everything = not all(words)
        self._words = set(words)
        self._of_long = [_sure_words(key) for key in self._long]
        self._few = sorted(self._words) if len(self._words) <= _FEW else None

    def __len__(self) -> int:
        return len(self.keys)

    def may_be_in(self, raw: str) -> bool:
        """Whether a raw piece of a file can hold one of the texts: a quick test without false negatives for text that
        is not interrupted by markup within words."""
        if self._everything:
            return True
        lower = raw.lower()
        if self._few is not None:
            return any(word in lower for word in self._few)
        return not self._words.isdisjoint(_ASCII_WORDS.findall(lower))

    def may_extend_over(self, raw: str) -> bool:
        """Whether a raw piece of a file has all words of a long text, in any order."""
        lower = raw.lower()
        return any(all(word in lower for word in words) for words in self._of_long)

    def held_by(self, value: str) -> bool:
        """Whether a value is one of the texts or contains a long one."""
        if not self.may_be_in(value):
            return False
        for key in {key_of(value), text_key(value)}:
            if key in self._whole:
                return True
            padded = _apart(key)
            if any(_apart(text) in padded for text in self._long):
                return True
        return False

    def in_values(self, values: Any) -> bool:
        """Whether a JSON value holds one of the texts: a string, a member of an object or list, or the words of a
        list of strings together."""
        match values:
            case str():
                return self.held_by(values)
            case dict():
                return any(map(self.in_values, values.values()))
            case list() | tuple():
                if values and all(isinstance(value, str) for value in values):
                    return self.held_by(" ".join(values)) or any(map(self.held_by, values))
                return any(map(self.in_values, values))
            case _:
                return False


def _apart(key: str) -> str:
    return f" {key if key.isascii() else ' '.join(words(key))} "


def _sure_words(key: str) -> list[str]:
    return [word for word in key.split() if _ASCII_WORDS.fullmatch(word) and not _FOLDED.search(word)]


def key_of(text: str) -> str:
    """The words of a text after cleaning: equal keys are copies of each other."""
    return text_key(clean(text))


def file_holds(path: Path, texts: Texts) -> bool:
    """Whether a file of any format holds one of the texts: Parquet, Arrow streams, JSON, and other text, plain or
    compressed by gzip or zstd, whatever its name; and rows of tables by the readers of their formats. Arrays of numbers
    hold no text.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(9)
    if head.startswith((PARQUET, _ARROW_STREAM)):
        with open_table(path, lambda field: holds_text(field.type)) as table:
            return any(any(held_rows(batch, texts)) for batch in table.batches)
    # The length of a JSON header, as 64-bit little-endian integer, and the header.
    is_safetensors = len(head) == 9 and head[8:] == b"{" and head[4:8] == bytes(4)
    if head.startswith(_NUMBERS) or is_safetensors:
        return (path.suffix.lower() == ".zip" or bool(by_name(path.name))) and _rows_hold(path, texts)
    codec = "gzip" if head.startswith(_GZIP) else "zstd" if head.startswith(_ZSTD) else None
    return _text_holds(path, codec, texts)


def held_rows(batch: pa.RecordBatch, texts: Texts) -> list[bool]:
    """Whether each row holds one of the texts, in a column of texts or in a nested one."""
    values = [batch.column(index).to_pylist() for index, field in enumerate(batch.schema) if holds_text(field.type)]
    return [texts.in_values(row) for row in zip(*values, strict=True)] or [False] * batch.num_rows


def holds_text(kind: pa.DataType) -> bool:
    """Whether a column of this type has strings."""
    if pa.types.is_dictionary(kind):
        return holds_text(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return holds_text(kind.value_type)
    if pa.types.is_struct(kind):
        return any(holds_text(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _text_holds(path: Path, codec: str | None, texts: Texts) -> bool:
    """Search the text of a file in overlapping windows; JSON is parsed line by line or as a whole."""
    overlap = max((len(key) for key in texts.keys), default=0) * 8 + 1000
    before, whole, structured, possible = b"", b"", None, False
    with pa.OSFile(str(path)) as raw, pa.CompressedInputStream(raw, codec) if codec else raw as stream:
        while block := stream.read(_WINDOW):
            structured = block.lstrip()[:1] in (b"{", b"[") if structured is None else structured
            window = before + block
            before, text = window[-overlap:], window.decode(errors="ignore")
            if texts.may_be_in(text):
                possible = True
                if _window_holds(text, texts, structured=structured):
                    return True
            # Words of UTF-16 are not seen.
            possible = possible or "\0" in text
            if structured and len(whole) < _JSON_BYTES:
                whole += block
    if possible and whole:
        with suppress(ValueError):
            if texts.in_values(json.loads(whole)):
                return True
    # Lines of JSON are the rows.
    return possible and not structured and _rows_hold(path, texts)


def _rows_hold(path: Path, texts: Texts) -> bool:
    """Whether a row of a table holds one of the texts, as its format is read: in its encoding, without its quotes."""
    if suffix_of(path.name) not in ("", ".txt") and not by_name(path.name):
        return False
    with suppress(DataError):
        return any(texts.in_values(row) for _, row in open_rows(path, rejected=lambda error, row: None).numbered)
    return False


def _window_holds(text: str, texts: Texts, *, structured: bool) -> bool:
    if any(texts.may_be_in(line) and texts.in_values(values_of(line)) for line in io.StringIO(text)):
        return True
    # A text may extend over several lines.
    if structured:
        return False
    if texts.may_extend_over(text) and texts.held_by(text):
        return True
    blocks = (block for block in _EMPTY_LINE.split(text) if texts.may_be_in(block))
    return any(map(texts.held_by, (sentence for block in blocks for sentence in columns(block.splitlines()))))


def values_of(line: str) -> Any:
    """The values of a line of a text file: JSON; the line and its cells."""
    line = line.rstrip("\r\n")
    with suppress(ValueError):
        if isinstance(value := json.loads(line), dict | list | str):
            return value
    return dict(enumerate([line, *line.split("\t")]))


def columns(lines: Sequence[str]) -> list[str]:
    """The columns of a block of lines, as in CoNLL: the words of each column as one text; lines that begin with `# `
    are comments."""
    rows = [words for line in lines if not line.startswith("# ") and (words := line.split())]
    width = min(map(len, rows), default=0)
    return [" ".join(row[column] for row in rows) for column in range(width)]
