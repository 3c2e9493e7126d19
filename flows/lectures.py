"""`headstart lectures [CLAIM ...]`: the runs behind the claims, their studies, and one page."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from components.core.errors import ConfigError, HeadstartError, nearest
from components.core.progress import duration
from components.pipeline import costs
from components.pipeline.costs import History
from components.reporting.findings import Findings
from components.settings.loading import load_params
from components.settings.registry import find_repository
from components.studies.frame import Outputs
from components.studies.lectures import PAGE, PARAMS, Claim, measure, read_claims, write_pages
from flows import retrain_command
from flows.execution import run_headstart
from flows.repository import Project
from flows.run import upcoming
from flows.stages import Spending
from flows.why import plan_to_explain

#: Durations of the stages of a run, beside its settings.
RECORDED = "durations.jsonl"


def command(
    names: Annotated[list[str] | None, typer.Argument(help="Claims; all by default.", metavar="[CLAIM]...")] = None,
    params: Annotated[
        Path | None, typer.Option(help="Settings of the run; by default the experiments of the claims.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of lectures.md; the run's output folder by default.")
    ] = None,
    judge: Annotated[
        bool, typer.Option("--judge", help="Only apply the rules to the tables in --output, and write the page.")
    ] = False,
) -> None:
    """Measure what lectures on transfer learning say, and write one page about it."""
    root = find_repository(Path()) or Path.cwd()
    params, output = (path and Path(os.path.relpath(path, root)) for path in (params, output))
    os.chdir(root)
    claims = read_claims(Path())
    for name in names or []:
        if name not in claims:
            raise ConfigError(f"unknown claim {name!r}{nearest(name, claims)}")
    chosen = {name: claims[name] for name in names or claims}
    if judge and output is None:
        raise ConfigError("--judge: name the folder of lectures.md with --output")
    if judge and output is not None:
        write_pages(claims, output)
        print(f"page: {output / PAGE}")
        return
    files = list(dict.fromkeys(params or claim.run for claim in chosen.values()))
    for file in files:
        if not file.is_file():
            raise ConfigError(f"{file}: does not exist; name the settings of a run with --params")
    outputs = {file: Outputs(load_params(file)) for file in files}
    failed = _lacking({name: (claim, outputs[params or claim.run]) for name, claim in chosen.items()})
    done = dict[str, Findings]()
    kept = {name: claim for name, claim in chosen.items() if name not in failed}
    for file in dict.fromkeys(params or claim.run for claim in kept.values()):
        of_file = [claim for claim in kept.values() if claim.run == file]
        goals = [*dict.fromkeys(stage for claim in of_file for stage in claim.stages)]
        print(expected(file, goals), flush=True)
        retrain_command.run(file, goals=goals)
        examples = (task for claim in of_file for task in claim.examples)
        for task in dict.fromkeys(examples):
            run_headstart("stage", "examples", "--item", task, "--params", str(file), source="examples")
    folder = output or Outputs(load_params(params or PARAMS)).out
    for name, claim in kept.items():
        file = params or claim.run
        print(f"{name}: {claim.command(file)}", flush=True)
        try:
            entry = measure(name, claims, outputs[file], params=file, output=folder, done=done)
        except HeadstartError as error:
            failed.append(name)
            print(f"{name}: not measured: {error}", flush=True)
            continue
        print(f"{name}: {'; '.join(filter(None, claim.judge(entry)))}", flush=True)
    if len(failed) < len(chosen):
        print(f"page: {folder / PAGE}")
    # A run of one's own may lack what a claim is about.
    if failed and (params is None or len(failed) == len(chosen)):
        raise ConfigError(f"not measured: {', '.join(failed)}; the reasons are above")


def expected(file: Path, goals: Sequence[str]) -> str:
    """How many stages are missing for some goals, and how long they take: by the history of this machine, and where it
    has none, by the durations that are recorded beside the settings."""
    project = Project(file)
    plan = replace(plan_to_explain(project), goals=tuple(goals))
    estimates = Spending(project).estimates(upcoming(plan, settled=True))
    recorded = History(file.parent, RECORDED).read()
    machines = " or ".join(dict.fromkeys(each.machine for each in recorded))
    recorded = [replace(each, machine=machines) for each in recorded]
    basis = "by the history of this machine"
    for place, each in enumerate(estimates):
        if each.seconds is None and recorded:
            estimates[place] = costs.estimate(each.stage, each.work, recorded, machine=machines)
            basis = f"measured on {machines}"
    seconds = [each.seconds for each in estimates if each.seconds is not None]
    if not estimates:
        return f"{file}: nothing is missing"
    hours = f"{'about' if len(seconds) == len(estimates) else 'more than'} {duration(sum(seconds))}" if seconds else ""
    return f"{file}: {len(estimates)} stage(s) to run, {hours or 'of unknown time'} ({basis})"


def _lacking(claims: Mapping[str, tuple[Claim, Outputs]]) -> list[str]:
    """The claims whose run lacks a setting that they need; says so before anything is trained."""
    lacking = []
    for name, (claim, outputs) in claims.items():
        try:
            claim.check(outputs)
        except ConfigError as error:
            lacking.append(name)
            print(f"{name}: not measured: {error}", flush=True)
    return lacking
