"""What a run ends with: the scores, the decision, where the report lies, how the registry is opened."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from components.config import Params, load_params


def lines(*, root: Path, params: Path) -> list[str]:
    """The last words of a run, for the terminal."""
    settings = load_params(params)
    out = root / settings.run.out
    report = out / "report" / "report.html"
    found = [line for task in settings.run.tasks for line in scores(out, task)]
    found += decisions(root=root, params=params)
    if report.is_file():
        found.append(f"report:  {report}")
    found.append(f"MLflow:  {registry(settings)}")
    return found


def scores(out: Path, task: str) -> list[str]:
    return []


def decisions(*, root: Path, params: Path) -> list[str]:
    """What became of each task's challenger, with the first reason."""
    settings = load_params(params)
    decided = _json(root / settings.run.out / "registry" / "decision.json").get("decisions", {})
    return [
        f"{task}: {decision['verdict']}" + (f" ({decision['reasons'][0]})" if decision.get("reasons") else "")
        for task, decision in decided.items()
    ]


def registry(settings: Params) -> str:
    """The address of the registry's page, or the command that serves it."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or settings.registry.tracking
    if uri.startswith(("http://", "https://")):
        return uri
    return f".venv/bin/mlflow ui --backend-store-uri {uri}, then open http://127.0.0.1:5000"


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
