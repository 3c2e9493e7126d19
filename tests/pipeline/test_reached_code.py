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
#: Runs each stage in a fork without modules of components, and prints those that it has loaded and that its identity
#: does not contain. Other packages are imported once.
SCRIPT = """
import os, sys
import pandas, pyarrow.parquet, pydantic, scipy.stats, sklearn.linear_model, tokenizers, torch
stage = ""
for each in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        stage = each
        break
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{each} failed")
if not stage:
    sys.exit()
from components.pipeline.identity import identity_of
from components.pipeline.running import run_stage
from components.settings.loading import load_params
before = {name for name in sys.modules if name.startswith("components")}
name = stage
stage, _, item = stage.partition("@")
params = load_params()
run_stage(stage, params, item=item)
code = identity_of(stage, item, params).code
from components.pipeline.code_identity import NEUTRAL, installed
neutral = [code, *(installed().closure(name).modules for name in NEUTRAL)]
paths = {path for modules in neutral for path in modules}
known = {path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in paths}
loaded = {name for name in sys.modules if name.startswith("components")} - before
print("unknown of", name, *sorted(loaded - known), flush=True)
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


#: In the order in which they can run.
STAGES = (
    "examples@aws-type",
    "ingest@general",
    "tokenizer@general-wordpiece",
    "tokenize@general-wordpiece",
    "pretrain@ulmfit",
    "ingest@domain",
    "tokenizer@domain-wordpiece",
    "tokenize@domain-wordpiece",
    "adapt@ulmfit",
    "unlabelled@aws-type-baselines",
    "baseline@aws-type",
    "finetune@aws-type-ulmfit-adapted",
    "evaluate@aws-type",
    "report",
)


@pytest.mark.parametrize("stages", [STAGES[:5], pytest.param(STAGES, marks=pytest.mark.slow)], ids=["first", "all"])
def test_every_loaded_module_is_in_the_identity(folder, stages):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *stages], cwd=folder, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("unknown of ")]
    assert said == [f"unknown of {stage}" for stage in stages]
