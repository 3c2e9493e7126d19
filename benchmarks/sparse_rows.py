"""Time of a training step of fastText with dense and with sparse gradients, by the number of n-gram buckets.

    python benchmarks/sparse_rows.py
    python benchmarks/sparse_rows.py --buckets 20000 2000000 --width 300 --optimizer adagrad

The text is random: words of three to ten letters with the frequencies of Zipf's law. Medians over `--steps` steps, one
thread. `rows` is the number of n-grams with a state of the optimizer at the end. Dense sides whose weights, gradients
and state need more than `--gigabytes` are left out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

from components.training import threads

threads.prepare()
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np  # noqa: E402 (after the thread settings)
import torch  # noqa: E402

from benchmarks.precision import RandomTokens  # noqa: E402
from components.models.encoder import build_model  # noqa: E402
from components.pretraining.samplers import sampler_for  # noqa: E402
from components.reporting.recording import add_record_option, record  # noqa: E402
from components.reporting.results import Column  # noqa: E402
from components.settings.training import LanguageModelTraining  # noqa: E402
from components.tokenization.segmenters import Segmentation  # noqa: E402
from components.tokenization.special import SPECIAL_PIECES  # noqa: E402
from components.tokenization.word import WordTokenizer  # noqa: E402
from components.training.groups import decayed  # noqa: E402
from components.training.loop import TrainingState, train  # noqa: E402

WORDS = 20_000
TOKENS = 400_000
DOCUMENT = 50
#: Copies of a dense table: weights, gradient and at most two moments.
COPIES = 4


class RandomText(RandomTokens):
    """Documents of random words."""

    documents, length = TOKENS // DOCUMENT, DOCUMENT


def main() -> None:
    """Measure every number of buckets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--buckets", type=int, nargs="+", default=[20_000, 200_000, 2_000_000])
    parser.add_argument("--width", type=int, default=100)
    parser.add_argument("--optimizer", choices=("adamw", "adagrad", "sgd"), default="adamw")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--gigabytes", type=float, default=6.0)
    add_record_option(parser)
    arguments = parser.parse_args()
    threads.own(1)
    found: dict[str, dict[str, float]] = {}
    for buckets in arguments.buckets:
        row: dict[str, float] = {}
        for name, sparse in (("dense", False), ("sparse", True)):
            if not sparse and COPIES * 4e-9 * buckets * arguments.width > arguments.gigabytes:
                continue
            row[name], rows = _step(buckets, arguments, sparse=sparse)
            if sparse:
                row["rows"] = rows
        found[f"{buckets:,}"] = row
        print(
            f"{buckets:>10,} buckets: " + ", ".join(f"{name} {value:,.1f}" for name, value in row.items()), flush=True
        )
    record(
        arguments.record,
        title=f"A training step of fastText, width {arguments.width}, {arguments.optimizer}, one thread",
        row_title="buckets",
        columns=[
            Column(name="dense", title="dense gradients", format=",.1f", unit=" ms"),
            Column(name="sparse", title="sparse gradients", format=",.1f", unit=" ms"),
            Column(name="rows", title="rows with a state", format=",.0f"),
        ],
        values=found,
    )


def _step(buckets: int, arguments: argparse.Namespace, *, sparse: bool) -> tuple[float, float]:
    """Median milliseconds of a step, and the number of rows with a state."""
    rng = np.random.default_rng(1)
    letters = list("abcdefghijklmnopqrstuvwxyz")
    words = {"".join(rng.choice(letters, rng.integers(3, 11))) for _ in range(WORDS)}
    pieces = [*SPECIAL_PIECES, *sorted(words)]
    settings = {"width": arguments.width, "buckets": buckets, "sparse": sparse, "subsample": 1e-4}
    torch.manual_seed(0)
    model = build_model("fasttext", vocabulary=len(pieces), settings=settings)
    model.bind(WordTokenizer(pieces, segmentation=Segmentation("none"), lowercase=True, strip_accents=True))
    training = LanguageModelTraining(
        tokens=1, rate=0.01, batch_size=32, window=64, optimizer=arguments.optimizer, weight_decay=0.0, clip=100.0
    )
    sampler = sampler_for(
        "fasttext", RandomText(len(pieces)), config=model.config, pieces=pieces, batch_size=32, window=64, seed=0
    )
    state = TrainingState.fresh(model, decayed(model.parameters()), settings=training)
    times, clock = [], time.perf_counter()
    for _ in train(state, sampler, settings=training, total_steps=arguments.steps + 2, seed=0):
        now = time.perf_counter()
        times.append(1000 * (now - clock))
        clock = time.perf_counter()
    held = state.optimizer.state_dict()["state"].values()
    return statistics.median(times[2:]), float(max((len(one["rows"]) for one in held if "rows" in one), default=0))


if __name__ == "__main__":
    main()
