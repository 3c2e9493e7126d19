"""From labelled data to a model: `headstart fit [LABELLED]`, which is `headstart init` if there are no settings,
then `retrain`."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from components.cli.common import NEXT, PARAMS, DataFlags, flags
from components.core.errors import ConfigError
from components.core.steps import step
from components.registry.decide import Decision, read_decisions
from components.reporting.advice import labels_used, not_told_apart
from components.settings.minutes import FIRST_MINUTES
from components.settings.params import Params
from components.settings.section import BASELINE
from components.settings.tasks import LABELLED
from flows import retrain_command, summary
from flows.execution import run_headstart
from flows.repository import Project
from flows.retrain_command import INTERRUPTED as INTERRUPTED
from flows.retrain_command import Verbose
from flows.terminal import terminal

#: Lines of `init` that are always shown: the rows, and what was guessed.
SHOWN = re.compile(r"rows to learn from|classes in train|\bcolumn |--|warning", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class FitFlags(DataFlags):
    labelled: Annotated[
        Path | None, typer.Argument(help="Labelled file or folder; by default that of params.yaml.")
    ] = None
    minutes: Annotated[
        float | None, typer.Option(help=f"Limit of training in minutes; {FIRST_MINUTES:g} by default.")
    ] = None

    verbose: Verbose = False

    @property
    def arguments(self) -> list[str]:
        given = self.given | ({} if self.minutes is None else {"minutes": self.minutes})
        arguments = [*(f"--unlabelled={path}" for path in self.unlabelled), *(f"--start={each}" for each in self.start)]
        for name, value in given.items():
            flag = name.replace("_", "-")
            negated = "no-" * (value is False)
            arguments.append(f"--{negated}{flag}" if isinstance(value, bool) else f"--{flag}={value}")
        return arguments


@flags
def command(options: FitFlags) -> None:
    """Train, score, register and promote; then print the current model and the next commands."""
    terminal.style = "verbose" if options.verbose else "text"
    params = Path.cwd() / PARAMS
    labelled = options.labelled
    if not params.exists():
        if labelled is None:
            raise ConfigError(f"{params}: does not exist; name a labelled file: headstart fit data.csv")
        # Measuring encoders imports torch, whose memory would stay occupied in this process during the run.
        for line in run_headstart("init", *options.arguments, "--", str(labelled), source="init", show=False):
            if not line.startswith(NEXT):
                terminal.say(line, source="init", stays=SHOWN.search(line) is not None)
    else:
        if options.arguments:
            raise ConfigError(
                f"{params}: exists, so that the flags have no effect; change it, or run headstart init FILE --overwrite"
            )
        if labelled is not None:
            from components.cli.onboarding.project import renew

            terminal.say(f"{labelled}: the data of {renew(labelled, root=params.parent)}", source="init", stays=True)
    retrain_command.command(params=params, verbose=options.verbose, brief=True)
    for line in served(params):
        terminal.say(line)


def served(params: Path) -> list[str]:
    """The next commands, or what to do for a model to be better than the baseline; the summary of the run says which
    model is the current one and why."""
    project = Project(params)
    settings, out, lines = project.settings, project.out, list[str]()
    for task, decision in read_decisions(out / summary.DECISION).items():
        source = settings.data.tasks[task]
        model, labelled = decision.served, source.kind in LABELLED
        evaluation = summary.evaluated(out, task)
        lines += [_not_told_apart(settings, task, *pair) for pair in not_told_apart(evaluation) if labelled]
        if model is None:
            share = source.test_share if source.test is None else None
            lines += [f"  {step}" for step in to_be_served(task, decision, evaluation, share=share)]
            continue
        lines += [
            f"  {step('predict', task=task)}    # FILE: texts, as in the labelled data",
            f"  {step('serve', task=task)}",
            *[f"  {step('suggest', task=task)}    # which texts of FILE to label next"] * labelled,
        ]
    return [*lines, f"  {step('ui')}    # pages: scores, errors, a text to try"]


def _not_told_apart(settings: Params, task: str, first: str, second: str, rate: float) -> str:
    from components.labelling.command import rows_to_read  # imports scikit-learn, which most runs do not need

    rows = rows_to_read(settings, task=task, labels=(first, second))
    return (
        f"the labels {first!r} and {second!r} are not told apart: {rate:.0%} of their test rows are answered with the "
        f"other one; read again {', '.join(rows)}{' and ' * bool(rows)}what `{step('label-quality', task=task)}` lists"
    )


def to_be_served(
    task: str, decision: Decision, evaluation: Mapping[str, Any], *, share: float | None = None
) -> list[str]:
    """How to try the best model of a task that has no current one, what would help for this verdict, and how to choose
    it in spite of the rule. `share`: of the rows that become test rows; None: the test rows are a file."""
    number = (decision.candidate or {}).get("version")
    steps = [f"{step('try', task=task, version=number)}    # the best candidate, to try"] * bool(number)
    needed, count, rows = decision.labels_needed, decision.count, decision.test.get("rows")
    # Of a gain that is shown to be too small, or of none, more test rows would show the same.
    if decision.verdict != "reject" and rows and needed and count:
        more = math.ceil((needed - count) * rows / count)
        if share is None:
            steps.append(f"label about {more:,} more test rows: they would show this gain")
        else:
            steps.append(
                f"label about {math.ceil(more / share):,} more rows: {share:.0%} of them become test rows, and about "
                f"{more:,} more of these would show this gain"
            )
    stored = [each for each in evaluation.get("systems", []) if "artifact" in each]
    encoders = {each["family"]: each.get("budgets", []) for each in stored if each.get("family") != BASELINE}
    ways = [(family, way) for family, cells in encoders.items() for cell in cells[-1:] for way in cell.get("ways", [])]
    short = next(((family, way) for family, way in ways if way["share"] < 1), None)
    if not encoders:
        start = "headstart init FILE --start NAME --overwrite"
        steps.append(f"start from a published encoder: {step('starts')}; then {start}")
    elif short is not None:
        steps.append(
            f"give the training more time: of the steps of {short[1]['way']}, {short[1]['share']:.0%} were within "
            f"finetune.{short[0]}.auto.minutes of params.yaml (--minutes of init)"
        )
    else:
        steps.append(f"try another encoder: {step('starts')}")
    learn = labels_used(evaluation)
    steps.append("label more rows to learn from" + (f" than {learn:,}" if learn else ""))
    steps.append(f"check the labels: {step('check')}; {step('ui')} shows the errors")
    return steps + [f"or choose it against the rule: {step('promote', task=task, version=number)}"] * bool(number)
