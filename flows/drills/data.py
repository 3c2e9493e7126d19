"""Settings and data of the temporary project of the drills: short texts, and models that train in seconds."""

from __future__ import annotations

import json
import random
from pathlib import Path

TASK = "drill"
LABELS = ("fire", "water", "wind")
WORDS = ["alarm", "backup", "cable", "disk", "engine", "fan", "gauge", "hose", "joint", "lamp", "motor", "pump", "tank"]
#: Number of documents of each corpus, and of labelled rows of each split.
DOCUMENTS, ROWS = 240, 36
#: Checkpoints are written often, so that a training of a few seconds is resumed and not repeated.
SETTINGS = """\
run: {families: [ulmfit], tasks: [drill], starts: [pretrained, adapted], out: artifacts, seed: 0}
cluster: {launcher: LAUNCHER, workers: 1, checkpoint_seconds: 0.3}
data:
  general: {path: data/general, text: text}
  domain: {path: data/domain, text: text}
  parallel: {}
  tasks:
    drill: {path: data/tasks/drill, train: train.jsonl, dev: dev.jsonl, test: test.jsonl, text: text, label: label,
            slice: place, budgets: [5], seeds: [0], overlap: report}
ingest: {near_duplicates: null, heldout: 0.05}
tokenizer: {kinds: [wordpiece], domain_vocabulary: domain, wordpiece: {vocabulary: 200, min_frequency: 1}}
pretrain:
  ulmfit:
    tokenizer: wordpiece
    model: {embedding: 16, hidden: 24, layers: 1}
    training: &training {tokens: TOKENS, window: 16, batch_size: 8, rate: 0.01}
adapt: {ulmfit: {training: *training}}
finetune:
  ulmfit:
    max_length: 32
    epochs: 2
    min_steps: 40
    head_steps: 20
    training: {rate: 0.002, batch_size: 8}
registry: {tracking: "sqlite:///mlflow.db"}
promote: {latency_ms: null}
"""


def write(root: Path, *, launcher: str, tokens: int) -> None:
    """Write params.yaml and data/ below `root`. Equal arguments give equal bytes."""
    text = SETTINGS.replace("LAUNCHER", launcher).replace("TOKENS", str(tokens))
    (root / "params.yaml").write_text(text, encoding="utf-8")
    for corpus in ("general", "domain"):
        chance = random.Random(corpus)
        rows = [{"text": _sentence(chance, f"{corpus} {number}")} for number in range(DOCUMENTS)]
        _write_rows(root / "data" / corpus / "a.jsonl", rows)
    for split in ("train", "dev", "test"):
        chance, rows = random.Random(split), []
        for number in range(ROWS):
            label, place = LABELS[number % len(LABELS)], f"place {number // len(LABELS) % 6}"
            rows.append({"text": _sentence(chance, f"{split} {number} {label}"), "label": label, "place": place})
        _write_rows(root / "data" / "tasks" / TASK / f"{split}.jsonl", rows)


def _sentence(chance: random.Random, name: str) -> str:
    return f"the {name} has {' '.join(chance.choice(WORDS) for _ in range(chance.randint(8, 24)))}"


def _write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
