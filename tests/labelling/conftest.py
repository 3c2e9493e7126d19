"""A project with a task of a few labels and text without labels."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.settings.loading import load_params
from components.settings.params import Params
from tests.example_task import make_encoder, rows, write_jsonl  # noqa: F401

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Params]:
    """project(count=2, **keys of the task) -> settings; the working directory is the project's."""

    def make(count: int = 2, **keys: Any) -> Params:
        monkeypatch.chdir(tmp_path)
        write_jsonl(Path("task/train.jsonl"), rows(count)) if count else None
        write_jsonl(Path("task/test.jsonl"), rows(2, offset=200))
        write_jsonl(Path("domain/a.jsonl"), [{"text": row["text"]} for row in rows(20, offset=20)])
        raw = yaml.safe_load((ROOT / "params.yaml").read_text())
        raw["run"] |= {"out": "out", "tasks": ["things"]}
        raw["data"]["domain"] = {"path": "domain", "text": "text"}
        raw["data"]["tasks"] = {"things": {"path": "task", "dev": None, "budgets": [2], **keys}}
        raw["registry"] = {"tracking": f"sqlite:///{tmp_path}/registry.db"}
        for section in ("adapt_task", "intermediate_tasks", "together", "promote", "checks"):
            raw.pop(section, None)
        Path("params.yaml").write_text(yaml.safe_dump(raw))
        return load_params(Path("params.yaml"))

    return make


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]
