"""Cost of training on Ray: one worker on Ray compared with the same run in one process, without the start-up.

    python benchmarks/launchers.py --tokens artifacts/tokens/general-wordpiece \\
        --tokenizer artifacts/tokenizer/general-wordpiece --family ulmfit

The speed of a shared machine varies by more than the cost of Ray. Therefore both runs are started once, and their
training processes run alternately for a few seconds (a turn) while the other one is stopped (SIGSTOP). `in_step` is the
relative loss in steps per second: the median over pairs of neighbouring turns, with a 95% interval (bootstrap over
pairs). Ray's other processes are never stopped and slow down both runs equally, so their processor time is measured
separately, as a fraction of all cores (`other_processes`). `total` is the total cost on a machine without an idle core.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil

from components.processors import cores
from components.training import threads

# Before torch is loaded, as the command line does for every stage, and for both sides.
threads.prepare()

from components.pretraining import launch  # noqa: E402
from components.pretraining.language_model import LanguageModelRun, work  # noqa: E402
from components.pretraining.pretrain import PretrainJob, pretrain  # noqa: E402
from components.reporting.recording import add_record_option, record  # noqa: E402
from components.reporting.results import Column  # noqa: E402
from components.settings.cluster import ClusterSettings  # noqa: E402
from components.settings.training import LanguageModelTraining  # noqa: E402
from components.training.distributed import Worker  # noqa: E402
from flows import processes  # noqa: E402

LAUNCHERS = ("local", "ray")
#: Steps before a run counts as started.
WARM_UP = 20
#: Seconds at the beginning of a turn that are not measured, because caches are cold and expired timers fire.
SETTLE = 0.5
#: Maximum time to wait for the start of a run, in seconds.
PATIENCE = 300.0
#: Token budget of the runs, larger than any comparison needs; the runs are killed at the end.
BUDGET = 10**9
#: Files in a run's folder: the time of the end of every step, and the process id of the training process.
STEPS, TRAINER = "steps", "trainer"
RESAMPLES = 2000


def timed_work(run: LanguageModelRun, worker: Worker) -> None:
    """`work`, with a line in the file `steps` after every step."""
    folder = Path(run.storage).parent
    (folder / TRAINER).write_text(str(os.getpid()))
    with (folder / STEPS).open("w", buffering=1) as file:

        def publish(numbers: Mapping[str, float]) -> None:
            file.write(f"{time.monotonic()}\n")
            worker.publish(numbers)

        work(run, replace(worker, publish=publish))


def train(arguments: argparse.Namespace) -> None:
    """Train in this process until it is killed."""
    folder = Path(arguments.folder)
    launch.work = timed_work
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


class Run:
    """A training run in its own process session."""

    def __init__(self, launcher: str, folder: Path) -> None:
        self.steps = folder / STEPS
        self.began = time.monotonic()
        command = [sys.executable, __file__, *sys.argv[1:], "--run", launcher, "--folder", str(folder)]
        self.process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)

    def times(self) -> list[float]:
        """End times of all steps so far, in seconds of the monotonic clock."""
        return [float(line) for line in self.steps.read_text().split("\n")[:-1]] if self.steps.exists() else []

    def wait(self) -> float:
        """Wait until it trains; returns the seconds from the start to the end of the first step."""
        while len(times := self.times()) < WARM_UP:
            if self.process.poll() is not None or time.monotonic() - self.began > PATIENCE:
                raise SystemExit(f"{' '.join(map(str, self.process.args))} does not train")
            time.sleep(0.2)
        return times[0] - self.began

    def turn(self, seconds: float) -> float:
        """Train for `seconds`; returns steps per second."""
        self.send(signal.SIGCONT)
        time.sleep(SETTLE)
        began = time.monotonic()
        time.sleep(seconds)
        self.send(signal.SIGSTOP)
        # The first of these steps began in the previous turn.
        inside = [moment for moment in self.times() if moment >= began][1:]
        if len(inside) < 2:
            raise SystemExit("a turn contains fewer than two steps; increase --seconds")
        return (len(inside) - 1) / (inside[-1] - inside[0])

    def trainer(self) -> int:
        """Id of the training process."""
        return int((self.steps.parent / TRAINER).read_text())

    def other_processes(self) -> float:
        """Processor time so far, in seconds, of all processes of the run except the training process."""
        trainer = self.trainer()
        times = [process.cpu_times() for process in processes.members(self.process.pid) if process.pid != trainer]
        return sum(time.user + time.system for time in times)

    def send(self, number: int) -> None:
        """Send a signal to the training process."""
        os.kill(self.trainer(), number)

    def end(self) -> None:
        """End all processes of the run."""
        with suppress(OSError):  # it does not train yet, or has ended
            self.send(signal.SIGCONT)
        processes.end_session(self.process.pid)
        self.process.wait()


def main() -> None:
    """Start both runs, measure their turns, print the cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=Path, required=True, help="directory of token shards")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--family", default="ulmfit")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--turns", type=int, default=80, help="number of turns of each side")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a turn")
    parser.add_argument("--run", choices=LAUNCHERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    add_record_option(parser)
    arguments = parser.parse_args()
    if arguments.run:
        train(arguments)
        return
    # SIGTERM raises SystemExit, so that `finally` ends the runs, stopped ones included.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        runs: dict[str, Run] = {}
        starts: dict[str, float] = {}
        try:
            for launcher in LAUNCHERS:
                (Path(folder) / launcher).mkdir()
                runs[launcher] = Run(launcher, Path(folder) / launcher)
                starts[launcher] = runs[launcher].wait()
                runs[launcher].send(signal.SIGSTOP)
            turns: dict[str, list[float]] = {launcher: [] for launcher in LAUNCHERS}
            began, other, stolen = time.monotonic(), runs["ray"].other_processes(), stolen_seconds()
            for number in range(arguments.turns):
                # The order alternates, so that a machine that becomes slower favours neither side.
                for launcher in LAUNCHERS if number % 2 == 0 else reversed(LAUNCHERS):
                    turns[launcher].append(runs[launcher].turn(arguments.seconds))
            available = (time.monotonic() - began) * cores()
            other, stolen = runs["ray"].other_processes() - other, stolen_seconds() - stolen
        finally:
            for run in runs.values():
                run.end()
    costs = np.asarray([local / ray - 1 for local, ray in zip(turns["local"], turns["ray"], strict=True)])
    samples = np.random.default_rng(0).choice(costs, (RESAMPLES, len(costs)))
    in_step, fraction = float(np.median(costs)), other / available
    report = {
        "seconds_to_first_step": {launcher: round(value, 1) for launcher, value in starts.items()},
        "steps_per_second": {launcher: round(statistics.median(of), 2) for launcher, of in turns.items()},
        "pairs": len(costs),
        "in_step": round(in_step, 4),
        "in_step_interval": np.quantile(np.median(samples, axis=1), [0.025, 0.975]).round(4).tolist(),
        "in_step_quartiles": np.quantile(costs, [0.25, 0.75]).round(4).tolist(),
        "other_processes": round(fraction, 4),
        "total": round((1 + in_step) / (1 - fraction) - 1, 4),
        "stolen": round(stolen / available, 4),
    }
    print(json.dumps(report, indent=1))
    interval = [100 * value for value in report["in_step_interval"]]
    record(
        arguments.record,
        title="Cost of training on Ray, one worker, once started",
        row_title="compared with the local launcher",
        columns=[Column(name="cost", title="cost", format="+.1f", unit="%")],
        values={
            "total": {"cost": 100 * report["total"]},
            "time of a step": {"cost": [100 * report["in_step"], *interval]},
            "Ray's other processes, of all cores": {"cost": 100 * report["other_processes"]},
        },
        confidence=0.95,
        notes=f"{len(costs)} pairs of turns of {arguments.seconds:g} seconds.",
    )


def stolen_seconds() -> float:
    """Steal time so far: processor seconds that the host withheld from this virtual machine; 0 if unknown."""
    return float(getattr(psutil.cpu_times(), "steal", 0.0))


if __name__ == "__main__":
    main()
