"""The sheet of `headstart suggest` comes back from a spreadsheet of another country, and is merged."""

import csv
import io

import pytest

from components.data.formats.rows import open_rows
from components.labelling.answers import read_answers
from components.settings.tasks import TaskSource
from tests.data.public_inputs import workbook

TEXTS = ["der Zug war sauber; wirklich", "für 30 € zu teuer", "=1+2 ist kein Text"]
LABELS = ["gut", "schlecht", "gut"]


def saved(delimiter: str, encoding: str) -> bytes:
    """As a spreadsheet saves it, with the column of labels filled in."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\r\n")
    writer.writerow(["text", "label", "why"])
    for text, label in zip(TEXTS, LABELS, strict=True):
        writer.writerow([f"'{text}" if text.startswith("=") else text, label, "uncertain"])
    return out.getvalue().encode(encoding)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("back.csv", saved(";", "cp1252")),
        ("back.csv", saved(";", "utf-8-sig")),
        ("back.csv", saved(",", "utf-8")),
        ("back.csv", saved("\t", "utf-16")),
        ("back.xlsx", workbook([("text", "label", "why"), *((t, b, "x") for t, b in zip(TEXTS, LABELS, strict=True))])),
    ],
    ids=["semicolons", "mark", "commas", "unicode text", "workbook"],
)
def test_a_sheet_is_merged(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    answers, empty = read_answers(tmp_path / name, TaskSource(path=str(tmp_path)), by="ana")
    assert [(answer.fields, answer.labels) for answer in answers] == [
        ((text,), (label,)) for text, label in zip(TEXTS, LABELS, strict=True)
    ]
    assert empty == 0


def test_a_merged_cell_counts_in_each_of_its_rows(tmp_path):
    rows = [
        ("Report", "", ""),
        ("", "text", "label"),
        *(("", f"a text {n}", "" if n % 3 else f"c{n}") for n in range(6)),
    ]
    merged = ["A1:C1", "C3:C5", "C6:C8", "A20:B22"]
    (tmp_path / "a.xlsx").write_bytes(workbook(rows, merged))
    sheet = open_rows(tmp_path / "a.xlsx")
    rows = [{"text": f"a text {n}", "label": "c0" if n < 3 else "c3"} for n in range(6)]
    assert [row for _, row in sheet.rows] == rows
    assert sheet.described == (
        "sheet 'Sheet1'; 1 row(s) above the header are left out; the value of 2 merged cell(s) counts in each of "
        "their rows"
    )
