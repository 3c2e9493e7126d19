"""What DVC and Prefect cost a stage: the same stage as a Prefect task around `dvc repro`, and by itself.

    python benchmarks/orchestration.py                   # after make run; in the repository's root

The stage is `promote`, which runs every time and changes nothing where all is registered already. Both take turns
in one flow, so Prefect's start is not counted; what is printed are medians.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from prefect import flow

from flows.dvc_tasks import stage_task
from flows.repository import environment, find_root
from flows.retrain import ask_dvc

STAGE = "promote"


@flow(name="orchestration")
def take_turns(root: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of the stage as a task, and of its command by itself."""
    (stage,) = [found for found in ask_dvc(root / "dvc.yaml", root=root).stages if found.name == STAGE]
    command = [sys.executable, "-m", "components.cli", "stage", STAGE]
    chained, alone = [], []
    for turn in range(rounds + 1):
        began = time.perf_counter()
        stage_task(stage)(stage, root)
        between = time.perf_counter()
        subprocess.run(command, cwd=root, env=environment(root), check=True, stdout=subprocess.DEVNULL)
        ended = time.perf_counter()
        # The first turn warms up.
        if turn:
            chained.append(between - began)
            alone.append(ended - between)
    return chained, alone


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    chained, alone = take_turns(find_root(Path.cwd()), parser.parse_args().rounds)
    extra = [one - other for one, other in zip(chained, alone, strict=True)]
    print(f"stage alone            {statistics.median(alone):5.1f} s")
    print(f"through DVC, Prefect   {statistics.median(chained):5.1f} s")
    print(f"difference             {statistics.median(extra):5.1f} s ({min(extra):.1f} to {max(extra):.1f})")


if __name__ == "__main__":
    main()
