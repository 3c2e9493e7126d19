import gzip
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from components.core.errors import DataError
from components.data.formats.lines import LINE_BYTES, Reading, lines, loads, text_blocks


def read(path: Path) -> list[tuple[int, str]]:
    return list(lines(path, Reading()))


def compress(data: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(data)
    return pa.Codec("zstd").compress(data, asbytes=True) if suffix == ".zst" else data


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_lines_are_numbered_and_have_no_line_break(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(compress("\ufeffone\r\ntwo é\n\nlast".encode(), suffix))
    reading = Reading()
    assert list(lines(path, reading)) == [(1, "one"), (2, "two é"), (3, ""), (4, "last")]
    size = len("\ufeffone\r\ntwo é\n\nlast".encode())
    assert reading == Reading(text_bytes=size, bad_bytes=0, bad_lines=0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Longer than a block; separators of other systems.
        (f"short\n{'x' * 3_000_000}\nend\n", ["short", "x" * 3_000_000, "end"]),
        ("a\u2028b\x0cc\n", ["a\u2028b\x0cc"]),
    ],
    ids=["long", "separators"],
)
def test_a_line_is_whole(tmp_path, text, expected):
    (tmp_path / "a.txt").write_bytes(text.encode())
    assert read(tmp_path / "a.txt") == list(enumerate(expected, 1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, ": does not exist"),
        (b"", ": is empty"),
        (b"one\ntwo\nth\0ree\n\1\2\0\0\0", ", line 3: contains a NUL byte, so it is no text file"),
        (b"fine\n\x81\x8d\x8f\n", ": is not UTF-8, and no other encoding fits all of its bytes"),
    ],
)
def test_files_that_are_no_text_are_refused(tmp_path, content, message):
    for name, data in (("a.txt", content), ("a.txt.gz", content if content is None else gzip.compress(content))):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=rf"{name}{message}"):
            read(tmp_path / name)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "mac_roman"])
def test_other_encodings_are_recognised(tmp_path, encoding):
    text = "déjà vu, très élevé à côté\n" * 10
    for name, suffix in (("a.txt", ""), ("a.txt.gz", ".gz")):
        (tmp_path / name).write_bytes(compress(text.encode(encoding), suffix))
        assert [line for _, line in read(tmp_path / name)] == text.split("\n")[:-1]


def test_bad_bytes_are_replaced_and_counted(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"fine\ncaf\xe9 and \xff\xfe\n" + "fine too, été\n".encode() * 20)
    reading = Reading()
    assert [text for _, text in lines(path, reading)][:3] == ["fine", "caf\ufffd and \ufffd\ufffd", "fine too, été"]
    assert (reading.bad_bytes, reading.bad_lines, reading.first_bad) == (3, 1, [2])


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_truncated_files_name_the_last_good_line(tmp_path, suffix):
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


def test_an_archive_with_a_password_is_to_be_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", "one\n")
    data = bytearray((tmp_path / "a.zip").read_bytes())
    # The flag of encryption in both headers.
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(DataError, match=r"a\.zip, after line 0: .*encrypted.*; copy it again, or unpack it$"):
        read(tmp_path / "a.zip")


@pytest.mark.parametrize("end", ["\nlast\n", ""])
def test_a_line_of_ten_megabytes_is_an_error(tmp_path, end):
    path = tmp_path / "a.txt"
    path.write_text("first\n" + "x" * 10_000_000 + end)
    with pytest.raises(DataError, match=r"a\.txt, line 2: longer than 8 MB; write one document"):
        read(path)
    path.write_text("first\n" + "x" * LINE_BYTES + end)
    assert len(read(path)[1][1]) == LINE_BYTES


@pytest.mark.parametrize(
    ("text", "value", "replaced"),
    [
        (r'"cut \ud83d"', "cut \ufffd", 1),
        (r'"\uDE00\uD83D"', "\ufffd\ufffd", 2),
        (r'"\ud83d\ude00"', "\U0001f600", 0),
        (r'{"\ud83d": ["\ud83d", {"b": "\ud83dx"}], "n": [1, null, true]}', None, 3),
        (r'"a backslash before ud83d: \\ud83d"', r"a backslash before ud83d: \ud83d", 0),
        ('"plain"', "plain", 0),
    ],
)
def test_lone_surrogates_are_replaced(text, value, replaced):
    if value is None:
        value = {"\ufffd": ["\ufffd", {"b": "\ufffdx"}], "n": [1, None, True]}
    assert loads(text) == (value, replaced)


@pytest.mark.parametrize("text", ["{", "[" * 100_000])
def test_invalid_json_is_a_value_error(text):
    with pytest.raises(ValueError, match="Expecting|nested too deeply"):
        loads(text)


@pytest.mark.parametrize(
    "further", [[], ["TV\uac00 \uc791\uc558\ub2e4,bad"], ["TV\uac00 \uc5c6\ub2e4,bad", "USB\uac00 \uc5c6\ub2e4,bad"]]
)
def test_a_word_of_two_scripts_does_not_change_the_encoding(tmp_path, further):
    texts = [
        "\ud654\uba74\uc774 \uc544\uc8fc \uc88b\ub2e4,good",
        "\ubc30\uc1a1\uc774 \ub108\ubb34 \ub2a6\uc5c8\ub2e4,bad",
        "\uac00\uaca9\uc774 \ube44\uc2f8\ub2e4,bad",
        "\ud488\uc9c8\uc774 \uc88b\uc544\uc694,good",
    ]
    path = tmp_path / "a.csv"
    path.write_bytes("\n".join(["text,label", *texts * 4, *further, ""]).encode("cp949"))
    reading = Reading()
    assert b"".join(text_blocks(path, reading)).decode().count("\uac00") == 4 + len(further)
    assert reading.encoding.name == "cp949"
