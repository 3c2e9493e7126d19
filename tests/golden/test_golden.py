"""Every family's losses and gradient norms over 20 steps equal the stored ones, on any x86 processor.

A difference means that a change altered the mathematics: of the model, its sampler, the optimizer, the schedule or the
text's preparation. If that is intended, record the values anew (`python -m tests.golden.runs`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.models import FAMILIES
from tests.golden.runs import COLUMNS, FOLDER, VARIANTS, run
from tests.training.helpers import make_inputs

#: Relative. Kernels of other instruction sets (SSE4.1, AVX2) change the values by up to 3e-6.
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_inputs(tmp_path_factory.mktemp("inputs"))


def test_every_family_has_golden_values() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == {*FAMILIES, *VARIANTS}


def stored(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [*FAMILIES, *VARIANTS])
def test_losses_and_gradient_norms_equal_the_golden_values(name: str, inputs: Path, tmp_path: Path) -> None:
    golden = stored(name)
    values = run(golden["settings"], inputs=inputs, folder=tmp_path)
    for column in COLUMNS:
        assert values[column] == pytest.approx(golden[column], rel=TOLERANCE, abs=0), (
            f"{name}: {column} differ; if intended: python -m tests.golden.runs {name}"
        )


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [("model", "norm_eps", 1e-5), ("training", "betas", (0.9, 0.991)), ("training", "weight_decay", 0.02)],
)
def test_a_small_change_of_a_constant_is_found(
    section: str, key: str, value: object, inputs: Path, tmp_path: Path
) -> None:
    golden = stored("bert")
    golden["settings"][section][key] = value
    values = run(golden["settings"], inputs=inputs, folder=tmp_path)
    assert any(values[column] != pytest.approx(golden[column], rel=TOLERANCE, abs=0) for column in COLUMNS)
