"""A run's settings with a folder of outputs that tests fill."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.artifacts import writing
from components.params import load_params
from components.studies.outputs import Outputs

ROOT = Path(__file__).parents[2]
WriteEvaluation = Callable[..., None]


@pytest.fixture
def params_file(tmp_path: Path) -> Path:
    """The shipped settings, with outputs below `tmp_path/out`."""
    settings = yaml.safe_load((ROOT / "params.yaml").read_text())
    settings["run"]["out"] = str(tmp_path / "out")
    path = tmp_path / "params.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


@pytest.fixture
def outputs(params_file: Path) -> Outputs:
    return Outputs(load_params(params_file))


@pytest.fixture
def write_evaluation(outputs: Outputs) -> WriteEvaluation:
    """`write_evaluation("aws-type", {...})`: an output of the stage `evaluate`."""

    def write(task: str, content: dict[str, Any]) -> None:
        with writing(outputs.out / "evaluation" / task, kind="evaluation") as draft:
            (draft.path / "evaluation.json").write_text(json.dumps(content))

    return write
