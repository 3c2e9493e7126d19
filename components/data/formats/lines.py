"""Text files as streams of lines: decompressed, decoded and counted; about a megabyte is in memory at a time."""

import codecs
import json
import math
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa

from components.core.errors import ConfigError, DataError
from components.data.formats.encoding import SAMPLE, UTF8, Encoding, decode, detect_encoding, sample_of

#: Longer lines are errors: a file without line breaks, or an unclosed quote. Documents are far shorter.
LINE_BYTES = 8_000_000
_BLOCK_BYTES = 1 << 20
CODECS = {".gz": "gzip", ".zst": "zstd"}
#: Files of an archive or folder that are no data.
NO_DATA = re.compile(r"(^|/)(__MACOSX(/|$)|\.|thumbs\.db$|desktop\.ini$|(readme|licen[cs]e|sources?)\b)", re.IGNORECASE)
#: Line numbers of bad bytes that are listed.
LISTED = 5


@dataclass
class Reading:
    """Counters of what has been read, over one or several files."""

    #: Bytes of text, decompressed.
    text_bytes: int = 0
    #: Bytes that are not UTF-8, and lone surrogates in JSON ("\\ud83d"); replaced by U+FFFD.
    bad_bytes: int = 0
    #: Lines (or Parquet values) with at least one of them.
    bad_lines: int = 0
    #: Numbers of the first of these lines.
    first_bad: list[int] = field(default_factory=list)
    #: Of the last file.
    encoding: Encoding = field(default_factory=Encoding)
    #: Reason -> number of records that were left out, or of which a part is not used.
    skipped: Counter[str] = field(default_factory=Counter)
    #: Reason -> lines of the first of them.
    first_skipped: dict[str, list[int]] = field(default_factory=dict)

    def leave_out(self, reason: str, lines: Sequence[int]) -> None:
        self.skipped[reason] += len(lines)
        self.first_skipped[reason] = [*self.first_skipped.get(reason, []), *lines][:LISTED]


#: Environment variable with the largest ratio of unpacked to packed bytes, and its default. Text packs by 3 to 20.
RATIO_KEY: Final = "HEADSTART_UNPACK_RATIO"
RATIO: Final = 100.0
#: Unpacked bytes that are read from a file of any size.
FREE_BYTES: Final = 64 << 20


def largest_ratio() -> float:
    """The largest ratio of unpacked to packed bytes.

    Raises:
        ConfigError: the variable HEADSTART_UNPACK_RATIO is not a positive number.
    """
    given = os.environ.get(RATIO_KEY) or str(RATIO)
    try:
        if (ratio := float(given)) > 0:
            return ratio
    except ValueError:
        pass
    raise ConfigError(f"{RATIO_KEY}: {given!r} is not a positive number")


def largest_unpacked(path: Path) -> float:
    """The number of bytes that a packed file may have unpacked."""
    return max(FREE_BYTES, largest_ratio() * path.stat().st_size)


def too_large(path: Path) -> DataError:
    return DataError(
        f"{path}: holds more than {largest_unpacked(path) / 1e6:,.0f} MB unpacked, and has {path.stat().st_size:,} "
        f"bytes; if that is right, raise {RATIO_KEY} ({largest_ratio():g})"
    )


