"""What a run would do, why, and what it would cost: `headstart plan`. Nothing is run or changed."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from components.cli.common import PARAMS, ParamsFile, print_table
from components.core.progress import duration
from components.pipeline import costs
from components.pipeline.checks import changed_originals
from components.pipeline.costs import Estimate, Total, Work
from flows.repository import Project
from flows.run import registry_is_unchanged, upcoming
from flows.stages import Spending
from flows.why import plan_to_explain

WIDTH = 160


def total_lines(estimates: Sequence[Estimate], total: Total, *, excess: str = "") -> Iterator[str]:
    """The total and the budget in words."""
    tokens = f", {_amount(total.tokens)} training tokens" if total.tokens else ""
    if len(total.unknown) == len(estimates):
        yield f"total: unknown{tokens}; no history on this machine, the first run records it"
        return
    least = "at least " if total.unknown else ""
    hours = f", {total.gpu_hours:.2f} GPU hours" if total.gpu_hours else ""
    between = _range(total.low, total.high, form=" ({})")
    yield f"total: {least}{_time(total.seconds)}{between}{tokens}{hours}"
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
    return "?" if seconds is None else duration(seconds)


def _range(low: float | None, high: float | None, form: str = "{}") -> str:
    return "" if low is None or high is None or low == high else form.format(f"{duration(low)} to {duration(high)}")


def command(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    params: ParamsFile = PARAMS,
) -> None:
    """Show what a run would do, why, and what it would cost; nothing is run."""
    project = Project(params)
    os.chdir(project.root)
    plan = plan_to_explain(project)
    spending = Spending(project)
    estimates = spending.estimates(upcoming(plan, settled=registry_is_unchanged(project)))
    total = costs.total(estimates)
    excess = spending.excess(total)
    if as_json:
        content = {"machine": spending.machine, "stages": [asdict(each) for each in estimates], "total": asdict(total)}
        print(json.dumps(content | {"over_budget": excess or None}, indent=1))
        return
    if plan.data == "changed":
        print("data: new version; `headstart retrain` records it first")
    for line in changed_originals(project.settings, project.file.parent):
        print(line)
    if not estimates:
        print("every stage is up to date; a run would cost nothing")
        return
    rows = [
        (of.stage, of.why, _work(of.work), _time(of.seconds), _range(of.low, of.high), of.basis) for of in estimates
    ]
    print_table(("stage", "why", "work", "time", "range", "based on"), rows, width=WIDTH)
    for line in total_lines(estimates, total, excess=excess):
        print(line)
