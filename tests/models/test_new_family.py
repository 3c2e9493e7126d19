"""A new family is one file and one line: the contract tests pass for a family that is added from outside."""

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.conftest import python

ROOT = Path(__file__).parents[2]
#: The line of the table.
PLUGIN = """
from components.models import FAMILIES
FAMILIES._entries["toy"] = "toy_family:FAMILY"
"""
#: Files with contract tests: training, saving and loading, bf16; bit-identical resumption, in
#: adaptation; fine-tuning on every kind of task.
CONTRACTS = {
    "tests/models/test_contract.py",
    "tests/pretraining/test_adapt.py",
    "tests/finetuning/test_contract.py",
}
#: Expression of `pytest -k` that selects the tests of the new family.
SELECTED = "toy"


@pytest.mark.slow
def test_a_family_from_outside_passes_the_contract_tests(tmp_path):
    shutil.copy(Path(__file__).with_name("toy_family.py"), tmp_path)
    (tmp_path / "with_toy.py").write_text(PLUGIN, encoding="utf-8")
    command = ["-m", "pytest", "-v", "-p", "with_toy", "-p", "no:cacheprovider", "-k", SELECTED, *sorted(CONTRACTS)]
    said = python(*command, cwd=ROOT, PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    assert set(re.findall(r"(tests/\S+\.py)::\S+ PASSED", said)) == CONTRACTS
