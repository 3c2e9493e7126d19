"""What Ray costs a training run: one worker on Ray beside the same run in one process, once both train.

    python benchmarks/launchers.py --tokens artifacts/tokens/general-wordpiece \\
        --tokenizer artifacts/tokenizer/general-wordpiece --family ulmfit

A machine that others use too is faster now and slower then by more than Ray costs. So both runs are started once and
then take turns of a few seconds: all processes of one are stopped (SIGSTOP) while those of the other go on, Ray's
own among them. What counts is steps a second within a turn, and the ratio of the two turns that lie side by side;
and the processor time that all processes of a run take for a step, which says more where others take turns of their
own. On Linux it also prints the share of the processors that a virtual machine was refused meanwhile (steal), and the
ratio of those pairs alone in which it was refused no more than `QUIET`: whether a pair is one of them does not depend
on what came out of it.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from components.training import threads

# Before torch is loaded, as the command line does for every stage, and for both sides.
threads.prepare()

from components.config import ClusterSettings, LanguageModelTraining  # noqa: E402 (after the thread settings)
from components.pretraining.stage import PretrainJob, pretrain  # noqa: E402
from components.training import encoders  # noqa: E402
from components.training.language_model import LanguageModelRun, work  # noqa: E402
from components.training.world import Worker  # noqa: E402
from flows import processes  # noqa: E402

LAUNCHERS = ("local", "ray")
#: Steps before a run counts as started: first touches of memory, the choice of precision.
WARM_UP = 20
#: Share of the processors that others may take in a turn that counts as quiet.
QUIET = 0.02
#: Seconds after a turn's beginning that do not count: timers that came due meanwhile all go off, and caches are cold.
SETTLE = 6.0
#: Seconds after which a run that has not started is given up.
PATIENCE = 300.0
#: More than any comparison takes; the runs are ended when it is over.
BUDGET = 10**9
#: Where a run leaves the time of every step, below its folder.
STEPS = "steps"


def timed_work(run: LanguageModelRun, worker: Worker) -> None:
    """`work`, leaving a line with the clock after every step."""
    with (Path(run.storage).parent / STEPS).open("w", buffering=1) as file:

        def publish(numbers: Mapping[str, float]) -> None:
            file.write(f"{time.monotonic()}\n")
            worker.publish(numbers)

        work(run, replace(worker, publish=publish))


def train(arguments: argparse.Namespace) -> None:
    """What a run does, in processes of its own, until it is ended."""
    folder = Path(arguments.folder)
    encoders.work = timed_work
    pretrain(
        PretrainJob(
            family=arguments.family,
            tokens=arguments.tokens,
            tokenizer=arguments.tokenizer,
            output=folder / "encoder",
            training=LanguageModelTraining(
                tokens=BUDGET,
                batch_size=arguments.batch_size,
                window=arguments.window,
                rate=0.002,
                checkpoint_seconds=10**6,
            ),
            cluster=ClusterSettings(launcher=arguments.run, workers=1, storage=str(folder / "checkpoints")),
        )
    )


@dataclass(frozen=True)
class Turn:
    """Steps a second, processor seconds a step, and the share of all processors that others took (0 if unknown)."""

    rate: float
    effort: float
    stolen: float


class Run:
    """A training run in a session of processes of its own."""

    def __init__(self, launcher: str, folder: Path) -> None:
        self.steps = folder / STEPS
        self.began = time.monotonic()
        command = [sys.executable, __file__, *sys.argv[1:], "--run", launcher, "--folder", str(folder)]
        self.process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)

    def times(self) -> list[float]:
        """The clock after every whole step so far."""
        return [float(line) for line in self.steps.read_text().split("\n")[:-1]] if self.steps.exists() else []

    def wait(self) -> float:
        """Come back when it trains; returns the seconds to its first step."""
        while len(times := self.times()) < WARM_UP:
            if self.process.poll() is not None or time.monotonic() - self.began > PATIENCE:
                raise SystemExit(f"{' '.join(map(str, self.process.args))} does not train")
            time.sleep(0.2)
        return times[0] - self.began

    def turn(self, seconds: float) -> Turn:
        """Go on for so many seconds."""
        self.tell(signal.SIGCONT)
        time.sleep(SETTLE)
        began, used, stolen = time.monotonic(), self.used(), stolen_seconds()
        time.sleep(seconds)
        ended, used, stolen = time.monotonic(), self.used() - used, stolen_seconds() - stolen
        self.tell(signal.SIGSTOP)
        # The first step was begun in the turn before.
        inside = [moment for moment in self.times() if moment >= began][1:]
        if len(inside) < 2:
            raise SystemExit("a turn has no two steps; give it more --seconds")
        rate = (len(inside) - 1) / (inside[-1] - inside[0])
        return Turn(rate, used / (ended - began) / rate, stolen / (ended - began) / threads.cores())

    def used(self) -> float:
        """Processor seconds of all processes of the run so far."""
        times = [process.cpu_times() for process in processes.members(self.process.pid)]
        return sum(time.user + time.system for time in times)

    def tell(self, number: int) -> None:
        for process in processes.members(self.process.pid):
            process.send_signal(number)

    def end(self) -> None:
        self.tell(signal.SIGCONT)
        processes.end_session(self.process.pid)
        self.process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=Path, required=True, help="directory of token shards")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--family", default="ulmfit")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--turns", type=int, default=12, help="of each side")
    parser.add_argument("--seconds", type=float, default=15.0, help="of a turn")
    parser.add_argument("--run", choices=LAUNCHERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        train(arguments)
        return
    # Whoever ends this ends the stopped runs too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        runs: dict[str, Run] = {}
        starts: dict[str, float] = {}
        try:
            for launcher in LAUNCHERS:
                (Path(folder) / launcher).mkdir()
                runs[launcher] = Run(launcher, Path(folder) / launcher)
                starts[launcher] = runs[launcher].wait()
                runs[launcher].tell(signal.SIGSTOP)
            turns: dict[str, list[Turn]] = {launcher: [] for launcher in LAUNCHERS}
            for number in range(arguments.turns):
                # There and back, so that a machine that becomes slower favours neither.
                for launcher in LAUNCHERS if number % 2 == 0 else reversed(LAUNCHERS):
                    turns[launcher].append(runs[launcher].turn(arguments.seconds))
        finally:
            for run in runs.values():
                run.end()
    pairs = list(zip(*(turns[launcher] for launcher in LAUNCHERS), strict=True))
    quiet = [pair for pair in pairs if max(turn.stolen for turn in pair) <= QUIET]
    report: dict[str, object] = {
        "seconds_to_first_step": {launcher: round(value, 1) for launcher, value in starts.items()},
        "steps_per_second": {
            launcher: round(statistics.median(turn.rate for turn in of), 2) for launcher, of in turns.items()
        },
        "others_took": round(statistics.mean(turn.stolen for pair in pairs for turn in pair), 3),
        "all": compared(pairs),
    }
    if len(quiet) > 1:
        report["quiet"] = compared(quiet)
    print(json.dumps(report, indent=1))


def compared(pairs: Sequence[tuple[Turn, ...]]) -> dict[str, object]:
    """Ray's costs over pairs of turns (local, ray), as shares of what the local launcher does and takes."""
    return {
        "pairs": len(pairs),
        "ray_costs": spread([1 - ray.rate / local.rate for local, ray in pairs]),
        "ray_costs_of_processor_time": spread([ray.effort / local.effort - 1 for local, ray in pairs]),
    }


def spread(costs: Sequence[float]) -> dict[str, object]:
    return {
        "median": round(statistics.median(costs), 4),
        "quartiles": [round(cost, 4) for cost in statistics.quantiles(costs, n=4)],
    }


def stolen_seconds() -> float:
    """Processor seconds that this virtual machine wanted and was refused so far; 0 where that is not told."""
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


if __name__ == "__main__":
    main()
