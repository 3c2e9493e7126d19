"""A new family is one file and one line: the contract tests pass for a family that is added from outside."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: The line of the table.
PLUGIN = """
from components.models import FAMILIES
FAMILIES._entries["toy"] = "toy_family:FAMILY"
"""
#: Files with contract tests.
CONTRACTS = [
    "tests/models/test_table.py",
    "tests/models/test_contract.py",
    "tests/pretraining/test_pretrain.py",
    "tests/pretraining/test_adapt.py",
    "tests/finetuning/test_contract.py",
]
#: Expression of `pytest -k` that selects the tests of the new family.
SELECTED = "test_names_of_the_table or toy"


@pytest.mark.slow
def test_a_family_from_outside_passes_the_contract_tests(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("toy_family.py"), tmp_path)
    (tmp_path / "with_toy.py").write_text(PLUGIN, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    command = [sys.executable, "-m", "pytest", "-v", "-p", "with_toy", "-p", "no:cacheprovider", "-k", SELECTED]
    ran = subprocess.run([*command, *CONTRACTS], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0, ran.stdout[-4000:]
    passed = set(re.findall(r"::(\w+)(?:\[\S*\])? PASSED", ran.stdout))
    # It trains, saves and reloads, resumes bit-identically, runs in bf16, adapts, and fine-tunes every kind of task.
    assert passed >= {
        "test_names_of_the_table",
        "test_it_learns",
        "test_it_runs_with_bfloat16_weights",
        "test_a_loaded_model_equals_the_saved_one",
        "test_killed_runs_end_bit_identical",
        "test_every_family_feeds_every_task",
    }
