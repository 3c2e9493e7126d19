"""Losses and gradient norms of tiny runs, of every family and of every kind of task, equal the stored ones on any x86
processor.

A difference means that a change altered the mathematics: of a model or head, a sampler, the optimizer, the schedule or
the preparation of text. If that is intended, record the values anew: `python -m tests.golden.record`.
"""

from pathlib import Path

import pytest

from tests.golden.record import FOLDER, names, run, stored
from tests.training.helpers import make_inputs

#: Relative. Kernels for other instruction sets (SSE4.1, AVX2) change the values by up to 4e-6.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


def differing(values: dict[str, list[float]], golden: dict[str, list[float]]) -> list[str]:
    """The names of the values that differ from the golden ones."""
    assert values.keys() == golden.keys() - {"settings"}
    return [name for name in values if values[name] != pytest.approx(golden[name], rel=TOLERANCE, abs=0)]


def test_every_family_and_kind_has_golden_values():
    stored_names = {path.stem for path in FOLDER.glob("*.json")}
    assert set(names()) - stored_names == set(), "no golden values; record them: python -m tests.golden.record NAME"
    assert stored_names - set(names()) == set(), "golden values of a run that no longer exists; delete the file"


@pytest.mark.parametrize("name", names())
def test_a_run_equals_the_golden_values(name, inputs, tmp_path):
    golden = stored(name)
    values = run(name, golden["settings"], inputs=inputs, folder=tmp_path)
    assert differing(values, golden) == [], f"if the change is intended: python -m tests.golden.record {name}"
