"""What Ray costs a training run: one worker on Ray beside the same run in one process, once both have started.

    python benchmarks/launchers.py --tokens artifacts/tokens/general-wordpiece \\
        --tokenizer artifacts/tokenizer/general-wordpiece --family ulmfit --repeats 5

Runs take turns, each in a process of its own. The figure is tokens a second of the training steps alone, without the
first tenth of them, from the curve that the stage writes; beside it stands the time of the whole stage, start included.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path

from components.config import ClusterSettings, LanguageModelTraining
from components.pretraining.stage import PretrainJob, pretrain
from components.training import threads

LAUNCHERS = ("local", "ray")
#: Rows of the curve that are left out: compilation, first touches of memory, the choice of precision.
WARM_UP = 2


def run(job: PretrainJob, results: multiprocessing.Queue[dict[str, float]]) -> None:
    """Pretrain once in this process; puts tokens a second and seconds of the whole stage on the queue."""
    began = time.perf_counter()
    output = pretrain(job)
    whole = time.perf_counter() - began
    with (output / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))[WARM_UP:]
    tokens = float(rows[-1]["tokens"]) - float(rows[0]["tokens"])
    seconds = float(rows[-1]["seconds"]) - float(rows[0]["seconds"])
    results.put({"tokens_per_second": tokens / seconds, "whole_seconds": whole})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=Path, required=True, help="directory of token shards")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--family", default="ulmfit")
    parser.add_argument("--budget", type=int, default=600_000, help="tokens of one run")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    threads.prepare()
    spawning = multiprocessing.get_context("spawn")
    figures: dict[str, list[dict[str, float]]] = {launcher: [] for launcher in LAUNCHERS}
    for _ in range(arguments.repeats):
        for launcher in LAUNCHERS:
            with tempfile.TemporaryDirectory() as folder:
                job = PretrainJob(
                    family=arguments.family,
                    tokens=arguments.tokens,
                    tokenizer=arguments.tokenizer,
                    output=Path(folder) / "encoder",
                    training=LanguageModelTraining(
                        tokens=arguments.budget,
                        batch_size=arguments.batch_size,
                        window=arguments.window,
                        rate=0.002,
                    ),
                    cluster=ClusterSettings(launcher=launcher, workers=1, storage=str(Path(folder) / "checkpoints")),
                )
                results: multiprocessing.Queue[dict[str, float]] = spawning.Queue()
                process = spawning.Process(target=run, args=(job, results))
                process.start()
                process.join()
                if process.exitcode:
                    raise SystemExit(f"the {launcher} run ended with exit code {process.exitcode}")
                figures[launcher].append(results.get())
    summary = {
        launcher: {name: round(statistics.median(run[name] for run in runs), 1) for name in runs[0]}
        for launcher, runs in figures.items()
    }
    # Of the two runs of one turn: from turn to turn a shared machine is faster or slower by more than Ray costs.
    costs = [
        1 - ray["tokens_per_second"] / local["tokens_per_second"]
        for local, ray in zip(figures["local"], figures["ray"], strict=True)
    ]
    found = {"median": round(statistics.median(costs), 4), "turns": [round(cost, 4) for cost in costs]}
    print(json.dumps({"medians": summary, "ray_costs": found, "runs": figures}, indent=1))


if __name__ == "__main__":
    main()
