from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from components.errors import DataError
from components.formats.lines import LINE_BYTES, Reading, lines


def read(path: Path) -> list[tuple[int, str]]:
    return list(lines(path, Reading()))


def compress(data: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(data)
    return pa.Codec("zstd").compress(data, asbytes=True) if suffix == ".zst" else data


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_lines_are_numbered_and_have_no_line_break(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(compress("\ufeffone\r\ntwo é\n\nlast".encode(), suffix))
    reading = Reading()
    assert list(lines(path, reading)) == [(1, "one"), (2, "two é"), (3, ""), (4, "last")]
    size = len("\ufeffone\r\ntwo é\n\nlast".encode())
    assert reading == Reading(text_bytes=size, consumed=path.stat().st_size, bad_bytes=0, bad_lines=0)


def test_lines_longer_than_a_block_are_whole(tmp_path: Path) -> None:
    long = "x" * 3_000_000
    path = tmp_path / "a.txt"
    path.write_text(f"short\n{long}\nend\n")
    assert read(path) == [(1, "short"), (2, long), (3, "end")]


def test_other_line_separators_stay_in_the_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("a\u2028b\x0cc\n".encode())
    assert read(path) == [(1, "a\u2028b\x0cc")]


def test_bad_bytes_are_replaced_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\ncaf\xe9 and \xff\xfe\nfine too \xc3\xa9\n")
    reading = Reading()
    assert [text for _, text in lines(path, reading)] == ["fine", "caf\ufffd and \ufffd\ufffd", "fine too é"]
    assert (reading.bad_bytes, reading.bad_lines) == (3, 1)


def test_missing_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt: does not exist"):
        read(tmp_path / "none.txt")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "empty.txt.gz").write_bytes(gzip.compress(b""))
    for name in ("empty.txt", "empty.txt.gz"):
        with pytest.raises(DataError, match=rf"{name}: is empty"):
            read(tmp_path / name)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_truncated_files_name_the_last_good_line(tmp_path: Path, suffix: str) -> None:
    text = "".join(f"line {number} {number * 7919 % 10007}\n" for number in range(400_000)).encode()
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(compress(text, suffix)[:-1000])
    with pytest.raises(
        DataError, match=rf"a\.jsonl\{suffix}, after line \d{{3,}}: damaged or truncated .*copy it again"
    ):
        read(path)
    path.write_bytes(b"this is not compressed at all")
    with pytest.raises(DataError, match="after line 0: damaged or truncated"):
        read(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-be"])
def test_a_byte_order_mark_of_another_encoding_is_an_error(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(("\ufeff" if encoding.endswith("be") else "").encode(encoding) + "some text\n".encode(encoding))
    with pytest.raises(DataError, match=rf"a\.txt: is {encoding[:6].upper()}, expected UTF-8; convert it"):
        read(path)


def test_a_nul_byte_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntwo\nth\0ree\n")
    with pytest.raises(DataError, match=r"a\.txt, line 3: contains a NUL byte"):
        read(path)


def test_a_file_in_another_encoding_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("déjà vu, très élevé à côté\n".encode("latin-1") * 10)
    with pytest.raises(
        DataError, match=r"line 3: \d+ of \d+ non-ASCII bytes are not UTF-8, so the file is in another encoding"
    ):
        read(path)


@pytest.mark.parametrize("end", ["\nlast\n", ""])
def test_a_line_of_ten_megabytes_is_an_error(tmp_path: Path, end: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text("first\n" + "x" * 10_000_000 + end)
    with pytest.raises(DataError, match=r"a\.txt, line 2: longer than 8 MB; write one document"):
        read(path)
    path.write_text("first\n" + "x" * LINE_BYTES + end)
    assert len(read(path)[1][1]) == LINE_BYTES
