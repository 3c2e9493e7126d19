"""docs/testing.md: every contract has a test in `make test`, and the named tests exist."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CONTRACTS = 34
ROWS = re.findall(
    r"(?m)^\| (\d+) \| (?:[^|]+) \| ([^|]+) \| ([^|]*)\|$", (TESTS.parent / "docs/testing.md").read_text("utf-8")
)


def decorators(reference: str) -> list[str]:
    """The decorators of a test, given as FILE::NAME below tests/."""
    file, name = reference.split("::")
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    assert len(functions) == 1, reference
    return [ast.unparse(decorator) for decorator in functions[0].decorator_list]


def test_every_contract_is_listed():
    assert [int(number) for number, _, _ in ROWS] == list(range(1, CONTRACTS + 1))


@pytest.mark.parametrize(("quick", "slow"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_the_tests_of_a_contract_exist_and_run_where_the_table_says(quick, slow):
    always, added = re.findall(r"`(\S+)`", quick), re.findall(r"`(\S+)`", slow)
    assert always and all("pytest.mark.slow" not in decorators(reference) for reference in always)
    assert all("slow" in " ".join(decorators(reference)) for reference in added)
