"""From labelled data to a served model: `headstart fit [LABELLED]`, which is `headstart init` if there are no settings,
then `retrain`."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from components.cli.common import NEXT, PARAMS, DataFlags, flags
from components.core.artifacts import read_json
from components.core.errors import ConfigError
from components.settings.loading import load_params
from components.settings.minutes import FIRST_MINUTES
from flows import retrain_command
from flows.command import main
from flows.execution import run_headstart
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
    labelled, root = options.labelled, params.parent
    if not params.exists():
        if labelled is None:
            raise ConfigError(f"{params}: does not exist; name a labelled file: headstart fit data.csv")
        # Measuring encoders imports torch, whose memory would stay occupied in this process during the run.
        for line in run_headstart(
            "init", *options.arguments, "--", str(labelled), source="init", root=root, show=False
        ):
            if not line.startswith(NEXT):
                terminal.say(line, source="init", stays=SHOWN.search(line) is not None)
    else:
        if options.arguments:
            raise ConfigError(
                f"{params}: exists, so that the flags have no effect; change it, or run headstart init FILE --overwrite"
            )
        if labelled is not None:
            from components.cli.onboarding.project import renew

            terminal.say(f"{labelled}: the data of {renew(labelled, root=root)}", source="init", stays=True)
    retrain_command.command(params=params, verbose=options.verbose, brief=True)
    for line in served(params):
        terminal.say(line)


def served(params: Path) -> list[str]:
    """The next commands, or what to do for a model to be better than the baseline; the summary of the run says which
    model is the current one and why."""
    settings = load_params(params)
    out = params.parent / settings.run.out
    decisions = read_json(out / "registry" / "decision.json", made_by="the stage promote").get("decisions", {})
    lines = list[str]()
    for task, decision in decisions.items():
        model = decision.get("served")
        if model is None:
            evaluation = read_json(out / "evaluation" / task / "evaluation.json", made_by="evaluate", missing_ok=True)
            lines += [f"  {step}" for step in to_be_served(task, decision, evaluation)]
            continue
        lines += [
            f"  headstart predict new.csv predictions.csv --task {task}",
            f"  headstart serve --task {task}",
            f"  headstart suggest --task {task} --count 50    # which texts to label next",
        ]
    return [*lines, "  headstart ui    # pages: scores, errors, a text to try"]


def to_be_served(task: str, decision: Mapping[str, Any], evaluation: Mapping[str, Any]) -> list[str]:
    """What to do for a model of a task to be served."""
    rows, needed, count = (decision.get("test") or {}).get("rows"), decision.get("labels_needed"), decision.get("count")
    more = "label more test rows"
    if rows and needed and count:
        more = f"label about {math.ceil((needed - count) * rows / count):,} more test rows, which would show this gain"
    learn = max((each["artifact"]["labels"] for each in evaluation.get("systems", []) if "artifact" in each), default=0)
    steps = [more, "label more rows to learn from" + (f" than {learn:,}" if learn else "")]
    return [
        *steps,
        "check the labels: headstart check; headstart ui shows the errors",
        f"or serve a version against the rule: headstart promote --task {task} --version NUMBER --reason WHY",
    ]


if __name__ == "__main__":
    main(command, interrupted=retrain_command.INTERRUPTED)
