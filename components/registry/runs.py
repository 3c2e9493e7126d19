"""What the registry reads of a fine-tuned system: its scores on dev, and what the evaluation says of transfer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.config import FROZEN
from components.errors import ArtifactError, ConfigError, nearest

ALL = -1


@dataclass(frozen=True)
class DevScore:
    """How good a system is on dev at its largest label budget (-1: all labels): the mean over seeds of a metric, each
    with its best weights."""

    budget: int
    metric: str
    score: float


def read_dev_score(path: Path, *, metric: str | None = None) -> DevScore:
    """The dev score of the system in a `runs.json`.

    Args:
        path: of the file.
        metric: which score; None: the one that decided while learning.

    Raises:
        ArtifactError: the file is missing, damaged or empty.
        ConfigError: the runs have no such score.
    """
    try:
        # The same encoder left frozen stands in the same file; what is registered is the fine-tuned one.
        runs = [run for run in json.loads(path.read_text(encoding="utf-8")) if not run["start"].endswith(FROZEN)]
        largest = max((run["budget"] for run in runs), key=lambda budget: (budget == ALL, budget))
        best = [max(run["curve"], key=lambda point: point[run["score"]]) for run in runs if run["budget"] == largest]
        name = metric or str(runs[0]["score"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{path}: cannot be read ({error!r}); run the stage finetune again") from error
    if unknown := [point for point in best if name not in point]:
        raise ConfigError(f"promote.metric: {name!r} is no score of {path}{nearest(name, unknown[0])}")
    return DevScore(int(largest), name, sum(float(point[name]) for point in best) / len(best))


def transfer_warnings(evaluation: Path, system: str) -> list[str]:
    """Where the transferred system does worse on test than the same family from scratch: negative transfer, which a
    better mean can hide.

    Args:
        evaluation: output directory of the stage `evaluate`.
        system: `<family>-<start>`.

    Returns:
        A sentence for all rows, and for every class and slice, that lose beyond chance at the largest label budget
        (`components.evaluation.transfer`); none if there is no scratch system beside it, or no evaluation yet.

    Raises:
        ArtifactError: the evaluation is damaged.
    """
    path = evaluation / "evaluation.json"
    if not path.is_file():
        return []
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        family, start = next(
            (found["family"], found["start"]) for found in content["systems"] if found["system"] == system
        )
        parts = content["transfer"][family][-1]["parts"] if family in content["transfer"] else []
        return [
            _sentence(part, part["starts"][start])
            for part in parts
            if start in part["starts"] and part["starts"][start]["hurts"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{path}: damaged ({error!r}); run the stage evaluate again") from error
    except StopIteration:
        return []


def _sentence(part: dict[str, Any], found: dict[str, Any]) -> str:
    what = "all rows" if part["part"] == "all" else f"{part['part']} {part['name']!r} ({part['rows']} rows)"
    difference = found["difference"]
    return (
        f"transfer hurts on {what}: {found['score']['mean']:.3f} against {part['scratch']['mean']:.3f} from scratch, "
        f"difference {difference['mean']:+.3f} [{difference['low']:+.3f}, {difference['high']:+.3f}]"
    )
