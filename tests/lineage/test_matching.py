import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.errors import DataError
from components.data.formats.parquets import open_table
from components.data.matching import Texts, file_holds
from components.pipeline.lineage import editing
from components.pipeline.lineage.editing import remove_records

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


def test_records_are_removed_and_the_others_keep_their_bytes(tmp_path):
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


def test_a_line_of_parallel_files_is_removed_from_all_of_them(tmp_path):
    (tmp_path / "text").write_text("".join(f"{text}\n" for text in ROWS))
    (tmp_path / "label").write_text("one\ntwo\nthree\n")
    (tmp_path / "README").write_text("two lines\nonly\n")
    assert remove_records(tmp_path / "text", TEXTS) == 1
    assert [(tmp_path / name).read_text() for name in ("text", "label", "README")] == [
        "first row\nlast row\n", "one\nthree\n", "two lines\nonly\n"]  # fmt: skip


def test_a_hidden_file_and_a_name_that_is_a_pattern(tmp_path):
    (tmp_path / "LICENSE").write_text("some words\n")
    for name in (".notes", "notes[1]_a.txt"):
        (tmp_path / name).write_text(f"kept\n{SECRET}\n")
        assert remove_records(tmp_path / name, TEXTS) == 1
        assert (tmp_path / name).read_text() == "kept\n"


def test_a_page_that_begins_inside_of_a_line_is_refused(tmp_path):
    path = tmp_path / "pages.txt"
    path.write_text(f"other\n\nend of a page\f{SECRET}\n")
    with pytest.raises(DataError, match=r"pages\.txt: a page begins inside of a line; remove the text by hand"):
        remove_records(path, TEXTS)
    path.write_text("other\n\nend of a page\fanother page\n")
    assert remove_records(path, TEXTS) == 0


def test_lines_of_txt_files(tmp_path):
    held, other = "please never call me again at night", "all other texts stay where they are now"
    texts = Texts([held])
    (tmp_path / "pos.txt").write_text(f"{other}\n{held}\nfine\n")
    (tmp_path / "neg.txt").write_text(f"{other}\n")
    assert [remove_records(tmp_path / f"{name}.txt", texts) for name in ("pos", "neg")] == [1, 0]
    assert (tmp_path / "pos.txt").read_text() == f"{other}\nfine\n"
    (tmp_path / "train_text.txt").write_text(f"{held}\n{other}\nfine\ngood\n")
    (tmp_path / "train_labels.txt").write_text("0\n1\n1\n1\n")
    assert remove_records(tmp_path / "train_text.txt", texts) == 1
    assert (tmp_path / "train_labels.txt").read_text() == "1\n1\n1\n"
    (tmp_path / "several.txt").write_text(f"__label__a __label__b {held}\n__label__a {other}\n")
    assert remove_records(tmp_path / "several.txt", texts) == 1
    (tmp_path / "document.txt").write_text(f"{held[:20]}\n{held[20:]}\nand more\n\n\n{other}\n")
    assert remove_records(tmp_path / "document.txt", texts) == 1
    assert (tmp_path / "document.txt").read_text().strip() == other


def test_parallel_files_of_a_text_only(tmp_path, monkeypatch):
    for name in ("label", "text"):
        (tmp_path / name).write_text(f"{SECRET if name == 'text' else 'one'}\nlast\n")
    written: list[str] = []
    rewrite = editing._rewrite
    monkeypatch.setattr(editing, "_rewrite", lambda path, edit: written.append(path.name) or rewrite(path, edit))
    assert remove_records(tmp_path / "label", TEXTS) == 1
    assert written == ["label", "text"], "the file that holds the text is last: a killed run finds it again"
    for name in ("label", "text"):
        (tmp_path / name).write_text(f"{SECRET if name == 'text' else 'one'}\n")
    assert remove_records(tmp_path / "text", TEXTS) == 1 and not (tmp_path / "label").exists()
    assert remove_records(tmp_path / "label", TEXTS) == 0


def test_the_innermost_object_of_a_json_document_is_removed(tmp_path):
    path = tmp_path / "squad.json"
    paragraphs = [{"context": "first", "qas": [{"question": SECRET}, {"question": "other"}]}, {"context": SECRET}]
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}, indent=1))
    assert file_holds(path, TEXTS) and remove_records(path, TEXTS) == 2
    kept = [{"context": "first", "qas": [{"question": "other"}]}]
    assert json.loads(path.read_text()) == {"data": [{"title": "t", "paragraphs": kept}]}


def test_rows_of_parquet_and_zstd_files_are_removed(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": ROWS, "words": [["a"], ["b"], SECRET.split()], "n": [1, 2, 3]})
    pq.write_table(table, path, compression="zstd")
    assert file_holds(path, TEXTS) and remove_records(path, TEXTS) == 2
    assert pq.read_table(path).to_pydict() == {"text": ["first row"], "words": [["a"]], "n": [1]}
    with pa.OSFile(str(tmp_path / "a.txt.zst"), "wb") as raw, pa.CompressedOutputStream(raw, "zstd") as stream:
        stream.write(f"{SECRET}\n\n\nother\n".encode())
    assert file_holds(tmp_path / "a.txt.zst", TEXTS) and remove_records(tmp_path / "a.txt.zst", TEXTS) == 1
    with pa.OSFile(str(tmp_path / "a.txt.zst")) as raw, pa.CompressedInputStream(raw, "zstd") as stream:
        assert b"other" in stream.read()


def test_texts_of_saved_data_sets_are_removed(tmp_path):
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file:
        table = pa.table({"text": [SECRET, "kept words"], "label": [0, 1]})
        with pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    path = tmp_path / "a.arrow"
    assert file_holds(path, TEXTS) and remove_records(path, TEXTS) == 1
    assert not file_holds(path, TEXTS) and remove_records(path, TEXTS) == 0
    with open_table(path) as table:
        assert [row["text"] for batch in table.batches for row in batch.to_pylist()] == ["kept words"]


def test_a_file_without_other_records_is_deleted(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": SECRET}))
    assert remove_records(path, TEXTS) == 1 and not path.exists()


def test_a_row_that_is_a_list_is_removed_whole(tmp_path):
    """A label or spans without their text would be no row."""
    path = tmp_path / "a.json"
    rows = [["a text", {"entities": []}], [SECRET, {"entities": [[0, 7, "PER"]]}]]
    path.write_text(json.dumps({"train": rows, "intents": [{"tag": "x", "patterns": ["hello there", SECRET]}]}))
    assert remove_records(path, TEXTS) == 2
    assert json.loads(path.read_text()) == {"train": rows[:1], "intents": [{"tag": "x", "patterns": ["hello there"]}]}
