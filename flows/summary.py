"""What a run ends with: the scores, the decision, where the report lies, how the registry is opened."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from components.settings.loading import load_params


def lines(*, root: Path, params: Path) -> list[str]:
    """The last words of a run, for the terminal."""
    settings = load_params(params)
    out = root / settings.run.out
    report = out / "report" / "report.html"
    found = [line for task in settings.run.tasks for line in scores(out, task)]
    found += decisions(root=root, params=params)
    if report.is_file():
        found.append(f"report:  {report}")
    found.append(f"MLflow:  {page(settings.registry.address)}")
    return found


def scores(out: Path, task: str) -> list[str]:
    """The deciding score on the test split, with its interval: a row a system, a column a label budget; first what
    transfer was worth, then what follows."""
    found = _json(out / "evaluation" / task / "evaluation.json")
    if not found:
        return []
    told = f"{task}: {found['titles'][found['main']]}, {found['confidence']:.0%} interval"
    table = Table(box=box.SIMPLE_HEAD, title=told, title_justify="left")
    table.add_column(found["unit"])
    for budget in found["budgets"]:
        table.add_column("all" if budget < 0 else str(budget), justify="right")
    for system in found["systems"]:
        cells = {cell["budget"]: cell["scores"][found["main"]] for cell in system["budgets"]}
        table.add_row(system["system"], *(_interval(cells.get(budget)) for budget in found["budgets"]))
    with StringIO() as text:
        # As wide as the intervals are: a cell that is broken in two cannot be read.
        Console(file=text, width=30 + 24 * len(found["budgets"])).print(table)
        rows = [line.rstrip() for line in text.getvalue().splitlines() if line.strip()]
    sentences = [found["headline"], *(statement["text"] for statement in found["statements"])]
    return [*rows, "", *(f"- {sentence}" for sentence in sentences if sentence), ""]


def _interval(score: dict[str, float] | None) -> str:
    return f"{score['mean']:.3f} [{score['low']:.3f}, {score['high']:.3f}]" if score else ""


def decisions(*, root: Path, params: Path) -> list[str]:
    """What became of each task's challenger, with the first reason."""
    settings = load_params(params)
    decided = _json(root / settings.run.out / "registry" / "decision.json").get("decisions", {})
    return [
        f"{task}: {decision['verdict']}" + (f" ({decision['reasons'][0]})" if decision.get("reasons") else "")
        for task, decision in decided.items()
    ]


def page(uri: str) -> str:
    """The address of the registry's page, or the command that serves it."""
    if uri.startswith(("http://", "https://")):
        return uri
    return f".venv/bin/mlflow ui --backend-store-uri {uri}, then open http://127.0.0.1:5000"


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
