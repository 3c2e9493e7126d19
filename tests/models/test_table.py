"""The table of families: every entry is valid, and imported only when it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from components.interchange.huggingface import CONVERTERS
from components.models import FAMILIES

CODE = """
import sys
import {module}
print(*(name for name in sys.modules if name.startswith("components.")))
"""


def test_names_of_the_table() -> None:
    assert [family.name for family in FAMILIES.values()] == list(FAMILIES)
    assert set(CONVERTERS) < set(FAMILIES)


@pytest.mark.parametrize(
    "module", ["components.models", "components.models.encoder", "components.interchange.huggingface"]
)
def test_the_tables_import_no_family(module: str) -> None:
    ran = subprocess.run([sys.executable, "-c", CODE.format(module=module)], capture_output=True, text=True, check=True)
    loaded = set(ran.stdout.split())
    modules = {entry.partition(":")[0] for table in (FAMILIES, CONVERTERS) for entry in table._entries.values()}
    assert module in loaded
    assert not loaded & modules
