"""What a run would do, why, and what it would cost: `headstart plan`. Nothing is run or changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from io import StringIO
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from components.cli.common import PARAMS, ParamsFile
from components.pipeline import costs
from components.pipeline.costs import Estimate, Total, Work
from components.settings.loading import load_params
from flows.budget import Spending
from flows.command import main
from flows.repository import find_root
from flows.run import registry_is_unchanged, upcoming
from flows.why import plan_to_explain

WIDTH = 150


def lines(estimates: Sequence[Estimate], total: Total, *, excess: str = "") -> Iterator[str]:
    """The table of the stages, the total and the budget."""
    if not estimates:
        yield "every stage is up to date; a run would cost nothing"
        return
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("stage", no_wrap=True)
    table.add_column("why", max_width=50)
    for name in ("work", "time", "range"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("based on", no_wrap=True)
    for estimate in estimates:
        table.add_row(
            estimate.stage,
            estimate.why,
            _work(estimate.work),
            _time(estimate.seconds),
            _range(estimate.low, estimate.high),
            estimate.basis,
        )
    with StringIO() as text:
        Console(file=text, width=WIDTH).print(table)
        yield from (line.rstrip() for line in text.getvalue().splitlines() if line.strip())
    yield ""
    tokens = f", {_amount(total.tokens)} training tokens" if total.tokens else ""
    if len(total.unknown) == len(estimates):
        yield f"total: unknown{tokens}; no history on this machine, the first run records it"
        return
    least = "at least " if total.unknown else ""
    hours = f", {total.gpu_hours:.2f} GPU hours" if total.gpu_hours else ""
    yield f"total: {least}{_time(total.seconds)} ({_range(total.low, total.high)}){tokens}{hours}"
    if total.unknown:
        yield f"no history on this machine: {', '.join(total.unknown)}; their first run records it"
    if excess:
        yield f"over budget: {excess}; `headstart retrain` would refuse to start"


def _work(work: Work) -> str:
    if work.unit == "run":
        return ""
    return f"{_amount(work.amount)} {work.unit if work.unit != 'bytes' else 'B'}"


def _amount(count: float) -> str:
    scales = ((1e9, " G"), (1e6, " M"), (1e3, " k"))
    scale, name = next((entry for entry in scales if count >= entry[0]), (1.0, ""))
    return f"{count / scale:,.3g}{name}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _range(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{_time(low)} to {_time(high)}"


def command(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Show what a run would do, why, and what it would cost; nothing is run."""
    file = params.resolve()
    root = find_root(file.parent)
    settings = load_params(file)
    plan = plan_to_explain(file)
    spending = Spending(settings, root=root)
    estimates = spending.estimates(upcoming(plan, settled=registry_is_unchanged(file, root=root)))
    total = costs.total(estimates)
    excess = spending.excess(total)
    if as_json:
        print(json.dumps(_json(estimates, total, excess, spending.machine), indent=1))
        return
    if plan.data == "changed":
        print("data: new version; `headstart retrain` adds it to DVC first")
    for line in lines(estimates, total, excess=excess):
        print(line)


def _json(estimates: Sequence[Estimate], total: Total, excess: str, machine: str) -> dict[str, object]:
    return {
        "machine": machine,
        "stages": [asdict(estimate) for estimate in estimates],
        "total": asdict(total),
        "over_budget": excess or None,
    }


if __name__ == "__main__":
    main(command)
