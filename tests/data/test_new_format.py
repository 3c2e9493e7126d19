"""A format that is a reader and an entry is read by every entry point, and its code belongs to what reads data."""

import sys
from pathlib import Path

import pytest

from components.data.checks.measure import task_units
from components.data.formats import kinds, rows
from components.data.formats.lines import Reading
from components.data.formats.tables import Numbered, Rows
from components.data.ingestion import readers
from components.labelling.rows import read_rows
from components.pipeline.code_identity import installed
from components.settings import formats, tasks
from components.settings.data import CorpusSource
from headstart.tasks import read_task
from tests.data.public_inputs import made, rows_of, targets_of

TEXTS = [
    f"the {word} room was {tone} {number}"
    for number, (word, tone) in enumerate(zip(["big", "old"] * 20, ["nice", "bad"] * 20, strict=True))
]
LABELS = ["good", "poor"] * 20


def read_toy(file: Rows) -> Numbered:
    """`label -> text` lines."""
    for number, line in file.lines():
        yield number, dict(zip(("verdict", "text"), line.split(" -> "), strict=True))


@pytest.fixture
def toy(monkeypatch, tmp_path) -> Path:
    format = formats.Format("toy:read_toy", ("classification",), suffixes=(".toy",), table=True, corpus=True)
    monkeypatch.setitem(sys.modules, "components.data.formats.toy", sys.modules[__name__])
    monkeypatch.setitem(formats.FORMATS, "toy", format)
    path = tmp_path / "reviews.toy"
    path.write_text("".join(f"{label} -> {text}\n" for text, label in zip(TEXTS, LABELS, strict=True)))
    return path


def test_a_new_format_is_read_by_every_entry_point(toy, tmp_path, monkeypatch):
    assert kinds.form_of(toy) == "toy"
    assert [row["text"] for _, row in rows.open_rows(toy).rows] == TEXTS
    assert [text for _, (text,), _ in readers.read_documents(toy, CorpusSource(path=str(toy)), Reading())] == TEXTS
    name, source, _ = made(toy, tmp_path, monkeypatch)
    assert (source.kind, source.label) == ("classification", "verdict")
    assert [fields[0] for fields, _ in rows_of(name, source)] == sorted(TEXTS)
    assert sum(unit.statistics["rows"] for unit in task_units(name, source)) == len(TEXTS)
    assert {row.labels for row in read_rows(name, source)} == {("good",), ("poor",)}
    task = read_task(str(toy))
    assert [fields[0] for fields in task.fields] == TEXTS and targets_of(task) == LABELS


def test_every_format_has_a_reader_and_every_kind_a_format():
    assert all(map(callable, map(formats.reader_of, [*formats.FORMATS, "texts"])))
    assert {kind for format in formats.FORMATS.values() for kind in format.kinds} == {*tasks.KINDS}


def test_code_of_readers_belongs_to_stages_that_read_data_only():
    modules = {format.reader.partition(":")[0] for format in formats.FORMATS.values()}
    readers = {f"components/data/formats/{module}.py" for module in modules}
    assert readers <= installed().closure("components.data.formats.rows").modules.keys()
    assert not readers & installed().closure("components.settings.params").modules.keys()
