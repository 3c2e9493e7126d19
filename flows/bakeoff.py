"""Which family suits a corpus and a budget: `headstart bakeoff [--params experiments/bakeoff/params.yaml]`.

The stages are those of `retrain`; what is added is the table of the families side by side, which the report draws too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from prefect import flow

from flows.command import main
from flows.dvc_tasks import run_headstart
from flows.repository import find_root
from flows.retrain import retrain

DEFAULT = Path("experiments/bakeoff/params.yaml")


@flow(name="bakeoff", flow_run_name="bakeoff {params}")
def bakeoff(params: str = str(DEFAULT)) -> None:
    """Bring the run up to date, then print its families, best first.

    Raises:
        ConfigError: the settings are wrong, or `run.starts` lacks `pretrained`.
        StageError: a stage failed.
    """
    retrain(params)
    file = Path(params).resolve()
    run_headstart("families", "--params", str(file), source="bakeoff", root=find_root(file.parent))


def command(
    *, params: Annotated[Path, typer.Option("--params", help="The families, their budget, the tasks.")] = DEFAULT
) -> None:
    """Pretrain several families at one budget and compare what each is worth."""
    bakeoff(str(params))


if __name__ == "__main__":
    main(command)
