"""Settings and data of the throw-away project of the drills: short texts, and models that train in seconds."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import yaml

TASK = "drill"
LABELS = ("fire", "water", "wind")
WORDS = ("alarm", "backup", "cable", "disk", "engine", "fan", "gauge", "hose", "joint", "lamp", "motor", "pump", "tank")
#: Number of documents of each corpus, and of labelled rows of each split.
DOCUMENTS, ROWS = 240, 36
#: Checkpoints in seconds: often, so that a training of a few seconds is resumed and not repeated.
CHECKPOINT_SECONDS = 0.3


def settings(*, launcher: str, tokens: int) -> dict[str, Any]:
    """The content of params.yaml.

    Args:
        launcher: `local` or `ray`.
        tokens: budget of pretraining and of adaptation.
    """
    training = {
        "tokens": tokens,
        "window": 16,
        "batch_size": 8,
        "rate": 0.01,
        "checkpoint_seconds": CHECKPOINT_SECONDS,
    }
    corpora = {name: {"path": f"data/{name}", "text": "text"} for name in ("general", "domain")}
    task = {"path": f"data/tasks/{TASK}", "budgets": [5], "seeds": [0], "overlap": "report"}
    files = {split: f"{split}.jsonl" for split in ("train", "dev", "test")}
    return {
        "run": {
            "families": ["ulmfit"],
            "tasks": [TASK],
            "starts": ["pretrained", "adapted"],
            "out": "artifacts",
            "seed": 0,
        },
        "cluster": {"launcher": launcher, "workers": 1},
        "data": {
            **corpora,
            "parallel": {},
            "tasks": {TASK: {**task, **files, "text": "text", "label": "label", "slice": "place"}},
        },
        "ingest": {"near_duplicates": None, "heldout": 0.05},
        "tokenizer": {
            "kinds": ["wordpiece"],
            "domain_vocabulary": "domain",
            "wordpiece": {"vocabulary": 200, "min_frequency": 1},
        },
        "pretrain": {
            "ulmfit": {
                "tokenizer": "wordpiece",
                "model": {"embedding": 16, "hidden": 24, "layers": 1},
                "training": training,
            }
        },
        "adapt": {"ulmfit": {"training": training}},
        "finetune": {
            "ulmfit": {
                "max_length": 32,
                "epochs": 2,
                "min_steps": 40,
                "head_steps": 20,
                "training": {"rate": 0.002, "batch_size": 8, "checkpoint_seconds": CHECKPOINT_SECONDS},
            }
        },
        "registry": {"tracking": "sqlite:///mlflow.db"},
        "promote": {"latency_ms": None},
    }


def write(root: Path, *, launcher: str, tokens: int) -> None:
    """Write params.yaml and data/ below `root`. Equal arguments give equal bytes."""
    text = yaml.safe_dump(settings(launcher=launcher, tokens=tokens), sort_keys=False)
    (root / "params.yaml").write_text(text, encoding="utf-8")
    for corpus in ("general", "domain"):
        generator = random.Random(corpus)
        rows = [{"text": _sentence(generator, f"{corpus} {number}")} for number in range(DOCUMENTS)]
        _write_rows(root / "data" / corpus / "a.jsonl", rows)
    for split in ("train", "dev", "test"):
        generator = random.Random(split)
        rows = []
        for number in range(ROWS):
            label = LABELS[number % len(LABELS)]
            place = f"place {number // len(LABELS) % 6}"
            rows.append({"text": _sentence(generator, f"{split} {number} {label}"), "label": label, "place": place})
        _write_rows(root / "data" / "tasks" / TASK / f"{split}.jsonl", rows)


def add_documents(root: Path, *, name: str) -> None:
    """A new file of domain text, so that the next run has a new model."""
    generator = random.Random(name)
    rows = [{"text": _sentence(generator, f"{name} {number}")} for number in range(DOCUMENTS // 4)]
    _write_rows(root / "data" / "domain" / f"{name}.jsonl", rows)


def _sentence(generator: random.Random, name: str) -> str:
    words = " ".join(generator.choice(WORDS) for _ in range(generator.randint(8, 24)))
    return f"the {name} has {words}"


def _write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
