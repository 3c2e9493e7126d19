"""Measured cells of `benchmarks/few_labels.py` in a file of one JSON object per line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from components.data.tasks.kinds import scoring_for


@dataclass(frozen=True, order=True)
class Key:
    """A cell: data set, label budget per class, draw (seed of the rows and of learning), and system."""

    set: str
    budget: int
    draw: int
    system: str

    def __str__(self) -> str:
        return f"{self.set} {self.budget} draw {self.draw} {self.system}"


class Cells:
    """The file of the cells. Lines are only appended; of two lines with the same key the later one counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found: dict[Key, dict[str, Any]] = {}
        self._size = -1

    def __iter__(self) -> Iterator[tuple[Key, dict[str, Any]]]:
        return iter(self._read().items())

    def _read(self) -> dict[Key, dict[str, Any]]:
        # Another process may have added cells.
        size = self.path.stat().st_size if self.path.is_file() else 0
        if size == self._size:
            return self._found
        result: dict[Key, dict[str, Any]] = {}
        if size:
            for line in self.path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue  # the line that a killed run was writing
                key = Key(**{name: entry.pop(name) for name in ("set", "budget", "draw", "system")})
                result[key] = entry
        self._found, self._size = result, size
        return result

    def has(self, key: Key, digest: str) -> bool:
        """Whether a cell was measured on the set with this digest."""
        return self._read().get(key, {}).get("data") == digest

    def add(self, key: Key, entry: dict[str, Any]) -> None:
        """Append a cell."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = not self.path.is_file() or self.path.read_bytes()[-1:] in (b"\n", b"")
        line = json.dumps(asdict(key) | entry, ensure_ascii=False) + "\n"
        with self.path.open("a", encoding="utf-8") as file:
            # After a line that a killed run did not finish, a new one begins.
            file.write(line if whole else f"\n{line}")
            file.flush()
            os.fsync(file.fileno())


def score(predicted: Sequence[int], truth: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Macro F1 and accuracy of predicted labels, by the metrics that Headstart's evaluation uses."""
    answers = list(np.eye(len(names), dtype=np.float32)[np.asarray(predicted)])
    targets = [np.array([label], dtype=np.float64) for label in truth]
    scores = scoring_for("classification", list(names)).score([("",)] * len(targets), targets, answers)
    return {name: float(scores[name]) for name in ("macro_f1", "accuracy")}
