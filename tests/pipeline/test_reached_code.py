"""All modules that a running stage loads are in its identity."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.raw_data import write_raw_data

ROOT = Path(__file__).parents[2]
#: Runs one stage and prints the modules of components that it has loaded and that its identity does not contain.
SCRIPT = """
import sys
from components.pipeline.identity import identity_of
from components.pipeline.running import run_stage
from components.settings.loading import load_params
before = {name for name in sys.modules if name.startswith("components")}
stage, _, item = sys.argv[1].partition("@")
params = load_params()
run_stage(stage, params, item=item)
code = identity_of(stage, item, params).code
from components.pipeline.code_identity import NEUTRAL, closure
neutral = [code, *(closure(name).modules for name in NEUTRAL)]
paths = {path for modules in neutral for path in modules}
known = {path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in paths}
loaded = {name for name in sys.modules if name.startswith("components")} - before
print("unknown:", *sorted(loaded - known))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Settings for a tiny model and a few lines of text."""
    root = tmp_path_factory.mktemp("reached")
    raw: dict[str, Any] = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw["cluster"]["launcher"] = "local"
    raw["run"]["starts"] = ["adapted"]
    raw["tokenizer"]["wordpiece"] = {"vocabulary": 120, "min_frequency": 1}
    raw["pretrain"]["ulmfit"] |= {"model": {"embedding": 16, "hidden": 16, "layers": 1}}
    for section in ("pretrain", "adapt"):
        raw[section]["ulmfit"]["training"] |= {"tokens": 2000, "window": 8, "batch_size": 4}
    raw["finetune"]["ulmfit"] |= {"epochs": 1, "min_steps": 2, "head_steps": 2, "head_penalties": [1]}
    task = raw["data"]["tasks"]["aws-type"] | {"budgets": [2], "seeds": [0]}
    raw["data"]["tasks"] = {"aws-type": task}
    (root / "params.yaml").write_text(yaml.safe_dump(raw))
    write_raw_data(root)
    return root


def test_every_loaded_module_is_in_the_identity(folder):
    stages = (
        "examples@aws-type",
        "ingest@general",
        "ingest@domain",
        "tokenizer@general-wordpiece",
        "tokenizer@domain-wordpiece",
        "tokenize@general-wordpiece",
        "tokenize@domain-wordpiece",
        "pretrain@ulmfit",
        "adapt@ulmfit",
        "unlabelled@aws-type-baselines",
        "baseline@aws-type",
        "finetune@aws-type-ulmfit-adapted",
        "evaluate@aws-type",
        "report",
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    actual = {}
    for stage in stages:
        command = [sys.executable, "-c", SCRIPT, stage]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, (stage, done.stderr)
        actual[stage] = done.stdout.splitlines()[-1]
    assert actual == dict.fromkeys(stages, "unknown:")
