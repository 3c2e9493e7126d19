"""Texts that a spreadsheet would take for formulas: written as text, read back as they were."""

import csv
from pathlib import Path

import pytest

from components.data.formats.delimited import escaped, restored
from components.data.formats.rows import open_rows, read_columns
from components.labelling.answers import merge, read_answers
from components.labelling.queue import Suggestion, write_suggestions
from tests.example_task import write_jsonl
from tests.inference.files import ByLength, predict_file
from tests.labelling.conftest import lines
from tests.labelling.conftest import project as project  # a fixture

FORMULAS = ["=1+2", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "=", "-", "＝1+2", "+49 170 12", "-a"]
#: After what a spreadsheet may drop.
FORMULAS += ["\u200b=1+2", "\ufeff@SUM(A1)", "\u00a0-a", "\u202e+b", "\u00ad\u2060=1"]
#: A spreadsheet with a decimal comma separates cells at semicolons.
AFTER_SEMICOLON = {
    "good;=1+2": "good;'=1+2",
    "a;\u200b@SUM(A1);-b": "a;\u200b'@SUM(A1);'-b",
    "a;'=1": "a;''=1",
    "=1;=2": "'=1;'=2",
    "fine ;-) and; - so; a=b": "fine ;-) and; - so; a=b",
}
APOSTROPHES = ["'=1+2", "''=1+2", "'-2+3 b", "'"]
PLAIN = ["hello", "'quoted' text", "''", "'tis so", " =1", "a=b", "-5", "+3.25", "-1,5", "-1e-5", "-5%", "'-5", ""]
TEXTS = [*FORMULAS, *APOSTROPHES, *PLAIN, *AFTER_SEMICOLON]


@pytest.mark.parametrize("text", [*FORMULAS, *APOSTROPHES, *PLAIN])
def test_every_text_is_read_back(text):
    cell = escaped(text)
    assert restored(cell) == text
    assert cell == (f"'{text}" if text in FORMULAS or text.startswith(("'=", "''=", "'-2")) else text)
    assert restored(escaped(cell)) == cell


@pytest.mark.parametrize("text", AFTER_SEMICOLON)
def test_formulas_after_a_semicolon(text):
    assert escaped(text) == AFTER_SEMICOLON[text]
    assert restored(escaped(text)) == text


def test_values_that_are_not_text_are_kept():
    assert [escaped(value) for value in (-1.5, None, -3)] == [-1.5, None, -3]


def cells(path: Path) -> list[str]:
    """All cells as a spreadsheet reads them."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        return [cell for row in csv.reader(file, delimiter="\t" if path.suffix == ".tsv" else ",") for cell in row]


def test_suggestions_are_labelled_with_their_texts(project):
    params = project()
    source = params.data.tasks["things"]
    texts = [text for text in TEXTS if any(map(str.isalnum, text))]
    actual = [Suggestion((text,), ("=fruit",), 0.5, {}, "@why", "") for text in texts]
    write_suggestions(Path("s.csv"), actual, source)
    assert not any(cell.startswith(("=", "@", "\t", "\r", "-a", "-2", "+c")) for cell in cells(Path("s.csv")))
    with Path("s.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = [row | {"label": escaped("=new")} for row in csv.DictReader(file)]
    with Path("answers.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    answers, empty = read_answers(Path("answers.csv"), source)
    assert [(answer.fields, answer.labels) for answer in answers] == [((text,), ("=new",)) for text in texts]
    assert empty == 0
    # Texts are equal if they differ in punctuation only.
    merge(params, answers[:1], new_labels=True)
    (entry,) = lines("task/labels-things.ledger.jsonl")
    assert (entry["texts"], entry["after"]) == (["=1+2"], ["=new"])


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_predictions_are_read_back(tmp_path, suffix):
    texts = [text for text in TEXTS if suffix == ".csv" or not set(text) & {"\t", "\r"}]
    write_jsonl(tmp_path / "in.jsonl", [{"text": text, "=note": "@note"} for text in texts])
    output = tmp_path / f"out{suffix}"
    predict_file(tmp_path / "in.jsonl", output=output, classifier=ByLength())
    assert not any(cell.startswith(("=", "@", "\t", "\r", "-a", "-2", "+c")) for cell in cells(output))
    rows = [row for _, row in open_rows(output).rows]
    assert [(row["text"], row["=note"]) for row in rows] == [(text, "@note") for text in texts]
    # Training and ingestion read the same texts.
    read = read_columns(output, suffix[1:], ["text", "=note"])
    assert [values for _, values in read] == [(text, "@note") for text in texts]
