"""Cost of DVC and Prefect: a stage as a Prefect task around `dvc repro`, compared with the stage alone.

    python benchmarks/orchestration.py                   # after make run; in the repository's root

The stage is `promote`, which always runs and changes nothing if everything is registered already. Both variants run
alternately in one flow, so the start-up time of Prefect is not included. Medians are printed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from prefect import flow

from components.reporting.recording import add_record_option, record
from components.reporting.results import Column
from flows.dvc_tasks import stage_task
from flows.execution import read_plan
from flows.repository import environment, find_root

STAGE = "promote"


@flow(name="orchestration")
def take_turns(root: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of the stage as a Prefect task, and of its command alone, one value per round."""
    (stage,) = [found for found in read_plan(root / "dvc.yaml", root=root).stages if found.name == STAGE]
    command = [sys.executable, "-m", "components.cli", "stage", STAGE]
    chained, alone = [], []
    for turn in range(rounds + 1):
        began = time.perf_counter()
        stage_task(stage)(stage, root)
        between = time.perf_counter()
        subprocess.run(command, cwd=root, env=environment(root), check=True, stdout=subprocess.DEVNULL)
        ended = time.perf_counter()
        # The first turn is a warm-up.
        if turn:
            chained.append(between - began)
            alone.append(ended - between)
    return chained, alone


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    add_record_option(parser)
    arguments = parser.parse_args()
    chained, alone = take_turns(find_root(Path.cwd()), arguments.rounds)
    extra = [one - other for one, other in zip(chained, alone, strict=True)]
    print(f"stage alone            {statistics.median(alone):5.1f} s")
    print(f"through DVC, Prefect   {statistics.median(chained):5.1f} s")
    print(f"difference             {statistics.median(extra):5.1f} s ({min(extra):.1f} to {max(extra):.1f})")
    record(
        arguments.record,
        title=f"Cost of DVC and Prefect, medians of {arguments.rounds} turns",
        row_title="measured",
        columns=[Column(name="seconds", title="time", format=".1f", unit=" s")],
        values={
            "the stage alone": {"seconds": statistics.median(alone)},
            "through DVC and Prefect": {"seconds": statistics.median(chained)},
            "difference": {"seconds": statistics.median(extra)},
        },
    )


if __name__ == "__main__":
    main()
