""""""

from __future__ import annotations

from pathlib import Path

import pytest

from components.core.errors import DataError
from components.data.formats.lines import Reading
from components.data.formats.rows import read_columns
from components.data.formats.tables import Layout


def folder(path: Path, **files: str) -> Path:
    path.mkdir(exist_ok=True)
    for name, text in files.items():
        (path / name).write_text(text)
    return path


def test_lines_that_begin_with_a_label(tmp_path: Path) -> None:
    path = tmp_path / "TREC.all"
    path.write_bytes("0 How far is it ?\n\n4\tWhat café \n5\n".encode("latin-1"))
    layout = Layout(encoding="iso8859-1")
    found = list(read_columns(path, "label-first", ["text", "label"], layout, Reading()))
    assert found == [(1, ("How far is it ?", "0")), (3, ("What café", "4")), (4, ("", "5"))]
    with pytest.raises(DataError, match=r"TREC\.all: no column 'txt'; a line has a label and a text only"):
        list(read_columns(path, "label-first", ["txt"], layout, Reading()))


def test_parallel_files(tmp_path: Path) -> None:
    path = folder(tmp_path / "train", words="add this\nplay\n", tags="O B-x\nO \n", label="A\nB")
    assert list(read_columns(path, "parallel", ["words", "tags"], Layout(), Reading())) == [
        (1, ("add this", "O B-x")),
        (2, ("play", "O ")),
    ]
    assert list(read_columns(path, "parallel", ["words", "label"], Layout(), Reading())) == [
        (1, ("add this", "A")),
        (2, ("play", "B")),
    ]


def test_only_trailing_empty_lines_are_skipped(tmp_path: Path) -> None:
    path = folder(tmp_path / "train", a="x\n\ny\n\n\n", b="1\n\n2\n\n\n")
    found = list(read_columns(path, "parallel", ["a", "b"], Layout(), Reading()))
    assert found == [(1, ("x", "1")), (2, ("", "")), (3, ("y", "2"))]


def test_parallel_files_of_different_length_are_an_error(tmp_path: Path) -> None:
    path = folder(tmp_path / "train", a="x\ny\nz\n", b="1\n2\n")
    with pytest.raises(
        DataError, match=r"train/b: ends after line 2, but a continues; parallel files need the same number of lines"
    ):
        list(read_columns(path, "parallel", ["a", "b"], Layout(), Reading()))
    with pytest.raises(DataError, match=r"train: has no file 'c'; known: a, b; the columns are names of files"):
        list(read_columns(path, "parallel", ["a", "c"], Layout(), Reading()))
    with pytest.raises(DataError, match=r"train/a: is not a folder; expected one with the files a, b"):
        list(read_columns(path / "a", "parallel", ["a", "b"], Layout(), Reading()))
