"""Every module of fine-tuning can be the first that is imported."""

from __future__ import annotations

import subprocess
import sys

ALONE = """
import importlib, pkgutil, sys
import components.finetuning, components.finetuning.model

for module in pkgutil.walk_packages(components.finetuning.__path__, "components.finetuning."):
    for name in [name for name in sys.modules if name.startswith("components.")]:
        del sys.modules[name]
    importlib.import_module(module.name)
    print(module.name)
"""


def test_no_import_goes_round_in_a_circle() -> None:
    found = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert {"components.finetuning.answering", "components.finetuning.tasks.questions"} <= set(found.stdout.split())