def check_archive(path: Path) -> None:
    """Check the sizes that a zip archive, such as a workbook, states; other files pass.

    Raises:
        DataError: it is too large unpacked.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
    except (zipfile.BadZipFile, OSError):
        return  # its reader says what is wrong
    if unpacked > largest_unpacked(path):
        raise too_large(path)


def lines(path: Path, reading: Reading, *, encoding: str | None = None) -> Iterator[tuple[int, str]]:
    r"""(number from 1, text without line break) of every line; ends at \n, \r\n or the end of the file, in a file
    without \n at \r.

    Raises:
        DataError: as `text_blocks`; a line is longer than 8 MB.
    """
    number = 0
    for block in text_blocks(path, reading, encoding=encoding, limit=LINE_BYTES):
        parts = block.decode().split("\n")
        if not parts[-1]:
            parts.pop()
        for part in parts:
            number += 1
            yield number, part.removesuffix("\r")


def _codec(path: Path, encoding: str) -> str:
    """The name of an encoding of text."""
    try:
        "a".encode(encoding)
    except (LookupError, UnicodeError) as error:
        raise DataError(f"{path}: {error}; name an encoding of text (--encoding), such as cp874") from error
    return codecs.lookup(encoding).name


def text_blocks(
    path: Path, reading: Reading, *, encoding: str | None = None, limit: int | None = None
) -> Iterator[bytes]:
    r"""UTF-8 blocks of whole lines, about a megabyte each, without a byte order mark.

    Bytes of a UTF-8 file that are not UTF-8 become U+FFFD and are counted. In a file without \n, \r ends lines.

    Args:
        encoding: of the file, a name that Python knows; None: guessed (`components.data.formats.encoding`).
        limit: maximum number of bytes of a line; None: no limit.

    Raises:
        DataError: the file is missing, empty, unreadable, truncated, no text, or in another encoding.
    """
    chunks = _chunks(path, reading)
    first: list[bytes] = []
    for chunk in chunks:
        first.append(chunk)
        if sum(map(len, first)) >= SAMPLE // 2:
            break
    if not first:
        raise DataError(f"{path}: is empty")
    compressed = path.suffix.lower() in (*CODECS, ".zip")
    guessed = (
        detect_encoding(path, sample_of(path, first, compressed=compressed))
        if encoding is None
        else Encoding(_codec(path, encoding))
    )
    reading.encoding = guessed
    old: bool | None = None
    decoder = None if guessed.name == UTF8 else codecs.getincrementaldecoder(guessed.name)()
    number, carried = 0, b""
    parts: Iterator[bytes | None] = chain(first, chunks, [None])
    for part in parts:
        try:
            text = b"" if part is None else part if decoder is None else decoder.decode(part).encode()
        except UnicodeDecodeError as error:
            line = number + carried.count(b"\n") + error.object.count(b"\n", 0, error.start) + 1
            raise DataError(
                f"{path}, line {line}: byte {error.object[error.start]:#04x} is not {guessed.name}; name the encoding "
                "(encoding, --encoding), or convert the file to UTF-8"
            ) from error
        except ValueError as error:
            raise DataError(f"{path}: is not {guessed.name} ({error}); name the encoding (--encoding)") from error
        old = b"\n" not in text and b"\r" in text if old is None else old
        text = carried + (text.replace(b"\r", b"\n") if old else text)
        cut = len(text) if part is None else text.rfind(b"\n") + 1
        block, carried = text[:cut], text[cut:]
        if limit is not None and max(len(carried), len(block)) > limit:
            for at, raw in enumerate((block + carried).split(b"\n"), number + 1):
                if len(raw) > limit:
                    raise too_long(path, f"line {at}")
        if block:
            block = block.removeprefix(codecs.BOM_UTF8) if number == 0 else block
            block = _valid(block, number, reading)
            yield block
            number += block.count(b"\n")


def _valid(block: bytes, before: int, reading: Reading) -> bytes:
    """A block whose bytes that are not UTF-8 are replaced, and counted."""
    try:
        block.decode()
    except UnicodeDecodeError:
        raws = block.split(b"\n")
        for number, raw in enumerate(raws):
            text, bad = decode(raw)
            if bad:
                raws[number] = text.encode()
                reading.bad_bytes += bad
                reading.bad_lines += 1
                reading.first_bad += [before + number + 1][: LISTED - len(reading.first_bad)]
        block = b"\n".join(raws)
    return block


def whole(path: Path, reading: Reading, *, encoding: str | None = None) -> str:
    """The text of a whole file, for formats that are one document; lines may have any length. Errors as of
    `text_blocks`."""
    return b"".join(text_blocks(path, reading, encoding=encoding)).decode()


def _chunks(path: Path, reading: Reading) -> Iterator[bytes]:
    """The bytes of a file, decompressed, a megabyte at a time."""
    codec, is_zip = CODECS.get(path.suffix.lower()), path.suffix.lower() == ".zip"
    lines_before = unpacked = 0
    try:
        if path.stat().st_size == 0:
            raise DataError(f"{path}: is empty")
        most = largest_unpacked(path) if codec or is_zip else math.inf
        with ExitStack() as stack:
            archive = stack.enter_context(zipfile.ZipFile(path)) if is_zip else None
            opened = archive.open(member_of(path)) if archive else pa.input_stream(str(path), compression=codec)
            stream = stack.enter_context(opened)
            while chunk := stream.read(_BLOCK_BYTES):
                reading.text_bytes += len(chunk)
                if (unpacked := unpacked + len(chunk)) > most:
                    raise too_large(path)
                lines_before += chunk.count(b"\n")
                yield chunk
    except FileNotFoundError as error:
        raise DataError(f"{path}: does not exist") from error
    except (pa.ArrowException, zipfile.BadZipFile, OSError, RuntimeError) as error:
        kind = "damaged or truncated" if codec or is_zip else "cannot be read"
        reason = (str(error) or type(error).__name__).split("\n", 1)[0]
        do = "copy it again, or unpack it" if is_zip else "copy it again"
        raise DataError(f"{path}, after line {lines_before}: {kind} ({reason}); {do}") from error


def member_of(path: Path) -> str:
    """The name of the only file in a zip archive, without what systems add.

    Raises:
        DataError: the archive has no file or several; the message lists them.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/") and not NO_DATA.search(name)]
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{path}: cannot be unpacked ({error}); copy it again") from error
    if len(names) == 1:
        return names[0]
    listed = ", ".join(names[:5]) or "none"
    raise DataError(f"{path}: holds {len(names)} files ({listed}); unpack it, and name one of them, or the folder")


def too_long(path: Path, where: str) -> DataError:
    return DataError(
        f"{path}, {where}: longer than {LINE_BYTES // 1_000_000} MB; write one document or paragraph per line"
    )


#: orjson rounds larger integers.
_ROUNDED = 2.0**63
_SURROGATE = re.compile("[\ud800-\udfff]")


def loads(text: str) -> tuple[Any, int]:
    r"""The value of a JSON text, and the number of lone surrogates replaced by U+FFFD.

    A lone surrogate is half of an escaped pair ("\ud83d"), as in truncated emoji; it cannot be encoded as UTF-8.

    Raises:
        ValueError: the text is not valid JSON or nested too deeply.
    """
    try:
        value = orjson.loads(text)
        if value.__class__ is not dict or not any(
            item.__class__ is float and abs(item) >= _ROUNDED for item in value.values()
        ):
            return value, 0
    except orjson.JSONDecodeError:
        pass  # lone surrogates, which are replaced; NaN, which json accepts; its messages name the place
    try:
        value = json.loads(text)
        # json.loads combines pairs, so every code point left in this range is a lone surrogate.
        if "\\ud" in text or "\\uD" in text:
            whole, count = _SURROGATE.subn("\ufffd", json.dumps(value, ensure_ascii=False))
            return json.loads(whole), count
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value, 0
