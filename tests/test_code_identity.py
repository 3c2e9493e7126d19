"""The code of a stage is its import closure without comments, docstrings and imports for type checkers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from components.pipeline.code_identity import Sources, closure

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
        name.removeprefix("components/")
        for name in closure("components.entry", entries=used, sources=Sources(root)).modules
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
    actual = closure("components.entry", sources=Sources(root))
    assert actual.libraries == {"numpy": "2.0.1", "scikit-learn": "1.5.0"}
    (root / "requirements.lock").write_text("numpy==2.0.2\nscikit-learn==1.5.0\n")
    assert closure("components.entry", sources=Sources(root)).libraries["numpy"] == "2.0.2"


def definitions(root: Path, module: str, text: str) -> Mapping[str, str]:
    return Sources(root, changed={f"components.{module}": text}).module(f"components.{module}").definitions


@pytest.mark.parametrize(
    ("module", "before", "after", "changed"),
    [
        ("lazy", "def f():\n    return 1", "# why\ndef f():\n    '''What.'''\n    return (1)", set()),
        ("lazy", "A = 1\ndef f(): pass", "def f(): pass\n\n#: Number.\nA = 1\n'''Of it.'''", set()),
        ("lazy", "A = 1\ndef f(): return A", "A = 2\ndef f(): return A", {"A"}),
        ("lazy", "def f(): return 1", "def f(): return 2", {"f"}),
        ("lazy", "def f(a: int): pass", "def f(a: str): pass", {"f"}),
        ("lazy", "class C:\n  def m(self): return 1\n  X = 1", "class C:\n  def m(self): return 2\n  X = 1", {"C.m"}),
        ("lazy", "class C:\n  X = 1", "class C:\n  X = 2", {"C"}),
        ("lazy", "import os\nimport re", "import re\nimport os", set()),
        ("lazy", "from os import path", "from os import sep as path", {"imports"}),
        ("lazy", "f(1)", "f(2)", {"statements"}),
        ("lazy", "F = ModelFamily(1, tiny={'a': 2})", "F = ModelFamily(1, tiny={'a': 3})", set()),
        ("lazy", "F = ModelFamily(1, tiny={'a': 2})", "F = ModelFamily(2, tiny={'a': 2})", {"F"}),
        ("lazy", "def f(): raise ValueError('a')", "def f(): raise ValueError(f'{1} b')", set()),
        ("lazy", "def f(): raise ValueError('a')", "def f(): raise KeyError('a')", {"f"}),
        ("lazy", "if TYPE_CHECKING:\n  from a import B\nX = 1", "X = 1", set()),
        ("table", FILES["table/__init__"], FILES["table/__init__"].replace('"b": "components.table.b:X"', ""), set()),
        ("settings.part", "class P:\n  size: int = 4", "class P:\n  size: int = 5", set()),
        ("settings.part", "LIMIT = 3", "LIMIT = 4", {"LIMIT"}),
        ("settings.part", "class P:\n  def m(self): return 1", "class P:\n  def m(self): return 2", {"P.m"}),
    ],
)
def test_what_changes_a_digest(root, module, before, after, changed):
    old, new = definitions(root, module, before), definitions(root, module, after)
    assert {name for name in {*old, *new} if old.get(name) != new.get(name)} == changed


def test_a_missing_module(root):
    with pytest.raises(FileNotFoundError, match="no module components.gone"):
        closure("components.gone", sources=Sources(root))
