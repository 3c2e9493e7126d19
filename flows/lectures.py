"""`headstart lectures [CLAIM ...]`: the runs behind the claims, their studies, and one page."""

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


def command(
    names: Annotated[list[str] | None, typer.Argument(help="Claims; all by default.", metavar="[CLAIM]...")] = None,
    params: Annotated[
        Path | None, typer.Option(help="Settings of the run; by default the experiments of the claims.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of lectures.md; the run's output folder by default.")
    ] = None,
) -> None:
    """Measure what lectures on transfer learning say, and write one page about it."""
    for name in names or []:
        if name not in CLAIMS:
            raise ConfigError(f"unknown claim {name!r}{nearest(name, CLAIMS)}")
    claims = [CLAIMS[name] for name in names or CLAIMS]
    files = list(dict.fromkeys(params or claim.settings for claim in claims))
    for file in files:
        if not file.is_file():
            raise ConfigError(f"{file}: does not exist; name the settings of a run with --params")
    root = find_repository(Path()) or Path.cwd()
    with working(root, environment=environment(root)):
        for file in files:
            retrain_command.command(params=file)
            for task in dict.fromkeys(task for claim in claims if claim.settings == file for task in claim.examples):
                run_headstart("stage", "examples", "--item", task, "--params", str(file), source="examples", root=root)
    outputs = {file: Outputs(load_params(file)) for file in files}
    folder = output or Outputs(load_params(params or PARAMS)).out
    failed, done = list[str](), dict[str, Findings]()
    for claim in claims:
        file = params or claim.settings
        print(f"{claim.name}: {claim.command(file)}", flush=True)
        try:
            entry = measured(claim, outputs[file], params=file, output=folder, done=done)
        except HeadstartError as error:
            failed.append(claim.name)
            print(f"{claim.name}: not measured: {error}", flush=True)
            continue
        store(entry, claim, folder)
        verdict = {True: "agrees", False: "does not agree", None: "for the reader to judge"}[entry["agrees"]]
        print(f"{claim.name}: {verdict}; {' '.join(entry['lead'])}", flush=True)
    if len(failed) < len(claims):
        print(f"page: {folder / PAGE}")
    # A run of one's own may lack what a claim is about.
    if failed and (params is None or len(failed) == len(claims)):
        raise ConfigError(f"not measured: {', '.join(failed)}; the reasons are above")


if __name__ == "__main__":
    main(command)
