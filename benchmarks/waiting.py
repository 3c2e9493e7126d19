"""How long a thread that waits for another should spin before it sleeps (GOMP_SPINCOUNT): training steps a second.

    python benchmarks/waiting.py [--turns 1000 4000 10000] [--rounds 6] [--neighbours 0]

An AWD-LSTM of the size of `params.yaml` learns noise in one process for each number of turns, with two threads. The
processes take turns of a few seconds, all but one stopped (SIGSTOP), so that what others do on the machine burdens them
alike; the median of the rounds is printed as input tokens a second. `--neighbours` processes compute beside all of
them: threads that spin then hold cores that others need.
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

from components.training import threads

#: Seconds of a turn, and those after its beginning that do not count.
TURN, SETTLE = 3.0, 0.4
ROWS, WINDOW, VOCABULARY = 32, 64, 8000
WARM_UP = 3


def train(counter: Path) -> None:
    """Learn until ended, leaving a byte after every step."""
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
    """A process that learns, stopped but for its turns."""

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
        """How many are done."""
        if self.process.poll() is not None:
            raise SystemExit("a learner has ended")
        return self.counter.stat().st_size

    def next_step(self) -> tuple[float, int]:
        """The moment at which the step that runs now is done, and the number of steps then."""
        before = self.steps()
        while (steps := self.steps()) == before:
            time.sleep(0.002)
        return time.perf_counter(), steps

    def turn(self) -> float:
        """Tokens a second."""
        self.process.send_signal(signal.SIGCONT)
        time.sleep(SETTLE)
        began, first = self.next_step()
        time.sleep(TURN)
        ended, last = self.next_step()
        self.process.send_signal(signal.SIGSTOP)
        return (last - first) * ROWS * WINDOW / (ended - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, nargs="+", default=[1000, 4000, 10000])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--neighbours", type=int, default=0)
    parser.add_argument("--counter", type=Path, help=argparse.SUPPRESS)
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
    for turns, speeds in zip(arguments.turns, zip(*found, strict=True), strict=True):
        print(json.dumps({"turns": turns, "tokens_a_second": statistics.median(speeds), "rounds": speeds}))


if __name__ == "__main__":
    main()
