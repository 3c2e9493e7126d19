"""The first page: what is served, whether transfer paid, what to do next."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from components.core.errors import HeadstartError
from components.core.progress import duration
from components.core.steps import step
from components.pages.project import VERDICTS, Champion, Project
from components.pipeline.costs import History
from components.registry.decide import Decision
from components.reporting import evaluations, findings
from components.reporting.advice import Advice, advice, answer
from components.reporting.findings import Chapter

#: Prefix of the findings of `headstart drift` (`components.pipeline.monitoring.drift_check`).
DRIFT = "drift-"
#: Number of stages of the costs that are named.
LONGEST = 5


@dataclass(frozen=True)
class TaskView:
    """What the overview shows of a task.

    Attributes:
        drift: (sentence, time of the check); None if it was never checked.
        history: decisions and changes in words, newest first.
    """

    name: str
    champion: Champion
    decision: Decision
    evaluation: Mapping[str, Any]
    chapter: Chapter | None
    drift: tuple[str, str] | None
    steps: Sequence[Advice]
    history: Sequence[str]

    @property
    def verdict(self) -> str:
        """The last decision in words."""
        return VERDICTS.get(self.decision.verdict, "")

    @property
    def reasons(self) -> Sequence[str]:
        """Why the served version was chosen; empty if the last decision, shown beside it, has the same reasons."""
        reasons = self.champion.reasons
        return () if reasons == self.decision.reasons else reasons

    @property
    def answer(self) -> str:
        """What transfer was worth, in one sentence; empty without a language model."""
        return answer(self.evaluation)


@dataclass(frozen=True)
class Cost:
    """What a complete run takes, by the last duration of each stage."""

    seconds: float
    longest: Sequence[tuple[str, str]]

    @property
    def time(self) -> str:
        return duration(self.seconds)


def task(project: Project, name: str) -> TaskView:
    evaluation, champion, decision = project.evaluation(name), project.champion(name), project.decision(name)
    system = champion.system if champion.version else ""
    # A person may have moved the alias since the decision.
    same = champion.version is not None and champion.version.number == decision.alias_after
    row = decision.current_of_run if same else ""
    if decision.verdict and champion.version is not None and not same:
        chosen = f"{system or 'a model'} (version {champion.version.number})"
        decision = replace(decision, story=f"{chosen} is the current model, chosen after the last decision")
    chapter = evaluations.scores(name, evaluation, champion=row) if evaluation else None
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
    return TaskView(name, champion, decision, evaluation, chapter, _drift(project, name), steps, project.history(name))


def _drift(project: Project, name: str) -> tuple[str, str] | None:
    directory = project.out / findings.FOLDER / f"{DRIFT}{name}"
    with suppress(HeadstartError):
        numbers = findings.read(directory).numbers
        return str(numbers["sentence"]), str(numbers["time"])
    return None


def cost(project: Project) -> Cost | None:
    """The cost of a complete run; None if no stage has run here."""
    last = {item.stage: item.seconds for item in History(project.root).read()}
    if not last:
        return None
    seconds = sum(last.values())
    longest = sorted(last.items(), key=lambda item: -item[1])[:LONGEST]
    return Cost(seconds, [(stage, duration(taken)) for stage, taken in longest])
