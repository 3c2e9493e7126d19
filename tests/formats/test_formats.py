"""Every format as rows: values of columns, complete rows, and refusals. Corpora: tests/ingestion/test_readers.py."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from components.core.errors import DataError
from components.data.formats.delimited import Dialect, different_names, strict_rows
from components.data.formats.kinds import form_of
from components.data.formats.lines import Reading
from components.data.formats.rows import open_rows
from components.data.formats.tables import Layout
from tests.formats.reading import columns, numbered


def lay(path: Path, content: Any) -> Path:
    """A file; for a mapping a folder of files."""
    if isinstance(content, dict):
        path.mkdir()
        for name, text in content.items():
            lay(path / name, text)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def table(path: Path, **values: Any) -> Path:
    pq.write_table(pa.table(values), path)
    return path


SEMICOLONS, SPREAD = 'x;"y\nz;"w"\n', 'a\tb\n"x\ty"\tz\n'
DOCUMENT = {"train": [["book a flight", "travel"]], "more": {"deep": [{"text": "hi", "n": 3}]}}
LONG = "x" * 9_000_000
MISSING = ['{"text": "a"}', '{"text": "b", "label": "x"}', '{"label": "y"}']
NULLS = [(1, ("a", None)), (2, ("b", "x")), (3, (None, "y"))]
TREC = "0 How far is it ?\n\n4\tWhat café \n5\n".encode("latin-1")
PARALLEL = {"words": "add this\nplay\n", "tags": "O B-x\nO \n", "label": "A\nB"}
EU = "-DOCSTART- -X- -X- O\n\nEU NNP  I-NP B-ORG\nrejects VBZ I-VP O\n\n\n# NN I-NP O\n"
#: A `#` with a tab is a word (WNUT17), one without is a comment; a word may hold a space.
HASHES = "# id = 7\n#\tO\nNew York\tB-x\n\t\n#tag\tO\n# not = this\tO\n"
CONLLU = """\
# newdoc id = d1
# sent_id = s1
# text = Don't go
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVBP\t_\t3\taux\t3:aux\tSpaceAfter=No
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t3:advmod\t_
3\tgo\tgo\tVERB\tVB\t_\t0\troot\t0:root\t_
3.1\tgo\tgo\tVERB\t_\t_\t_\t_\t0:root\t_

