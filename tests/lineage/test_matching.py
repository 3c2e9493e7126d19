import gzip
import json
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.errors import DataError
from components.data.formats.parquets import open_table
from components.data.formats.rows import open_rows
from components.data.matching import Texts, file_holds
from components.pipeline.lineage import editing
from components.pipeline.lineage.editing import remove_records
from tests.data import public_inputs

SECRET = "Agnetha Quisling lives in Elmstreet 17"
TEXTS = Texts([SECRET, "too short"])


@pytest.mark.parametrize(
    ("value", "held"),
    [
        (SECRET, True),
        (SECRET.upper() + "!", True),
        ("<p>Agnetha <b>Quisling</b> lives in&nbsp;Elmstreet 17</p>", True),
        (f"Note: {SECRET}, she said", True),
        ("Agnetha Quisling lives in Elmstreet 170", False),
        ("Too short.", True),
        ("this is too short for a search inside", False),
    ],
)
def test_a_text_is_found_by_its_words_and_a_short_one_only_alone(value, held):
    assert TEXTS.held_by(value) is held


def test_a_text_without_spaces_is_found_inside_of_a_longer_one():
    assert Texts(["张三住在长安街十七号"]).held_by("邻居说张三住在长安街十七号已经很久了")
    assert not Texts(["张三"]).held_by("邻居说张三住在长安街")


def test_non_ascii_texts_are_found_where_json_escapes_them(tmp_path):
    texts = Texts(["Zoë Åström heißt im Ort nur die Ältere"])
    path = tmp_path / "a"
    path.write_text(json.dumps({"text": "Zoë Åström heißt im Ort nur die Ältere"}) + "\n")
    assert "\\u" in path.read_text() and file_holds(path, texts)


ROWS = ["first row", SECRET, "last row"]


def test_records_of_utf8_are_removed_and_the_others_keep_their_bytes(tmp_path):
    jsonl = [json.dumps({"text": text, "n": 1}, separators=(",", ": ")) + "\r\n" for text in ROWS]
    words = [json.dumps({"words": text.split(), "tags": []}) + "\n" for text in ROWS]
    sentences = ["".join(f"{word}\tO\n" for word in text.split()) + "\n" for text in ROWS]
    table = ["text,n\n", '"first\nrow",1\n', f'"{SECRET.replace(" lives", chr(10) + "lives")}",2\n', "last row,3\n"]
    documents = ["first document\nof two lines\n\n\n", f"{SECRET[:16]}\n{SECRET[16:]}\n\n\n", "last\fpage\n"]
    cases: dict[str, tuple[list[str], int]] = {
        "a.jsonl": (jsonl, 1),
        "words.jsonl": (words, 1),
        "a.conll": (sentences, 1),
        "a.bio": (sentences, 1),
        "a.csv": (table, 2),
        "a.tsv": ([f"{text}\tx\n" for text in ROWS], 1),
        "a.txt": (documents, 1),
        "labels": ([f"LABEL {text}\n" for text in ROWS], 1),
    }
    for name, (pieces, index) in cases.items():
        for compressed in (False, True):
            path = tmp_path / (f"{name}.gz" if compressed else name)
            opened = gzip.open if compressed else open
            with opened(path, "wb") as file:
                file.write("".join(pieces).encode())
            before = path.stat().st_ino
            assert file_holds(path, TEXTS), name
            assert remove_records(path, TEXTS) == 1, name
            with opened(path, "rb") as file:
                assert file.read() == "".join(pieces[:index] + pieces[index + 1 :]).encode(), name
            assert not file_holds(path, TEXTS) and path.stat().st_ino != before
            assert remove_records(path, TEXTS) == 0


OTHER = "all other texts stay where they are now"
LINES = f"kept\n{SECRET}\n"
QUESTIONS = [{"context": "first", "qas": [{"question": SECRET}, {"question": "other"}]}, {"context": SECRET}]
SPANS = [["a text", {"entities": []}], [SECRET, {"entities": [[0, 7, "PER"]]}]]
#: Files, the one to edit, the number of records, and what is left of the files that change; None: it is deleted.
CASES: dict[str, tuple[dict[str, str], str, int, dict[str, str | None]]] = {
    "a line of parallel files": (
        {"text": "\n".join(ROWS), "label": "one\ntwo\nthree\n", "README": "two lines\nonly\n"},
        "text", 1, {"text": "first row\nlast row", "label": "one\nthree"},
    ),
    "the only line of parallel files": (
        {"text": f"{SECRET}\n", "label": "one\n"}, "text", 1, {"text": None, "label": None}
    ),
    "a hidden file": ({".notes": LINES, "LICENSE": "some words\n"}, ".notes", 1, {".notes": "kept"}),
    "a name that is a pattern": ({"notes[1]_a.txt": LINES}, "notes[1]_a.txt", 1, {"notes[1]_a.txt": "kept"}),
    "pages of other texts": ({"pages.txt": "other\n\nend of a page\fanother page\n"}, "pages.txt", 0, {}),
    "a line of txt": ({"pos.txt": LINES, "neg.txt": f"{OTHER}\n"}, "pos.txt", 1, {"pos.txt": "kept"}),
    "no line of txt": ({"pos.txt": LINES, "neg.txt": f"{OTHER}\n"}, "neg.txt", 0, {}),
    "a text and its label": (
        {"train_text.txt": f"{SECRET}\n{OTHER}\nfine\ngood\n", "train_labels.txt": "0\n1\n1\n1\n"},
        "train_text.txt", 1, {"train_text.txt": f"{OTHER}\nfine\ngood", "train_labels.txt": "1\n1\n1"},
    ),
    "a text after its labels": (
        {"a.txt": f"__label__a __label__b {SECRET}\n__label__a {OTHER}\n"}, "a.txt", 1, {"a.txt": f"__label__a {OTHER}"}
    ),
    "a document": ({"a.txt": f"{SECRET[:16]}\n{SECRET[16:]}\nand more\n\n\n{OTHER}\n"}, "a.txt", 1, {"a.txt": OTHER}),
    "the innermost objects of json": (
        {"a.json": json.dumps({"data": [{"paragraphs": QUESTIONS}]}, indent=1)}, "a.json", 2,
        {"a.json": json.dumps({"data": [{"paragraphs": [{"context": "first", "qas": [{"question": "other"}]}]}]})},
    ),
    # A label or spans without their text would be no row.
    "a row that is a list": (
        {"a.json": json.dumps({"train": SPANS, "tags": [{"patterns": ["hello there", SECRET]}]})}, "a.json", 2,
        {"a.json": json.dumps({"train": SPANS[:1], "tags": [{"patterns": ["hello there"]}]})},
    ),
    "the only record": ({"a.jsonl": json.dumps({"text": SECRET})}, "a.jsonl", 1, {"a.jsonl": None}),
}  # fmt: skip


