"""Tokens of code of each package: a budget that only falls. Comments, docstrings and layout are not counted."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
F_STRING = (getattr(tokenize, "FSTRING_START", -1), getattr(tokenize, "FSTRING_END", -1))
#: Package -> largest number of tokens. Lower it in the commit that makes the package smaller.
BUDGETS = {
    "builtin_data": 5_279,
    "cli": 12_723,
    "cluster": 11_724,
    "core": 9_019,
    "data": 89_936,
    "evaluation": 7_951,
    "flows": 28_933,
    "headstart": 12_482,
    "interchange": 22_458,
    "labelling": 10_156,
    "learners": 63_808,
    "models": 44_332,
    "pages": 12_604,
    "pipeline": 29_488,
    "registry": 35_541,
    "reporting": 6_352,
    "serving": 17_743,
    "settings": 16_216,
    "studies": 18_340,
    "tokenization": 23_096,
    "training": 31_182,
}
#: Largest number of tokens of the tests.
TESTS = 476_616


def tokens(text: str) -> int:
    documented = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                documented |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    count = depth = 0
    for each in tokenize.generate_tokens(io.StringIO(text).readline):
        # From Python 3.12 the parts of an f-string are tokens; it counts as one, as before.
        depth -= each.type == F_STRING[1]
        count += not depth and each.type not in LAYOUT and each.type != F_STRING[1] and each.start[0] not in documented
        depth += each.type == F_STRING[0]
    return count


def size_of(folder: Path) -> int:
    files = [folder] if folder.is_file() else folder.rglob("*.py")
    return sum(tokens(path.read_text(encoding="utf-8")) for path in files)


def packages() -> dict[str, Path]:
    parts = [path for path in (ROOT / "components").iterdir() if not path.name.startswith("__")]
    return {path.stem: path for path in [*parts, ROOT / "flows", ROOT / "headstart"]}


def test_what_is_counted():
    text = '"""Not this."""\n# nor this\ndef add(a):\n    """Nor this."""\n    return a + 1  # one\n'
    text += "b = f\"{add(1)} {f'{2}'}\"\n"
    assert tokens(text) == len(["def", "add", "(", "a", ")", ":", "return", "a", "+", "1", "b", "=", "f"])


def test_every_package_has_a_budget():
    assert set(BUDGETS) == set(packages())


@pytest.mark.parametrize("package", BUDGETS)
def test_a_package_keeps_its_budget(package):
    assert size_of(packages()[package]) <= BUDGETS[package]


def test_the_tests_keep_their_budget():
    assert size_of(ROOT / "tests") <= TESTS
