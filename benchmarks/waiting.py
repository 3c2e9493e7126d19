"""Training speed by the number of iterations that a waiting thread spins before it sleeps (GOMP_SPINCOUNT).

    python benchmarks/waiting.py [--turns 1000 4000 10000] [--rounds 6] [--neighbours 0]

For each spin count (`--turns`), one process trains an AWD-LSTM of the size in `params.yaml` on random tokens, with two
threads. The processes run one at a time for a few seconds while the others are stopped (SIGSTOP), so that other load on
the machine affects all of them equally. The median over the rounds is printed, in input tokens per second.
`--neighbours` starts a number of busy processes, which compete for the cores that spinning threads occupy.
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
from pathlib import Path

from components.reporting.recording import add_record_option, record
from components.reporting.results import Column
from components.training import threads

#: Seconds of each measurement, and seconds before it that are not measured, because caches are cold.
TURN, SETTLE = 3.0, 0.4
ROWS, WINDOW, VOCABULARY = 32, 64, 8000
WARM_UP = 3


def train(counter: Path) -> None:
    """Train until killed; append a byte to `counter` after every step."""
    import torch

    from components.models.encoder import build_model
    from components.training.precision import computing

    torch.manual_seed(0)
    threads.own(2)
    model = build_model("ulmfit", vocabulary=VOCABULARY, settings={"embedding": 320, "hidden": 640, "layers": 2})
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-3, fused=True)
    with counter.open("ab", buffering=0) as file:
        while True:
            tokens = torch.randint(0, VOCABULARY, (ROWS, WINDOW + 1))
            with computing("bf16", torch.device("cpu")):
                loss = model.losses({"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            file.write(b".")


class Learner:
    """A training process that is stopped between its measurements."""

    def __init__(self, turns: int, folder: Path) -> None:
        self.counter = folder / str(turns)
        self.counter.touch()
        environment = os.environ | threads.environment(2) | {"GOMP_SPINCOUNT": str(turns)}
        command = [sys.executable, __file__, "--counter", str(self.counter)]
        self.process = subprocess.Popen(command, env=environment)
        while self.steps() < WARM_UP:
            time.sleep(0.1)
        self.process.send_signal(signal.SIGSTOP)

    def steps(self) -> int:
        """Number of steps so far."""
        if self.process.poll() is not None:
            raise SystemExit("a training process has ended")
        return self.counter.stat().st_size

    def next_step(self) -> tuple[float, int]:
        """Wait for the end of the current step; returns the time and the number of completed steps."""
        before = self.steps()
        while (steps := self.steps()) == before:
            time.sleep(0.002)
        return time.perf_counter(), steps

    def turn(self) -> float:
        """Train for `TURN` seconds; returns tokens per second."""
        self.process.send_signal(signal.SIGCONT)
        time.sleep(SETTLE)
        began, first = self.next_step()
        time.sleep(TURN)
        ended, last = self.next_step()
        self.process.send_signal(signal.SIGSTOP)
        return (last - first) * ROWS * WINDOW / (ended - began)


def main() -> None:
    """Start the processes, measure them alternately, print medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, nargs="+", default=[1000, 4000, 10000])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--neighbours", type=int, default=0)
    parser.add_argument("--counter", type=Path, help=argparse.SUPPRESS)
    add_record_option(parser)
    arguments = parser.parse_args()
    if arguments.counter is not None:
        train(arguments.counter)
        return
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(arguments.neighbours)]
    learners: list[Learner] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            learners += (Learner(turns, Path(folder)) for turns in arguments.turns)
            found = [[round(learner.turn()) for learner in learners] for _ in range(arguments.rounds)]
    finally:
        for process in [*busy, *(learner.process for learner in learners)]:
            process.kill()
    medians = {}
    for turns, speeds in zip(arguments.turns, zip(*found, strict=True), strict=True):
        medians[f"{turns:,}"] = {"speed": statistics.median(speeds)}
        print(json.dumps({"turns": turns, "tokens_a_second": statistics.median(speeds), "rounds": speeds}))
    record(
        arguments.record,
        title=f"Training speed by GOMP_SPINCOUNT, {arguments.neighbours} busy processes, medians of {arguments.rounds}",
        row_title="turns",
        columns=[Column(name="speed", title="tokens per second", format=",.0f")],
        values=medians,
    )


if __name__ == "__main__":
    main()