# sent_id = s2
1\t#\t#\tSYM\t_\t_\t0\troot\t_\t_
"""
DO, NOT, GO = (["Do", "n't", "go"], ["AUX", "PART", "VERB"], ["aux", "advmod", "root"])


def whole(*documents: Any) -> list[tuple[Any, ...]]:
    return [("json", json.dumps(each), names, {"nested": True}, expected) for each, names, expected in documents]


@pytest.mark.parametrize(
    ("form", "content", "names", "layout", "expected"),
    [
        ("csv", SEMICOLONS, "1", {"header": False, "delimiter": ";", "quotes": False}, [(1, ('"y',)), (2, ('"w"',))]),
        ("tsv", SPREAD, "b a", {"quotes": True}, [(2, ("z", "x\ty"))]),
        ("csv", "text\ncafé\n".encode("latin-1"), "text", {"encoding": "iso8859-1"}, [(2, ("café",))]),
        ("csv", "text\nสวัสดี\n".encode("cp874"), "text", {"encoding": "cp874"}, [(2, ("สวัสดี",))]),
        # A line of a JSON document may be longer than a line of text.
        ("json", json.dumps([[LONG]]), "0", {}, [(1, (LONG,))]),
        # What is not named is guessed.
        ("csv", SEMICOLONS, "1", {"header": False, "delimiter": ";"}, [(1, ('"y',)), (2, ('"w"',))]),
        ("tsv", SPREAD, "b a", {}, [(2, ("z", "x\ty"))]),
        ("json", b'[["x"],\n["caf\xe9"]]', "0", {}, [(1, ("x",)), (2, ("café",))]),
        ("json", json.dumps(DOCUMENT, indent=1), "1 0", {"member": "train"}, [(1, ("travel", "book a flight"))]),
        ("json", json.dumps(DOCUMENT), "text n", {"member": "more.deep"}, [(1, ("hi", "3"))]),
        ("json", json.dumps(DOCUMENT), "text n", {"member": "more.deep", "nested": True}, [(1, ("hi", 3))]),
        # A JSON object holds columns, or rows by id.
        *whole(
            ({"text": {"0": "a", "1": "b"}, "n": {"0": 1, "1": 2}}, "text n", [(1, ("a", 1)), (2, ("b", 2))]),
            ({str(n): {"text": "a", "n": n} for n in range(3)}, "n", [(n + 1, (n,)) for n in range(3)]),
            ({f"t{n}": {"text": "ab"[n % 2]} for n in range(2)}, "id text", [(1, ("t0", "a")), (2, ("t1", "b"))]),
            ({f"t{n}": {"id": n, "text": "a"} for n in range(3)}, "id", [(1, (0,)), (2, (1,)), (3, (2,))]),
        ),
        # A member that other objects have may be missing.
        ("jsonl", "\n".join(MISSING), "text label", {}, NULLS),
        ("json", f"[{', '.join(MISSING)}]", "text label", {}, NULLS),
        (
            "label-first",
            TREC,
            "text label",
            {"encoding": "iso8859-1"},
            [(1, ("How far is it ?", "0")), (3, ("What café", "4")), (4, ("", "5"))],
        ),
        ("parallel", PARALLEL, "words tags", {}, [(1, ("add this", "O B-x")), (2, ("play", "O "))]),
        ("parallel", PARALLEL, "words label", {}, [(1, ("add this", "A")), (2, ("play", "B"))]),
        # Only trailing empty lines are no rows.
        (
            "parallel",
            {"a": "x\n\ny\n\n\n", "b": "1\n\n2\n\n\n"},
            "a b",
            {},
            [(1, ("x", "1")), (2, ("", "")), (3, ("y", "2"))],
        ),
        ("conll", EU, "0 -1", {}, [(3, (["EU", "rejects"], ["B-ORG", "O"])), (7, (["#"], ["O"]))]),
        ("conll", EU, "0 1", {}, [(3, (["EU", "rejects"], ["NNP", "VBZ"])), (7, (["#"], ["NN"]))]),
        ("conll", EU, "-3 -2", {}, [(3, (["NNP", "VBZ"], ["I-NP", "I-VP"])), (7, (["NN"], ["I-NP"]))]),
        (
            "conll",
            HASHES,
            "0 -1 lines id",
            {},
            [
                (1, (["#", "New York"], ["O", "B-x"], [2, 3], "7")),
                (5, (["#tag", "# not = this"], ["O", "O"], [5, 6], None)),
            ],
        ),
        (
            "conllu",
            CONLLU,
            "form upos deprel lines sent_id",
            {},
            [(1, (DO, NOT, GO, [5, 6, 7], "s1")), (10, (["#"], ["SYM"], ["root"], [11], "s2"))],
        ),
    ],
)
def test_values_of_columns(tmp_path, form, content, names, layout, expected):
    layout = {"nested": form.startswith("conll")} | layout
    assert numbered(form, lay(tmp_path / "a", content), *names.split(), **layout) == expected


def test_a_json_document_may_be_packed(tmp_path):
    path = lay(tmp_path / "a.json.gz", gzip.compress(b'[{"text": "x"}]'))
    assert columns("json", path, "text") == [("x",)]


JSON = {
    '{"train": []}#trian': r"no member 'trian'; did you mean 'train'\?; name it in params\.yaml as FILE#MEMBER",
    '{"a": {"b": 1}}#a.b': r"a#a\.b: is no list of rows; save it as jsonl",
    '{"a": [{}], "b": [{}]}#': r"a: is no list of rows; name one of its members \(a, b\) as FILE#MEMBER",
    '[["x"], 3]#': r"a, row 2: is a int, neither an object nor a list of values",
    '[["x"], []]#': r"a, row 2: no column '0'; known: none",
    '[["x"],\n [[]]]#': r"a, row 2, column '0': holds a list where text is expected",
    '[["x"],\n ["y"]#': r"a: not valid JSON \(.*line 2 column 7.*\)",
}
LABL = r"no column 'labl'; did you mean 'label'\?; name the column in params.yaml"
UNEQUAL = {"a": "x\ny\nz\n", "b": "1\n2\n"}


@pytest.mark.parametrize(
    ("form", "content", "names", "layout", "message"),
    [
        (
            "csv",
            "0,1\n" + "a,b,c\n" * 3 + "d,e\n" * 9,
            "1",
            {"header": True, "delimiter": ","},
            r"line 2: 3 field\(s\) instead of 2; so are 3 of 12 rows, read with delimiter comma, fields quoted .*--del",
        ),
        (
            "csv",
            b"1\n\xdb\n",
            "1",
            {"encoding": "cp874"},
            r"a, line 2: byte 0xdb is not cp874; name the encoding \(encoding, --encoding\)",
        ),
        *(
            ("csv", f"{above}text;label\ngood;pos\nbad;neg\n", "txt", {}, rf"a, line {line}: no column 'txt'")
            for above, line in (("sep=;\n", 2), ("\n\n", 3))
        ),
        ("csv", "text,label,text\na,b,c\n", "text label", {}, r"a: has two columns 'text'; rename one of them$"),
        ("tsv", "text\tlabel\ttext\na\tb\tc\n", "text label", {}, r"a: has two columns 'text'; rename one of them$"),
        *(("json", text.rpartition("#")[0], "0", {"member": text.rpartition("#")[2]}, JSON[text]) for text in JSON),
        ("jsonl", "\n".join(MISSING), "text labl", {}, LABL),
        ("json", f"[{', '.join(MISSING)}]", "text labl", {}, LABL),
        ("label-first", TREC, "txt", {}, r"a: no column 'txt'; did you mean 'text'\?; name the column"),
        (
            "parallel",
            UNEQUAL,
            "a b",
            {},
            r"a/b: ends after line 2, but a continues; parallel files need the same number of lines",
        ),
        ("parallel", UNEQUAL, "a c", {}, "a: no column 'c'; known: a, b; name the column in params.yaml"),
        ("parallel", "x\n", "a b", {}, r"a: is not a folder; expected one with the files a, b, or name the format of"),
        (
            "conll",
            "a O\n\nb c O",
            "0 1",
            {},
            "a, line 3: 3 columns, the first line has 2; set delimiter if words contain white space",
        ),
        ("conll", "a", "0 1", {}, "a, line 1: no column 1; there are 1, numbered from 0"),
        ("conllu", "1\ta\ta\tX", "form", {}, "a, line 1: 4 columns, CoNLL-U has 10, separated by tabs"),
        (
            "conllu",
            "one" + "\t_" * 9,
            "form",
            {},
            r"a, line 1: id 'one' is not a number, a range \(1-2\) or an empty node",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path, form, content, names, layout, message):
    layout = {"nested": form.startswith("conll")} | layout
    with pytest.raises(DataError, match=message):
        columns(form, lay(tmp_path / "a", content), *names.split(), **layout)


def test_parquet_keeps_types(tmp_path):
    path = table(tmp_path / "a.parquet", id=[1, 2], words=[["a", "b"], []])
    rows = open_rows(path)
    assert rows.names == ["id", "words"]
    assert [where.removeprefix(f"{path}, ") for where, _ in rows.rows] == ["row 1", "row 2"]
    assert columns("parquet", path, "words", "id", nested=True) == [(["a", "b"], 1), ([], 2)]
    with pytest.raises(DataError, match=r"column 'words' is list<.*>, not text"):
        columns("parquet", path, "words")
    pq.write_table(pa.table([["a"], ["b"], ["c"]], names=["text", "label", "text"]), path)
    with pytest.raises(DataError, match=r"a\.parquet: has two columns 'text'; rename one of them$"):
        columns("parquet", path, "text", "label")
    assert columns("parquet", path, "label") == [("b",)]
    with pytest.raises(DataError, match=r"none\.parquet: does not exist$"):
        open_rows(tmp_path / "none.parquet")


@pytest.mark.parametrize("form", ["jsonl", "json"])
def test_lone_surrogates_in_json_are_replaced_and_counted(tmp_path, form):
    row, reading = r'{"text": "cut \ud83d", "labels": ["\ud83d"]}', Reading()
    path = lay(tmp_path / f"a.{form}", row + "\n" if form == "jsonl" else f"[{row}]")
    assert columns(form, path, "text", "labels", reading=reading, nested=True) == [("cut \ufffd", ["\ufffd"])]
    assert reading.bad_bytes == 2


def test_invalid_utf8_in_parquet_is_replaced_and_counted(tmp_path):
    values = pa.array([b"fine", b"caf\xe9", None])
    text = pa.StringArray.from_buffers(3, *values.buffers()[1:], values.buffers()[0])
    path, reading = table(tmp_path / "a.parquet", text=text, list=pa.array([["x"]] * 3)), Reading()
    assert columns("parquet", path, "text", reading=reading) == [("fine",), ("caf\ufffd",), (None,)]
    assert (reading.bad_bytes, reading.bad_lines) == (1, 1)
    with pytest.raises(DataError, match=rf"^{path}: column 'text' has text that is not valid UTF-8"):
        columns("parquet", path, "text", nested=True)


@pytest.mark.parametrize(
    ("name", "content", "names", "rows"),
    [
        # Fields of csv keep their line breaks, quotes are ordinary characters in tsv, rows of jsonl may differ.
        (
            "a.csv",
            b'\xef\xbb\xbfid,text\r\n1,"a\r\nb"\r\n\r\n2,c\r\n',
            "id text",
            {"line 2": {"id": "1", "text": "a\r\nb"}, "line 5": {"id": "2", "text": "c"}},
        ),
        ("a.tsv", 'id\ttext\n1\t"a\n', "id text", {"line 2": {"id": "1", "text": '"a'}}),
        (
            "a.jsonl",
            '{"id": 1, "list": [1]}\n\n{"text": "x"}\n',
            "id list",
            {"line 1": {"id": 1, "list": [1]}, "line 3": {"text": "x"}},
        ),
    ],
)
def test_rows_of_text_files(tmp_path, name, content, names, rows):
    table = open_rows(lay(tmp_path / name, content))
    assert table.names == names.split()
    assert {where.removeprefix(f"{tmp_path / name}, "): row for where, row in table.rows} == rows


def test_private_characters_and_lone_returns_of_csv_are_kept(tmp_path):
    texts = ["a\ue00db", "c\rd", "\ue00d0", "\ue00d1\r\ue00d", "\ue00d\r", "plain"]
    lines = ["id\ue00d\r,text\n", *(f'{n},"{text}"\n' for n, text in enumerate(texts)), "bad\ue00d\r\n"]
    rejected: list[Any] = []
    table = open_rows(lay(tmp_path / "a.csv", "".join(lines)), rejected=lambda error, row: rejected.append(row))
    assert table.names == ["id\ue00d\r", "text"]
    assert [row["text"] for _, row in table.rows] == texts and rejected == ["bad\ue00d\r"]


def test_names_of_columns_differ_and_are_not_too_many(tmp_path):
    header = ["a", "a (2)", "a", "", "a", "column 4"]
    assert different_names(header) == ["a", "a (2)", "a (3)", "column 4", "a (4)", "column 4 (2)"]
    assert different_names(["a"] * 10_000)[-1] == "a (10000)"
    path = lay(tmp_path / "a.csv", "sep=;\n" + "a;" * 10_000 + "a\n" + "1;" * 10_000 + "1\n")
    with pytest.raises(
        DataError, match=r"a\.csv, line 2: 10,001 columns, the maximum is 10,000, .* name the delimiter"
    ):
        open_rows(path)


def test_a_line_of_csv_has_a_limit(tmp_path):
    path = lay(tmp_path / "a.csv", "text,label\ngood,1\n" + "x" * 8_000_001 + ",2\n")
    with pytest.raises(DataError, match=r"a\.csv, line 3: longer than 8 MB; write one document"):
        list(open_rows(path).rows)


def test_an_escape_stands_in_quoted_fields_before_quotes_and_itself_only():
    text = '5\\" pipe,"a \\"b\\" \\\\","",c\\",C:\\\\new\n"two\n'
    dialect = Dialect(escape="\\")
    # The last field goes on in the next part.
    lines = dialect.lines([text, 'l\\"i\\n",x\\"\n'])
    assert [row for _, row, _ in strict_rows(lines, dialect)] == [
        ['5\\" pipe', 'a "b" \\', "", 'c\\"', "C:\\\\new"],
        ['two\nl"i\\n', 'x\\"'],
    ]


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("train.csv", "text,label\na,0\nb,7\n", "line 3"),
        ("train.jsonl", '{"text": "a", "label": 0}\n\n{"text": "b", "label": 7}\n', "line 3"),
        ("train.json", '[{"text": "a", "label": 0}, {"text": "b", "label": 7}]', "row 2"),
    ],
)
def test_places_in_files_of_a_repository(tmp_path, name, content, place):
    label = "  - name: label\n    dtype:\n      class_label:\n        names:\n          '0': neg\n          '1': pos\n"
    lay(tmp_path / "README.md", f"---\ndataset_info:\n  features:\n{label}---\n")
    with pytest.raises(DataError, match=rf"{name}, {place}: 'label' is '?7'?, and the data set has 2 classes"):
        columns("datasets", lay(tmp_path / name, content), "text", "label")


def test_rows_of_jsonl_that_lack_a_column(tmp_path):
    """They are read in the encoding of the file, and beyond bad lines."""
    path = lay(tmp_path / "a.jsonl", '{"text": "é"}\n{bad\n{"text": "b", "größe": "1"}\n'.encode("cp1252"))
    rejected: list[Any] = []
    table = open_rows(path, layout=Layout(encoding="cp1252"), rejected=lambda error, row: rejected.append(row))
    assert list(table.values(["text", "größe"], nested=False)) == [(1, ("é", None)), (3, ("b", "1"))]
    assert rejected == ["{bad"]


CLASS = {"names": ["O", "B-per"], "_type": "ClassLabel"}


@pytest.mark.parametrize(
    ("values", "feature", "expected"),
    [
        ([0, 1, -1, None, 2, -7], CLASS, ["O", "B-per", None, None, "2", None]),
        ([True, False], CLASS, ["B-per", "O"]),
        ([[[0, 1], [1]], None], {"feature": CLASS, "_type": "Sequence"}, [[["O", "B-per"], ["B-per"]], None]),
        ([[0, 1], [], None], {"feature": CLASS, "_type": "Sequence"}, [["O", "B-per"], [], None]),
        ([[1]], {"feature": CLASS, "_type": "List"}, [["B-per"]]),
        ([1, 0], {"dtype": "int64", "_type": "Value"}, [1, 0]),
    ],
)
def test_numbers_of_classes_are_read_as_names(tmp_path, values, feature, expected):
    """The library `datasets` writes them into the metadata of a schema; metadata of another form are ignored."""
    info = json.dumps({"info": {"features": {"text": {"dtype": "string", "_type": "Value"}, "label": feature}}})
    data = pa.table({"text": ["x"] * len(values), "label": values})
    path = tmp_path / "a.parquet"
    pq.write_table(data.replace_schema_metadata({"huggingface": info}), path)
    rows = open_rows(path)
    assert [row["label"] for _, row in rows.rows] == expected
    assert rows.schema is not None and pa.array(expected, rows.schema.field("label").type).to_pylist() == expected
    assert [label for label, _ in columns("parquet", path, "label", "text", nested=True)] == expected
    pq.write_table(data.replace_schema_metadata({"huggingface": "no JSON"}), path)
    assert [row["label"] for _, row in open_rows(path).rows] == values


def test_numbers_of_classes_are_whole(tmp_path):
    info, path = json.dumps({"info": {"features": {"label": CLASS}}}), tmp_path / "a.parquet"
    pq.write_table(pa.table({"label": [1.0]}).replace_schema_metadata({"huggingface": info}), path)
    with pytest.raises(DataError, match=r"a\.parquet: .*float"):
        list(open_rows(path).rows)


def test_a_stream_of_arrow_is_named(tmp_path):
    data = pa.table({"text": ["a"]})
    with pa.ipc.new_stream(tmp_path / "data.arrow", data.schema) as stream:
        stream.write_table(data)
    with pytest.raises(DataError, match=r"data.arrow: is an Arrow file; save it as parquet"):
        form_of(tmp_path / "data.arrow")
    lay(tmp_path / "dataset_info.json", "{}")
    with pytest.raises(DataError, match="was written by `save_to_disk`; write each split with `to_parquet`"):
        form_of(tmp_path)
