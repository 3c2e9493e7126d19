"""Lazy tables: an entry's module is imported when the entry is first used, and once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from components.tables import LazyTable


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LazyTable[list[str]]:
    for name in ("one", "two"):
        (tmp_path / f"lazy_{name}.py").write_text(f"ENTRY = ['{name}']\n", encoding="utf-8")
        monkeypatch.delitem(sys.modules, f"lazy_{name}", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    return LazyTable({"two": "lazy_two:ENTRY", "one": "lazy_one:ENTRY", "missing": "lazy_missing:ENTRY"})


def test_an_entry_is_imported_on_first_access(table: LazyTable[list[str]]) -> None:
    assert list(table) == ["two", "one", "missing"]
    assert len(table) == 3 and "one" in table and "three" not in table
    assert "lazy_one" not in sys.modules
    entry = table["one"]
    assert entry == ["one"] and table["one"] is entry
    assert "lazy_one" in sys.modules and "lazy_two" not in sys.modules


def test_unknown_and_missing_entries(table: LazyTable[list[str]]) -> None:
    with pytest.raises(KeyError):
        table["three"]
    assert table.get("three") is None
    with pytest.raises(ModuleNotFoundError):
        table["missing"]
