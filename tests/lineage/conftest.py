"""The shipped pipeline with tiny sizes: run by the functions of its stages, committed to DVC, registered in MLflow."""

import gzip
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml

from components.pipeline.dvc_yaml import write_dvc_yaml
from components.pipeline.lineage import forget as removal
from components.pipeline.lineage import trace as tracing
from components.pipeline.running import run_stage
from components.pipeline.stages import STAGES
from components.settings.loading import load_params
from components.settings.params import Params
from tests.conftest import dvc
from tests.raw_data import write_raw_data

ROOT = Path(__file__).parents[2]
#: A document of the domain, and with other case a row of train.
SECRET = "Agnetha Quisling lives in Elmstreet 17 and pays by invoice every month"
#: The stages that hold or see it, in order, and `register`.
RAN = (
    "identity",
    "examples",
    "ingest",
    "tokenizer",
    "tokenize",
    "pretrain",
    "adapt",
    "scratch",
    "unlabelled",
    "baseline",
    "finetune",
)


class Project:
    """A repository with raw data, outputs, DVC's cache and a registry."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def params(self) -> Params:
        return load_params(Path("params.yaml"))

    def write(self) -> None:
        for name in ("dvc.yaml", "requirements.lock", ".dvc/config", ".dvcignore", ".gitignore"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        write_raw_data(self.root)
        with gzip.open(self.root / "data/domain/aws/b.jsonl.gz", "wt") as file:
            file.writelines(json.dumps({"text": f"record {number} of the domain"}) + "\n" for number in range(9))
            file.write(json.dumps({"text": SECRET}) + "\n")
        row = {"text": f"{SECRET.upper()}!", "label": "one", "service": "s"}
        with (self.root / "data/tasks/aws-type/train.jsonl").open("a") as labels:
            labels.write("\n" + json.dumps(row) + "\n")
        (self.root / "labelled.csv").write_text(f"text,label\n{SECRET},one\nother,two\n")
        raw = yaml.safe_load((ROOT / "params.yaml").read_text())
        raw["cluster"] |= {"launcher": "local"}
        raw["run"]["starts"] = ["scratch", "adapted"]
        raw["data"]["tasks"] = {"aws-type": raw["data"]["tasks"]["aws-type"] | {"budgets": ["all"], "seeds": [0]}}
        raw["tokenizer"]["wordpiece"]["vocabulary"] = 80
        raw["pretrain"]["ulmfit"]["model"] = {"embedding": 8, "hidden": 8, "layers": 1}
        for section in ("pretrain", "adapt"):
            raw[section]["ulmfit"]["training"] |= {"tokens": 1000, "batch_size": 4, "window": 16, "vectors": False}
        tiny = {"epochs": 1, "min_steps": 1, "head_steps": 2, "head_penalties": [10.0], "evaluations": 1}
        raw["finetune"]["ulmfit"] |= tiny | {"scratch": {"epochs": 1}}
        (self.root / "params.yaml").write_text(yaml.safe_dump(raw))
        write_dvc_yaml(load_params(self.root / "params.yaml"), self.root / "params.yaml")
        subprocess.run(["git", "init", "-q", "-b", "main"], cwd=self.root, check=True)
        self.dvc("add", "-q", "data")

    def dvc(self, *arguments: str) -> None:
        dvc(self.root, *arguments)

    def run(self) -> None:
        """All stages of `RAN`, then the registration."""
        for stage in RAN:
            for item in STAGES[stage].items(self.params):
                run_stage(stage, self.params, item=item)
        committed = [
            f"{stage}@{item}" for stage in RAN if stage != "identity" for item in STAGES[stage].items(self.params)
        ]
        self.dvc("commit", "-q", "-f", *committed)
        run_stage("register", self.params)

    def holders(self, words: str) -> list[str]:
        """Files below the repository, those of git left out, that hold these words in any case: their bytes, or those
        that decompression gives. A search of its own, independent of the code under test."""
        actual = []
        for path in self.root.rglob("*"):
            if path.is_file() and ".git" not in path.relative_to(self.root).parts:
                raw = path.read_bytes()
                if raw.startswith(b"\x1f\x8b"):
                    raw = gzip.decompress(raw)
                elif raw.startswith(b"PAR1"):
                    raw = json.dumps(_columns(path)).encode()
                if words.lower().encode() in raw.lower():
                    actual.append(path.relative_to(self.root).as_posix())
        return sorted(actual)


def _columns(path: Path) -> dict[str, Any]:
    table = pq.read_table(path)
    texts = [name for name in table.column_names if not pa.types.is_fixed_size_binary(table.schema.field(name).type)]
    return dict(table.select(texts).to_pydict())


@pytest.fixture(autouse=True)
def cache_of_inputs(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The node's cache of inputs, apart from that of this machine."""
    folder = tmp_path_factory.mktemp("node")
    monkeypatch.setattr("components.pipeline.lineage.forget.node_cache", lambda: folder)
    return folder


@pytest.fixture
def unregistered(monkeypatch: pytest.MonkeyPatch) -> None:
    """No registry: no version has learned from anything."""
    monkeypatch.setattr(tracing, "learners", lambda *_, **__: [])
    monkeypatch.setattr(removal, "record_taints", lambda *_, **__: None)
    monkeypatch.setattr(removal, "connect", lambda _: None)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project after its first run."""

    def one_by_one(function, items, *, settings, gpu_bytes):
        for index, item in enumerate(items):
            yield index, function(item)

    monkeypatch.setattr("components.learners.finetuning.execution.map_parallel", one_by_one)
    # A corpus of an earlier version holds the texts of judged rows, too.
    monkeypatch.setattr("components.data.ingestion.stage.read_judged", lambda paths: [])
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    made = Project(tmp_path)
    made.write()
    made.run()
    return made
