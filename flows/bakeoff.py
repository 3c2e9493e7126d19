"""Compare families on a corpus at one budget: `headstart bakeoff [--params experiments/bakeoff/params.yaml]`.

Runs the stages of `retrain`, then prints the table of families that the report also contains.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from prefect import flow

from flows.command import main
from flows.execution import run_headstart
from flows.repository import find_root
from flows.retrain import retrain
from flows.telemetry import run_name

DEFAULT = Path("experiments/bakeoff/params.yaml")


@flow(name="bakeoff", flow_run_name=run_name)
def bakeoff(params: str = str(DEFAULT)) -> None:
    """Run every stage that is not up to date, then print the families, best first.

    Raises:
        ConfigError: the settings are wrong, or `run.starts` lacks `pretrained`.
        StageError: a stage failed.
    """
    retrain(params)
    file = Path(params).resolve()
    run_headstart("families", "--params", str(file), source="bakeoff", root=find_root(file.parent))


def command(
    *, params: Annotated[Path, typer.Option("--params", help="Settings file: families, budget, tasks.")] = DEFAULT
) -> None:
    """Pretrain several families with one budget and compare them."""
    bakeoff(str(params))


if __name__ == "__main__":
    main(command)
