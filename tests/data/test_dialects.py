"""Made-up dialects are read exactly: delimiter, quotes, encoding, line ends and header."""

import csv
import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.data.formats.delimited import Dialect, detect_dialect
from components.data.formats.rows import open_rows
from components.data.formats.tables import Layout

WORDS = [
    "the",
    "room",
    "was",
    "clean",
    "and",
    "quiet",
    "but",
    "breakfast",
    "cold",
    "staff",
    "friendly",
    "we",
    "liked",
    "it",
    "very",
    "much",
    "never",
    "again",
]


def written(rows: list[list[str]], dialect: Dialect, end: str) -> str:
    out = io.StringIO()
    writer = csv.writer(
        out, delimiter=dialect.delimiter, quotechar=dialect.quote, doublequote=not dialect.escape, lineterminator=end
    )
    if not dialect.escape:
        writer.writerows(rows)
        return out.getvalue()

    def cell(text: str) -> str:
        if not set(text) & {dialect.delimiter, dialect.quote, "\n", "\r", dialect.escape}:
            return text
        text = text.replace(dialect.escape, dialect.escape * 2).replace(dialect.quote, dialect.escape + dialect.quote)
        return f"{dialect.quote}{text}{dialect.quote}"

    return "".join(dialect.delimiter.join(map(cell, row)) + end for row in rows)


@st.composite
def files(draw: st.DrawFn) -> tuple[list[list[str]], Dialect, str, str]:
    quote = draw(st.sampled_from(['"', "'"]))
    delimiter = draw(st.sampled_from([",", ";", "\t", "|"]))
    encoding, beyond = draw(
        st.sampled_from(
            [
                ("utf-8", "é"),
                ("utf-8-sig", "ü"),
                ("utf-16", "é"),
                ("cp1252", "€"),
                ("cp1251", "Номер чистый"),
                ("cp874", "ห้องพักสะอาด"),
            ]
        )
    )
    end = draw(st.sampled_from(["\n", "\r\n"]))
    special = st.sampled_from([delimiter, quote, " ", f"{quote}x{quote}", "\n", beyond])
    text = st.tuples(st.lists(st.sampled_from(WORDS), min_size=4, max_size=9), special, st.sampled_from(WORDS))
    count = draw(st.integers(20, 60))
    texts = [
        f"{' '.join(words)} {mark}{last}" for words, mark, last in draw(st.lists(text, min_size=count, max_size=count))
    ]
    rows = [[f"{each} {number}", ("good", "bad")[number % 2]] for number, each in enumerate(texts)]
    header = draw(st.booleans())
    escape = draw(st.sampled_from(["", "\\"])) if quote == '"' else ""
    return (
        [["text", "label"], *rows] if header else rows,
        Dialect(delimiter, quote, escape, header),
        encoding,
        end,
    )


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(files())
def test_a_made_up_dialect_is_read_exactly(tmp_path_factory, file):
    rows, dialect, encoding, end = file
    path = tmp_path_factory.mktemp("made") / "file.csv"
    path.write_bytes(written(rows, dialect, end).encode(encoding))
    table = open_rows(path)
    read = [list(row.values()) for _, row in table.rows]
    assert table.header == dialect.header
    assert read == (rows[1:] if dialect.header else rows)


@pytest.mark.parametrize("damaged", ["", 'a"b,"c"d\n'])
def test_a_row_of_empty_fields_is_a_row_and_an_empty_line_is_none(tmp_path, damaged):
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + damaged + "one,1\n,\n\n \ntwo,2\n" + "three,3\n" * 20)
    rows = [
        (row["text"], row["label"])
        for _, row in open_rows(path, layout=Layout(quotes=True), rejected=lambda error, row: None).rows
    ]
    assert rows == [("one", "1"), ("", ""), ("two", "2"), *[("three", "3")] * 20]


def test_quoted_fields_of_many_lines_are_one_field():
    body = "\n".join(["the printer says offline; I tried twice", "and it hangs, again"] * 45)
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([["text", "label"], *[[body, "ab"[row % 2]] for row in range(40)]])
    dialect = detect_dialect(out.getvalue())
    assert (dialect.delimiter, dialect.quote, dialect.header) == (",", '"', True)


def test_a_tsv_whose_texts_begin_with_a_quotation_mark_loses_no_row():
    marks = ['"' if number % 40 == 5 else "" for number in range(2000)]
    rows = [f"{mark}the room was clean {number}\t{'ab'[number % 2]}" for number, mark in enumerate(marks)]
    dialect = detect_dialect("\n".join(["text\tlabel", *rows, ""]), tabs=True)
    assert (dialect.delimiter, dialect.quote, dialect.header) == ("\t", "", True)


def test_doubled_quotes_in_a_field_of_two_lines_are_evidence_for_quotes():
    """Both dialects cover every line but one: each of the two lines has as many commas as a row."""
    lines = [f"{row},text {row}" for row in range(60)]
    lines[19], lines[39] = '19,"a ""quoted"" text\nof two lines, with a comma"', "39,text 39,too many"
    dialect = detect_dialect("\n".join(["id,text", *lines]))
    assert (dialect.delimiter, dialect.quote, dialect.header) == (",", '"', True)


def test_one_column_with_delimiters_in_quotes():
    lines = [
        "text",
        "A great touch.",
        '"Pears, almonds and bacon are a winner!"',
        '"As for ""mains,"" nothing."',
        "Bad.",
    ]
    actual = detect_dialect("\n".join(lines * 9) + "\n")
    assert (actual.delimiter, actual.quote) == (",", '"')
    # Quotation marks of a text that begins with one are no quotes.
    loose = detect_dialect('text,label\n"Nice" he said,good\nfine,good\nbad,bad\n')
    assert loose.delimiter == ","
