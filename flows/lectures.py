"""`headstart lectures [CLAIM ...]`: the run behind the claims, their studies, and one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from components.core.errors import ConfigError, HeadstartError, nearest
from components.reporting.findings import Findings
from components.settings.loading import load_params
from components.settings.registry import find_repository
from components.studies.frame import Outputs
from components.studies.lectures import CLAIMS, PAGE, PARAMS, measured, store
from flows import retrain_command
from flows.command import main
from flows.execution import run_headstart
from flows.processes import working
from flows.repository import environment
from flows.run import PLANNING


def command(
    names: Annotated[list[str] | None, typer.Argument(help="Claims; all by default.", metavar="[CLAIM]...")] = None,
    params: Annotated[
        Path, typer.Option(help="Settings of the run; by default the experiment of the claims.")
    ] = PARAMS,
    output: Annotated[
        Path | None, typer.Option(help="Folder of lectures.md; the run's output folder by default.")
    ] = None,
) -> None:
    """Measure what lectures on transfer learning say, and write one page about it."""
    for name in names or []:
        if name not in CLAIMS:
            raise ConfigError(f"unknown claim {name!r}{nearest(name, CLAIMS)}")
    if not params.is_file():
        raise ConfigError(f"{params}: does not exist; name the settings of a run with --params")
    root = find_repository(Path()) or Path.cwd()
    with working(root, PLANNING, environment=environment(root)):
        retrain_command.command(params=params)
        claims = [CLAIMS[name] for name in names or CLAIMS]
        if params == PARAMS:
            for task in dict.fromkeys(task for claim in claims for task in claim.examples):
                run_headstart(
                    "stage", "examples", "--item", task, "--params", str(params), source="examples", root=root
                )
    outputs = Outputs(load_params(params))
    folder = output or outputs.out
    failed, done = list[str](), dict[str, Findings]()
    for claim in claims:
        print(f"{claim.name}: {claim.command(params)}", flush=True)
        try:
            entry = measured(claim, outputs, params=params, output=folder, done=done)
        except HeadstartError as error:
            failed.append(claim.name)
            print(f"{claim.name}: not measured: {error}", flush=True)
            continue
        store(entry, claim, folder)
        verdict = {True: "agrees", False: "does not agree", None: "for the reader to judge"}[entry["agrees"]]
        print(f"{claim.name}: {verdict}; {' '.join(entry['lead'])}", flush=True)
    if len(failed) < len(claims):
        print(f"page: {folder / PAGE}")
    if failed and (params == PARAMS or len(failed) == len(claims)):
        raise ConfigError(f"not measured: {', '.join(failed)}; the reasons are above")


if __name__ == "__main__":
    main(command)