@pytest.mark.parametrize(("files", "edited", "removed", "changed"), CASES.values(), ids=CASES)
def test_what_is_a_record_of_a_file(files, edited, removed, changed, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    assert remove_records(tmp_path / edited, TEXTS) == removed
    expected = {name: content.strip() for name, content in files.items()} | changed
    actual = {path.name: path.read_text().strip() for path in tmp_path.iterdir()}
    assert actual == {name: content for name, content in expected.items() if content is not None}
    assert remove_records(tmp_path / edited, TEXTS) == 0


#: Files in which texts are found but that are not edited: each holds the text until it is removed by hand.
NOT_EDITED = {"unicode.csv", "old_mac.csv", "columns.json", "old_german.csv"}


def rows_in(path):
    return [row for _, row in open_rows(path, rejected=lambda error, row: None).numbered]


SHORT = {
    "a.csv": ('text,n\n"on, lamp",1\nlamp on you go,2\n', ["lamp on you go"]),
    "trec": ("a:b on lamp\na:c on\nd:e on\n" * 9, ["on"] * 18),
}


@pytest.mark.parametrize("name", SHORT)
def test_a_short_text_is_found_as_a_cell(tmp_path, name):
    content, left = SHORT[name]
    path = public_inputs.put(tmp_path / name, content)
    short = Texts(["on lamp"])
    assert file_holds(path, short) and remove_records(path, short)
    assert not file_holds(path, short)
    assert [row["text"] for row in rows_in(path)] == left


@pytest.mark.parametrize("case", public_inputs.CASES, ids=lambda case: case.name)
def test_a_row_of_any_readable_file_is_found_and_removed(case, tmp_path):
    path = public_inputs.put(tmp_path / case.name, case.content)
    _, gone, *_ = rows = rows_in(path)
    texts = Texts([max((value for value in gone.values() if isinstance(value, str)), key=len)])
    assert file_holds(path, texts)
    if case.name in NOT_EDITED or case.name.endswith((".xlsx", ".ods", ".zip")):
        before = path.read_bytes()
        with suppress(DataError):
            assert remove_records(path, texts) == 0
        assert path.read_bytes() == before and file_holds(path, texts)
        return
    assert remove_records(path, texts) == 1 and not file_holds(path, texts)
    # Of a file in two encodings, what is left may be read in the other one.
    assert rows_in(path) == [rows[0], *rows[2:]] or case.name == "joined_encodings.csv"


def test_a_page_that_begins_inside_of_a_line_is_refused(tmp_path):
    path = tmp_path / "pages.txt"
    path.write_text(f"other\n\nend of a page\f{SECRET}\n")
    with pytest.raises(DataError, match=r"pages\.txt: a page begins inside of a line; remove the text by hand"):
        remove_records(path, TEXTS)


def test_of_parallel_files_the_one_that_holds_the_text_is_last(tmp_path, monkeypatch):
    """A run that was killed between them finds it again."""
    (tmp_path / "label").write_text("one\nlast\n")
    (tmp_path / "text").write_text(f"{SECRET}\nlast\n")
    written: list[str] = []
    rewrite = editing._rewrite
    monkeypatch.setattr(editing, "_rewrite", lambda path, edit: written.append(path.name) or rewrite(path, edit))
    assert (remove_records(tmp_path / "label", TEXTS), written) == (1, ["label", "text"])


def test_rows_of_parquet_arrow_and_zstd_files_are_removed(tmp_path):
    table = pa.table({"text": ROWS, "words": [["a"], ["b"], SECRET.split()], "n": [1, 2, 3]})
    pq.write_table(table, tmp_path / "a.parquet", compression="zstd")
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    for path in (tmp_path / "a.parquet", tmp_path / "a.arrow"):
        assert file_holds(path, TEXTS) and remove_records(path, TEXTS) == 2
        assert not file_holds(path, TEXTS) and remove_records(path, TEXTS) == 0
        with open_table(path) as opened:
            rows = [row for batch in opened.batches for row in batch.to_pylist()]
        assert rows == [{"text": "first row", "words": ["a"], "n": 1}]
    path = tmp_path / "a.txt.zst"
    with pa.OSFile(str(path), "wb") as raw, pa.CompressedOutputStream(raw, "zstd") as stream:
        stream.write(f"{SECRET}\n\n\nother\n".encode())
    assert file_holds(path, TEXTS) and remove_records(path, TEXTS) == 1
    with pa.OSFile(str(path)) as raw, pa.CompressedInputStream(raw, "zstd") as stream:
        assert b"other" in stream.read()
