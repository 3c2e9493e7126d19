"""Text files as streams of lines: decompressed, decoded and counted; about a megabyte is in memory at a time."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from components.core.errors import DataError

#: Longer lines are errors: a file without line breaks, or an unclosed quote. Documents are far shorter.
LINE_BYTES = 8_000_000
UTF8 = "utf-8"
_BLOCK_BYTES = 1 << 20
CODECS = {".gz": "gzip", ".zst": "zstd"}
# If more than this share of the non-ASCII bytes is invalid, the text is in another encoding.
_BAD_SHARE = 0.3
_BAD_LEAST = 20
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)


@dataclass
class Reading:
    """Counters of what has been read, over one or several files."""

    #: Bytes of text, decompressed.
    text_bytes: int = 0
    #: Bytes on disk, compressed.
    consumed: int = 0
    #: Bytes that are not UTF-8, and lone surrogates in JSON ("\\ud83d"); replaced by U+FFFD.
    bad_bytes: int = 0
    #: Lines (or Parquet values) with at least one of them.
    bad_lines: int = 0
    #: Reason -> number of records that were left out, or of which a part is not used.
    skipped: Counter[str] = field(default_factory=Counter)


def lines(path: Path, reading: Reading, *, encoding: str = UTF8) -> Iterator[tuple[int, str]]:
    r"""(number from 1, text without line break) of every line; ends at \n, \r\n or the end of the file.

    UTF-8 with or without a byte order mark; invalid bytes become U+FFFD and are counted. In other encodings (those that
    encode a line break as byte 10) invalid bytes are errors.

    Raises:
        DataError: the file is missing, empty, unreadable, truncated or in another encoding, contains a NUL byte, or has
            a line over 8 MB.
    """
    number = 0
    bad_before, beyond_ascii = reading.bad_bytes, 0
    for block in _blocks(path, reading):
        if number == 0:
            _refuse_encoding(path, block)
            block = block.removeprefix(codecs.BOM_UTF8)
        if b"\0" in block:
            line = number + 1 + block.count(b"\n", 0, block.index(b"\0"))
            raise DataError(
                f"{path}, line {line}: contains a NUL byte; the file is binary, UTF-16 without a byte order mark, or "
                "damaged: convert it to UTF-8 or remove the bytes (tr -d '\\000')"
            )
        if encoding != UTF8:
            for raw in _split(block):
                number += 1
                yield number, _decode_strictly(path, number, raw, encoding)
            continue
        try:
            text = block.decode()
        except UnicodeDecodeError:
            for raw in _split(block):
                number += 1
                line_text, bad = decode(raw)
                if bad:
                    reading.bad_bytes += bad
                    reading.bad_lines += 1
                beyond_ascii += len(raw) - len(raw.translate(None, _HIGH_BYTES))
                _refuse_mostly_bad(path, number, reading.bad_bytes - bad_before, beyond_ascii)
                yield number, line_text
            continue
        if not block.isascii():
            beyond_ascii += len(block) - len(block.translate(None, _HIGH_BYTES))
        parts = text.split("\n")
        if not parts[-1]:
            parts.pop()
        for part in parts:
            number += 1
            yield number, part.removesuffix("\r")


_HIGH_BYTES = bytes(range(128, 256))


def _split(block: bytes) -> list[bytes]:
    raws = block.split(b"\n")
    if not raws[-1]:
        raws.pop()
    return [raw.removesuffix(b"\r") for raw in raws]


def decode(raw: bytes) -> tuple[str, int]:
    """The text, and the number of bytes that are not UTF-8; each invalid sequence becomes one U+FFFD."""
    try:
        return raw.decode(), 0
    except UnicodeDecodeError:
        return raw.decode(errors="replace"), len(raw) - len(raw.decode(errors="ignore").encode())


def _decode_strictly(path: Path, number: int, raw: bytes, encoding: str) -> str:
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number}: byte {raw[error.start]:#04x} is not {encoding}; correct `encoding` in params.yaml"
        ) from error


def whole(path: Path, reading: Reading) -> str:
    """The text of a whole UTF-8 file, for formats that are one document; lines may have any length.

    Raises:
        DataError: the file is missing, empty, unreadable, truncated, or not UTF-8.
    """
    raw = b"".join(_blocks(path, reading, limit=None))
    _refuse_encoding(path, raw)
    try:
        return raw.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {raw.count(10, 0, error.start) + 1}: byte {raw[error.start]:#04x} is not UTF-8; convert it "
            "(for example iconv -f LATIN1 -t UTF-8)"
        ) from error


def _blocks(path: Path, reading: Reading, *, limit: int | None = LINE_BYTES) -> Iterator[bytes]:
    """Blocks of whole lines, about a megabyte each; `limit` is the maximum number of bytes of a line."""
    codec = CODECS.get(path.suffix.lower())
    rest: list[bytes] = []
    size, number, empty = 0, 1, True
    try:
        if path.stat().st_size == 0:
            raise DataError(f"{path}: is empty")
        before = reading.consumed
        with pa.OSFile(str(path)) as raw, pa.CompressedInputStream(raw, codec) if codec else raw as stream:
            while block := stream.read(_BLOCK_BYTES):
                empty = False
                reading.text_bytes += len(block)
                reading.consumed = before + raw.tell()
                cut = block.rfind(b"\n") + 1
                if cut:
                    complete = b"".join([*rest, block[:cut]])
                    _refuse_long(path, number, complete, limit)
                    number += complete.count(b"\n")
                    yield complete
                    rest, size = [block[cut:]], len(block) - cut
                else:
                    rest.append(block)
                    size += len(block)
                if limit is not None and size > limit:
                    raise too_long(path, f"line {number}")
    except FileNotFoundError as error:
        raise DataError(f"{path}: does not exist") from error
    except (pa.ArrowException, OSError) as error:
        kind = "damaged or truncated" if codec else "cannot be read"
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{path}, after line {number - 1}: {kind} ({reason}); copy it again") from error
    if empty:
        raise DataError(f"{path}: is empty")
    if last := b"".join(rest):
        yield last


def _refuse_long(path: Path, number: int, block: bytes, limit: int | None) -> None:
    if limit is None or len(block) <= limit:
        return
    for offset, raw in enumerate(block.split(b"\n")):
        if len(raw) > limit:
            raise too_long(path, f"line {number + offset}")


def too_long(path: Path, where: str) -> DataError:
    """The error for a line or row longer than `LINE_BYTES`."""
    return DataError(
        f"{path}, {where}: longer than {LINE_BYTES // 1_000_000} MB; write one document or paragraph per line"
    )


def _refuse_encoding(path: Path, block: bytes) -> None:
    for mark, name in _BYTE_ORDER_MARKS:
        if block.startswith(mark):
            raise DataError(f"{path}: is {name}, expected UTF-8; convert it (iconv -f {name} -t UTF-8)")


def _refuse_mostly_bad(path: Path, number: int, bad: int, beyond_ascii: int) -> None:
    if bad >= _BAD_LEAST and bad > _BAD_SHARE * beyond_ascii:
        raise DataError(
            f"{path}, up to line {number}: {bad} of {beyond_ascii} non-ASCII bytes are not UTF-8, so the file is in "
            "another encoding; convert it (for example iconv -f LATIN1 -t UTF-8)"
        )
