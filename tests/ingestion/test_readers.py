from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.errors import DataError
from components.data.formats.lines import Reading
from components.data.ingestion.readers import raw_files, read_documents
from components.settings.data import CorpusSource


def texts(path: Path, **source: Any) -> list[tuple[int, str, str | None]]:
    read = read_documents(path, CorpusSource(path=str(path), **source), Reading())
    return [(number, text, row_id) for number, (text,), row_id in read]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_documents_of_a_text_file(tmp_path):
    assert texts(write(tmp_path / "a.txt", "one\ntwo\n\nthree\n")) == [(1, "one\ntwo\n\nthree", None)]
    apart = texts(write(tmp_path / "b.txt", "one\n\n\ntwo\n\n\n\n\nthree\fand four\n"))
    assert [text.strip() for _, text, _ in apart] == ["one", "two", "three", "and four"]
    assert [line for line, _, _ in apart] == [1, 4, 9, 9]


def test_a_document_begins_at_a_wikitext_title(tmp_path):
    text = " \n = First = \n \n Some text . \n \n \n = = Section = = \n More . \n \n = Second = \n \n Other . \n"
    first, second = (text for _, text, _ in texts(write(tmp_path / "a.txt", text)))
    assert " ".join(first.split()) == "= First = Some text . = = Section = = More ."
    assert " ".join(second.split()) == "= Second = Other ."


def test_a_long_text_file_is_split_at_empty_lines(tmp_path):
    paragraph = "word " * 2_000
    text = "\n\n".join([paragraph] * 25)
    sizes = [len(text) for _, text, _ in texts(write(tmp_path / "a.txt", text))]
    assert len(sizes) == 3
    assert max(sizes) < 120_000
    unbroken = "\n".join(["word " * 2_000] * 45)
    assert len(texts(write(tmp_path / "b.txt", unbroken))) == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "x"', r"line 2: not valid JSON \(.*\); every line must be one object"),
        ('["x"]', "line 2: is no JSON object with named values"),
        ('{"Text": "x"}', "line 2: no column 'text'; did you mean 'Text'\\?; name the column in params.yaml"),
        ('{"a": 1, "zz": 2}', "line 2: no column 'text'; known: a, zz; name the column"),
        ('{"text": ["x"]}', "line 2, column 'text': holds a list where text is expected"),
    ],
)
def test_errors_name_the_json_line(tmp_path, line, message):
    path = write(tmp_path / "a.jsonl", f'{{"text": "fine"}}\n{line}\n')
    with pytest.raises(DataError, match=rf"a\.jsonl, {message}"):
        texts(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "id,txt\n1,x\n",
            r"line 1: no column 'text'; did you mean 'txt'\?; .*; if it has no header line, set header: false",
        ),
        ("text,n\nx,1\ny\n", r"line 3: 1 field\(s\) instead of 2; so are 1 of 2 rows, read with delimiter comma"),
        ('text,n\n"x, w",1\n"y,2\n"z, v",3\n', "line 3: .*; so are 1 of 3 rows, read with delimiter comma, fields quo"),
    ],
)
def test_errors_name_the_csv_line(tmp_path, text, message):
    with pytest.raises(DataError, match=rf"a\.csv, {message}"):
        texts(write(tmp_path / "a.csv", text))


def test_after_an_unclosed_quote_reading_goes_on_in_the_next_line(tmp_path):
    path = write(tmp_path / "a.csv", 'id,text\n0,"a, b"\n1,"open\n' + '2,"some more, text"\n' * 300_000)
    reading = Reading()
    read = list(read_documents(path, CorpusSource(path="x"), reading))
    assert len(read) == 300_001 and {text for _, (text,), _ in read} == {"a, b", "some more, text"}
    assert (reading.skipped["rows_malformed"], reading.first_skipped["rows_malformed"]) == (1, [3])


def test_damaged_parquet_and_columns_that_are_not_text(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["some text"] * 1000, "list": [[1]] * 1000}), path)
    with pytest.raises(DataError, match=r"a\.parquet: column 'list' is list<.*>, not text"):
        texts(path, text="list")
    whole = path.read_bytes()
    pq.write_table(pa.table({"text": ["x", "y" * 10_000_000, "z"]}), path)
    with pytest.raises(DataError, match=r"a\.parquet, row 2: longer than 8 MB; write one document"):
        texts(path)
    path.write_bytes(whole[:-100])
    with pytest.raises(DataError, match=r"a\.parquet: damaged or truncated Parquet file \(.*\); copy it again"):
        texts(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"a\.parquet: damaged or truncated"):
        texts(path)


def test_raw_files_are_sorted_and_other_files_listed(tmp_path):
    for name in ("b.txt", "a/z.jsonl.zst", "a/b.CSV.GZ", "README.md", ".hidden.txt", ".dvc/x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    actual, others = raw_files(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in actual] == ["a/b.CSV.GZ", "a/z.jsonl.zst", "b.txt"]
    assert [path.name for path in others] == ["README.md"]
    assert raw_files(tmp_path / "b.txt") == ([tmp_path / "b.txt"], [])


def test_missing_and_unreadable_sources(tmp_path):
    with pytest.raises(DataError, match=r"none: does not exist; put text there"):
        raw_files(tmp_path / "none")
    with pytest.raises(DataError, match=r"has no \.txt, \.csv, .* file \(plain, \.gz or \.zst\)$"):
        raw_files(tmp_path)
    for name in ("a.docx", "b.parquet.gz"):
        (tmp_path / name).write_text("x")
    with pytest.raises(DataError, match=r"has no .*; a\.docx and 1 other\(s\) have an unknown format"):
        raw_files(tmp_path)
    with pytest.raises(DataError, match=r"a\.docx: no reader for this format; known: \.txt, \.csv"):
        raw_files(tmp_path / "a.docx")
