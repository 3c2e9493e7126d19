"""Small files that are huge when they are unpacked: one sentence, before memory is used."""

import gzip
import io
import zipfile

import pytest

from components.core.errors import ConfigError, DataError
from components.data.formats.lines import FREE_BYTES, RATIO_KEY, Reading, text_blocks
from components.data.formats.rows import open_rows
from components.data.formats.workbook import sheet_names
from components.settings.loading import read_file
from tests.data.public_inputs import workbook

LARGE = FREE_BYTES + (1 << 20)


def read(path) -> int:
    return sum(map(len, text_blocks(path, Reading())))


def packed(name: str) -> bytes:
    content = b"the same line\n" * (LARGE // 14)
    if name.endswith(".gz"):
        return gzip.compress(content, 9)
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", content)
    return held.getvalue()


@pytest.mark.parametrize("name", ["a.csv.gz", "a.csv.zip"])
def test_a_packed_file_of_the_same_bytes(name, tmp_path, monkeypatch):
    (tmp_path / name).write_bytes(packed(name))
    with pytest.raises(DataError, match=rf"{name}: holds more than 67 MB unpacked, .* raise {RATIO_KEY} \(100\)"):
        read(tmp_path / name)
    monkeypatch.setenv(RATIO_KEY, "2000")
    assert read(tmp_path / name) > FREE_BYTES
    monkeypatch.setenv(RATIO_KEY, "much")
    with pytest.raises(ConfigError, match=f"{RATIO_KEY}: 'much' is not a positive number"):
        read(tmp_path / name)


def remade(content: bytes, old: str, new: str) -> bytes:
    """A workbook with another text in its first sheet."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            text = source.read(entry)
            target.writestr(
                entry.filename, text.replace(old.encode(), new.encode()) if "sheet1" in entry.filename else text
            )
    return made.getvalue()


def test_a_cell_in_the_last_row_and_column(tmp_path):
    path = tmp_path / "a.xlsx"
    content = workbook([("text", "label"), ("good", "yes"), ("bad", "no")])
    path.write_bytes(remade(content, "</row></sheetData>", '<c r="XFD1048576"><v>1</v></c></row></sheetData>'))
    with pytest.raises(DataError, match=r"a.xlsx: needs more than 4,096 MB of memory, .* save it as csv"):
        open_rows(path)
    assert sheet_names(path) == ["Sheet1"]


def test_a_sheet_of_gigabytes(tmp_path):
    path = tmp_path / "a.xlsx"
    path.write_bytes(
        remade(workbook([("text", "label"), ("good", "yes")]), "</worksheet>", " " * LARGE + "</worksheet>")
    )
    with pytest.raises(DataError, match="a.xlsx: holds more than 67 MB unpacked"):
        open_rows(path)


ALIASES = (
    ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10))],
    ["a0: &a0 {x: 1}", *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 10))],
)


@pytest.mark.parametrize("levels", ALIASES, ids=["values", "merge keys"])
def test_aliases_that_repeat_billions_of_values(levels, tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text("\n".join(levels))
    with pytest.raises(ConfigError, match=r"params.yaml: its aliases repeat more than 100,000 values; write them out"):
        read_file(path)
    path.write_text("\n".join(levels[:2]) + "\nrun: &run {out: here}\ncopy: *run\n")
    read = read_file(path)
    assert read["copy"] == {"out": "here"} and read["a1"] in ([read["a0"]] * 9, {"x": 1})
