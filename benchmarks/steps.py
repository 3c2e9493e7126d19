"""Training time of LSTM layers: `StepwiseLSTM` without padding, relative to oneDNN's kernel with padding.

    python benchmarks/steps.py

Each line is a layer, a number of rows, and the fraction of positions that are padding. The two kernels are measured
alternately in one process, forward and backward pass together, and the ratio of their median times is printed: with one
thread in bf16 and in float32, and with all threads in bf16. The time of oneDNN's kernel differs between processes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from unittest.mock import patch

from components.processors import cores
from components.training import threads

threads.prepare()

import torch  # noqa: E402 (after the thread settings)
from torch import Tensor  # noqa: E402

from components.models.layers import lstm_kernels  # noqa: E402
from components.models.layers.chunks import Texts  # noqa: E402
from components.models.layers.lstm import LSTM  # noqa: E402
from components.reporting.recording import add_record_option, record  # noqa: E402
from components.reporting.results import Column  # noqa: E402
from components.training.precision import Precision, computing  # noqa: E402

#: (inputs, width) of a layer.
SIZES = [(1150, 400), (640, 640), (320, 640), (640, 320), (100, 512)]
ROWS = [16, 64]
STEPS = 30
#: Length of the shortest text as a fraction of the longest; the lengths are evenly spaced.
SHORTEST = [1.0, 0.7]


def main() -> None:
    """Print one line for each layer and batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    add_record_option(parser)
    arguments = parser.parse_args()
    available = cores()
    names = ("inputs", "width", "MB", "rows", "padding", "bf16", "float32", f"bf16 x {available}")
    print("".join(f"{name:>9}" for name in names))
    found: dict[str, dict[str, float]] = {}
    for inputs, width in SIZES:
        layer = LSTM(inputs, width)
        size = 4 * (layer.weight_ih.numel() + layer.weight_hh.numel()) / 1e6
        for rows in ROWS:
            for shortest in SHORTEST:
                lengths = torch.linspace(shortest * STEPS, STEPS, rows).round().long()
                x = torch.randn(STEPS, rows, inputs, requires_grad=True)
                padding = 1 - int(lengths.sum()) / (rows * STEPS)
                ratios = [
                    _ratio(layer, x, Texts(lengths), precision, count, arguments.turns)
                    for precision, count in (("bf16", 1), ("float32", 1), ("bf16", available))
                ]
                shown = (
                    f"{inputs}",
                    f"{width}",
                    f"{size:.1f}",
                    f"{rows}",
                    f"{padding:.2f}",
                    *(f"{r:.2f}" for r in ratios),
                )
                print("".join(f"{value:>9}" for value in shown), flush=True)
                layer_name = f"{inputs} inputs, {width} wide, {rows} rows"
                found[f"{layer_name}, {padding:.0%} padding"] = dict(
                    zip(("bf16", "float32", "threads"), ratios, strict=True)
                )
    record(
        arguments.record,
        title=f"Time step by step relative to the vendor's kernel, medians of {arguments.turns} turns",
        row_title="LSTM layer",
        columns=[
            Column(name="bf16", title="bf16, one thread", format=".2f"),
            Column(name="float32", title="float32, one thread", format=".2f"),
            Column(name="threads", title=f"bf16, {available} threads", format=".2f"),
        ],
        values=found,
    )


def _ratio(layer: LSTM, x_TBI: Tensor, texts: Texts, precision: Precision, count: int, turns: int) -> float:
    """Median time step by step divided by the median time of the library's kernel, with `count` threads."""
    threads.own(count)
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(1 + turns):
        for by_steps, found in seconds.items():
            began = time.perf_counter()
            with (
                patch.object(lstm_kernels, "suits_steps", lambda *_, chosen=by_steps: chosen),
                computing(precision, torch.device("cpu")),
            ):
                outputs_TBH, _ = layer(x_TBI, texts=texts)
            outputs_TBH.float().square().mean().backward()
            if turn:  # the first turn is a warm-up
                found.append(time.perf_counter() - began)
            layer.zero_grad()
            x_TBI.grad = None
    return statistics.median(seconds[True]) / statistics.median(seconds[False])


if __name__ == "__main__":
    main()
