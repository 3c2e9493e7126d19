"""The summary at the end of a run: scores, decisions, report, registry."""

from collections.abc import Mapping
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from components.core.artifacts import read_json
from components.core.errors import ConfigError
from components.registry.decide import Decision, read_decisions
from components.registry.explain import Evaluated
from components.reporting.advice import advice, answer
from components.reporting.findings import FOLDER, cell, read
from flows.repository import Project

#: In the folder of a run: the decisions of the stage `promote`.
DECISION = Path("registry/decision.json")


def lines(project: Project, *, decided: bool = True, brief: bool = False) -> list[str]:
    """The summary of a run.

    Args:
        decided: whether the stage `promote` has run; otherwise its decision comes from an earlier run.
        brief: whether there is one score for a task in place of the table, and no next step.
    """
    out, tasks = project.out, project.settings.run.tasks
    shown = score if brief else scores
    content = [line for task in tasks for line in shown(out, task)]
    # The check before the run has printed them.
    content += [line for line in checks(out) if "warning" in line and not brief]
    content += drift(out)
    content += decisions(project, decided=decided)
    content += [f"{task}: next: {step}" for task in tasks if not brief and (step := next_step(out, task))]
    content += [f"report: {report}" for report in reports(project) if report.suffix == ".html"]
    return content


def next_step(out: Path, task: str) -> str:
    """What to do next for a task, with the command; empty without an evaluation."""
    evaluation = evaluated(out, task)
    steps = advice(task, evaluation, system=decision_of(out, task).current) if evaluation else []
    return next((f"{step.text} `{step.command}`" for step in steps), "")


def drift(out: Path) -> list[str]:
    """The last comparison of served traffic with training, for each task that has one."""
    results = [read(path) for path in sorted((out / FOLDER).glob("drift-*")) if path.is_dir()]
    return [f"drift: {content.numbers['sentence']} (checked {content.numbers['time']})" for content in results]


def checks(out: Path) -> list[str]:
    """The violations of the checks of new data, as warnings, or that there are none."""
    content = read_json(out / "checks" / "checks.json", made_by="the stage checks", missing_ok=True)
    if not content:
        return []
    lines = [
        f"data: warning: {finding}" + (f"; {unit['accepted']}" if unit["accepted"] else "")
        for unit in content.values()
        for finding in unit["findings"]
    ]
    return lines or [f"data: {len(content)} inputs checked, no violation"]


def reports(project: Project) -> list[Path]:
    """The files of the report that exist: its page, and its numbers."""
    paths = (project.out / "report" / name for name in ("report.html", "report.json"))
    return [path for path in paths if path.is_file()]


def scores(out: Path, task: str) -> list[str]:
    """The primary metric on the test split with its interval: one row per system, one column per label budget with the
    mean over the seeds, and one for the model that can be registered: the average of the seeds of the largest budget.
    One sentence follows, what transfer was worth; the report has the differences of all pairs."""
    content = evaluated(out, task)
    if not content:
        return []
    title = f"{task}: {content['titles'][content['main']]}, {content['confidence']:.0%} interval"
    table, rows = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left"), score_rows(content)
    for number, column in enumerate(rows[0] if rows else ()):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row.values())
    with StringIO() as text:
        # Wide enough for all intervals, so that no cell is wrapped.
        Console(file=text, width=66 + 24 * len(content["budgets"])).print(table)
        drawn = [line.rstrip() for line in text.getvalue().splitlines() if line.strip()]
    sentence = answer(content)
    return [*drawn, *([f"{task}: {sentence}"] if sentence else [])]


def evaluated(out: Path, task: str) -> dict[str, Any]:
    """The evaluation of a task; empty without one."""
    path = out / "evaluation" / task / "evaluation.json"
    return dict(read_json(path, made_by=f"the stage evaluate@{task}", missing_ok=True))


def score_rows(content: Mapping[str, Any]) -> list[dict[str, str]]:
    """The table of an evaluation, a row for each system: column -> text."""
    rows = []
    for system in content.get("systems", ()):
        cells = {cell["budget"]: cell["scores"][content["main"]] for cell in system["budgets"]}
        artifact = system.get("artifact", {"scores": {}, "labels": ""})
        row = {content["unit"]: system["system"]}
        row |= {"all" if each < 0 else str(each): cell(cells.get(each)) for each in content["budgets"]}
        registered = cell(artifact["scores"].get(content["main"]))
        rows.append(row | {"registered": registered, "its labels": cell(artifact["labels"])})
    return rows


def score(out: Path, task: str) -> list[str]:
    """The scores of the current model, or of the best one if there is none: the primary metric, and accuracy."""
    content, current = evaluated(out, task), decision_of(out, task).current
    if not (tested := {system: artifact["scores"] for system, artifact in Evaluated(content).artifacts.items()}):
        return []
    system = current if current in tested else max(tested, key=lambda each: tested[each][content["main"]]["mean"])
    given, names = tested[system], dict.fromkeys((content["main"], "accuracy"))
    values = [f"{content['titles'].get(name, name)} {cell(given[name])}" for name in names if name in given]
    return [f"{task}: {', '.join(values)} of {system}, {content['confidence']:.0%} intervals"]


def decisions(project: Project, *, decided: bool = True) -> list[str]:
    """The verdict on each task's challenger, which model is served and why, and the warnings; the champion alone if
    nothing was decided."""
    content = read_decisions(project.out / DECISION)
    if not decided:
        return [
            f"{task}: nothing new to compare; " + (f"champion: version {number}" if number else "no champion")
            for task, decision in content.items()
            for number in [decision.alias_after]
        ]
    lines = []
    for task, decision in content.items():
        lines.append(f"{task}: {decision.story or decision.reasons[0]}")
        lines += [f"{task}: warning: {warning}" for warning in decision.warnings]
    return lines


def decision_of(out: Path, task: str) -> Decision:
    """The last decision about a task's challenger."""
    return read_decisions(out / DECISION).get(task, Decision())


def decided_at(project: Project) -> int:
    """When the stage `promote` last ran, in nanoseconds of the file system's clock. 0 if it has never run, or if the
    settings cannot be read: a commit that was just pulled may have keys that this process does not know."""
    with suppress(ConfigError, OSError):
        return (project.out / DECISION).stat().st_mtime_ns
    return 0
