"""The first page: what is served, whether transfer paid, what to do next."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from components.core.errors import HeadstartError
from components.core.steps import step
from components.pages.project import Champion, Project
from components.pipeline.costs import History
from components.registry.decide import Decision
from components.reporting import evaluations, findings
from components.reporting.advice import Advice, advice

#: Prefix of the findings of `headstart drift` (`components.pipeline.monitoring.drift_check`).
DRIFT = "drift-"


def task(project: Project, name: str) -> dict[str, Any]:
    """What the page shows of a task: its name, champion, decision, evaluation, screen (figure and table, or None),
    drift ((sentence, time of the check), or None), steps, history (decisions and changes in words, newest first), and
    the reasons of the served version."""
    evaluation, champion, decision = project.evaluation(name), project.champion(name), project.decision(name)
    system = champion.system if champion.version else ""
    # A person may have moved the alias since the decision.
    same = champion.version is not None and champion.version.number == decision.alias_after
    row = decision.current_of_run if same else ""
    if decision.verdict and champion.version is not None and not same:
        chosen = f"{system or 'a model'} (version {champion.version.number})"
        decision = replace(decision, story=f"{chosen} is the current model, chosen after the last decision")
    screen = evaluations.first_screen(evaluation, champion=row) if evaluation else None
    steps = advice(name, evaluation, system=system, flags=project.flags) if evaluation else []
    candidate = decision.candidate or {}
    if champion.version is None and candidate.get("version"):
        number = candidate["version"]
        steps = [
            Advice(
                f"There is no current model. Version {number} is the best candidate; take it if its errors do no harm.",
                f"{step('promote', task=name, version=number)}{project.flags}",
            ),
            *steps,
        ]
    return {
        "name": name,
        "champion": champion,
        "decision": decision,
        "evaluation": evaluation,
        "screen": screen,
        "drift": _drift(project, name),
        "steps": steps,
        "history": project.history(name),
        "reasons": reasons_of(champion, decision),
    }


def reasons_of(champion: Champion, decision: Decision) -> Sequence[str]:
    """Why the served version was chosen; empty if the last decision, shown beside it, has the same reasons."""
    return () if list(champion.reasons) == list(decision.reasons) else champion.reasons


def _drift(project: Project, name: str) -> tuple[str, str] | None:
    directory = project.out / findings.FOLDER / f"{DRIFT}{name}"
    with suppress(HeadstartError):
        numbers = findings.read(directory).numbers
        return str(numbers["sentence"]), str(numbers["time"])
    return None


def cost(project: Project) -> list[tuple[str, float]]:
    """Stage -> seconds of its last run here, the longest first."""
    last = {item.stage: item.seconds for item in History(project.root).read()}
    return sorted(last.items(), key=lambda item: -item[1])
