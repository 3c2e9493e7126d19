from __future__ import annotations

from pathlib import Path

import pytest

from components.errors import DataError
from components.formats.lines import Reading
from components.formats.plain import read_label_first, read_parallel
from components.formats.tables import Layout


def folder(path: Path, **files: str) -> Path:
    path.mkdir(exist_ok=True)
    for name, text in files.items():
        (path / name).write_text(text)
    return path


def test_a_label_before_each_text(tmp_path: Path) -> None:
    path = tmp_path / "TREC.all"
    path.write_bytes("0 How far is it ?\n\n4\tWhat café \n5\n".encode("latin-1"))
    layout = Layout(encoding="iso8859-1")
    found = list(read_label_first(path, ["text", "label"], layout, Reading()))
    assert found == [(1, ("How far is it ?", "0")), (3, ("What café", "4")), (4, ("", "5"))]
    with pytest.raises(DataError, match=r"TREC\.all: no column 'txt'; a line holds a label and a text, nothing else"):
        list(read_label_first(path, ["txt"], layout, Reading()))


def test_files_side_by_side(tmp_path: Path) -> None:
    path = folder(tmp_path / "train", words="add this\nplay\n", tags="O B-x\nO \n", label="A\nB")
    assert list(read_parallel(path, ["words", "tags"], Layout(), Reading())) == [
        (1, ("add this", "O B-x")),
        (2, ("play", "O ")),
    ]
    assert list(read_parallel(path, ["words", "label"], Layout(), Reading())) == [
        (1, ("add this", "A")),
        (2, ("play", "B")),
    ]


def test_empty_lines_count_unless_nothing_follows(tmp_path: Path) -> None:
    path = folder(tmp_path / "train", a="x\n\ny\n\n\n", b="1\n\n2\n\n\n")
    found = list(read_parallel(path, ["a", "b"], Layout(), Reading()))
    assert found == [(1, ("x", "1")), (2, ("", "")), (3, ("y", "2"))]


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    path = folder(tmp_path / "train", a="x\ny\nz\n", b="1\n2\n")
    with pytest.raises(DataError, match=r"train/b: ends after line 2, a goes on; the lines of both belong together"):
        list(read_parallel(path, ["a", "b"], Layout(), Reading()))
    with pytest.raises(DataError, match=r"train: holds no file 'c'; known: a, b; its columns are files"):
        list(read_parallel(path, ["a", "c"], Layout(), Reading()))
    with pytest.raises(DataError, match=r"train/a: is no folder; it should hold the files a, b"):
        list(read_parallel(path / "a", ["a", "b"], Layout(), Reading()))
