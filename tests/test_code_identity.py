"""The code of a stage is its import closure without comments, docstrings and imports for type checkers."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.pipeline.code_identity import Sources, parse

FILES = {
    "__init__": "",
    "entry": "import numpy\nfrom components import table\n\ndef run():\n    from components.lazy import late",
    "lazy": "def late():\n    return 1",
    "typed": "X = 1",
    "unused": "X = 1",
    "table/__init__": (
        "from typing import TYPE_CHECKING\nfrom components.core.tables import LazyTable\n"
        "if TYPE_CHECKING:\n    from components.typed import X\n"
        'PARTS: LazyTable[int] = LazyTable({"a": "components.table.a:X", "b": "components.table.b:X"})'
    ),
    "table/a": "import sklearn.linear_model\nX = 1",
    "table/b": "import ray\nX = 1",
    "core/__init__": "",
    "core/tables": "class LazyTable:\n    def get(self, key):\n        return key",
    "settings/__init__": "",
    "settings/part": "LIMIT = 3\nclass Part:\n    size: int = 4\n\n    def twice(self):\n        return 2",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "components" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "requirements.lock").write_text("numpy==2.0.1\nscikit-learn==1.5.0\nray[train]==2.60.0\n")
    return tmp_path


def names(root: Path, **entries: list[str]) -> set[str]:
    used = {f"components.table:{name}": keys for name, keys in entries.items()}
    return {
        name.removeprefix("components/") for name in Sources(root).closure("components.entry", entries=used).modules
    }


def test_imports_inside_functions_count_and_those_for_types_do_not(root):
    every = {"__init__.py", "entry.py", "lazy.py", "table/__init__.py", "table/a.py", "table/b.py"} | {
        "core/__init__.py",
        "core/tables.py",
    }
    assert names(root) == every
    assert names(root, PARTS=["a"]) == every - {"table/b.py"}
    assert names(root, PARTS=[]) == every - {"table/a.py", "table/b.py"}


def test_locked_versions_of_the_libraries_that_can_change_a_result(root):
    actual = Sources(root).closure("components.entry")
    assert actual.libraries == {"numpy": "2.0.1", "scikit-learn": "1.5.0"}
    (root / "requirements.lock").write_text("numpy==2.0.2\nscikit-learn==1.5.0\n")
    assert Sources(root).closure("components.entry").libraries["numpy"] == "2.0.2"


@pytest.mark.parametrize(
    ("before", "after", "changed"),
    [
        ("def f():\n    return 1", "# why\ndef f():\n    '''What.'''\n    return (1)", False),
        ("A = 1\nA = 2", "A = 2\nA = 1", True),
        ("A = 1\ndef f(): return A", "A = 2\ndef f(): return A", True),
        ("def f(): return 1", "def f(): return 2", True),
        ("def f(a: int): pass", "def f(a: str): pass", True),
        ("class C:\n  def m(self): return 1", "class C:\n  def m(self): return 2", True),
        ("class P:\n  X = 1", "class P:\n  X = 2", True),
        ("from os import path", "from os import sep as path", True),
        ("f(1)", "f(2)", True),
        ("if TYPE_CHECKING:\n  from a import B\nX = 1", "if TYPE_CHECKING:\n  from a import C\nX = 1", False),
        ("class P:\n  size: int = 4", "class P:\n  size: int = 5", True),
        (FILES["table/__init__"], FILES["table/__init__"].replace('"b": "components.table.b:X"', ""), False),
    ],
)
def test_what_changes_a_digest(before, after, changed):
    assert (parse(before).digest != parse(after).digest) == changed
    # Defaults of settings are no code.
    in_settings = changed and not before.startswith("class P")
    assert (parse(before, settings=True).digest != parse(after, settings=True).digest) == in_settings


def test_a_parsed_module_is_read_again_when_its_text_changes(root):
    first = Sources(root).closure("components.entry").modules
    assert Sources(root).closure("components.entry").modules == first
    (root / "components/lazy.py").write_text("def late():\n    return 2")
    second = Sources(root).closure("components.entry").modules
    assert {name for name in first if first[name] != second[name]} == {"components/lazy.py"}


def test_a_missing_module(root):
    with pytest.raises(FileNotFoundError, match="no module components.gone"):
        Sources(root).closure("components.gone")
