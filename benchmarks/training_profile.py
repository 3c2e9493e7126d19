"""Where the time of a training step goes, and which speed the processor's peak allows.

    python benchmarks/training_profile.py                          # the workloads of benchmarks/training.py, CPU size
    python benchmarks/training_profile.py bert --traces FOLDER     # also FOLDER/bert-Headstart.json, for a flame chart

One row per model and side: the model of Headstart, and that of the other library where it is installed. The steps are
those of benchmarks/training.py, with one thread, in bfloat16 if the processor has instructions for it. The peak
is the speed of the fastest large matrix product of the same run. `peak` is the speed of the step's model FLOPs relative
to it. `most` is the largest possible ratio to the other library: that of a step which runs at the peak. The shares are
those of the operators' own time in torch's profiler. The time of a step is measured without the profiler, alternately
for both sides.

A trace is in Chrome's format; https://ui.perfetto.dev and speedscope show it as a flame chart.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from components.training import threads

threads.prepare()
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch  # noqa: E402 (after the thread settings)
from torch.profiler import ProfilerActivity, profile  # noqa: E402

from benchmarks.training import PAIRS, peak, steps_of  # noqa: E402
from components.reporting.recording import add_record_option, record  # noqa: E402
from components.reporting.results import Column  # noqa: E402
from components.training.precision import has_bf16  # noqa: E402

#: Parts of a step -> operators, without `aten::`.
PARTS = {
    "products": ("mm", "addmm", "bmm", "baddbmm", "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward", "_mkldnn_linear"),
    "pointwise": (
        *("_softmax", "_softmax_backward_data", "_log_softmax", "_log_softmax_backward_data", "gelu", "gelu_backward"),
        *("native_layer_norm", "native_layer_norm_backward", "tanh", "tanh_backward", "add", "add_", "mul", "mul_"),
        *("div", "pow", "sub", "sum", "masked_fill", "masked_fill_", "where"),
    ),
    "dropout": ("random_", "bernoulli_", "ge", "ge_", "native_dropout", "native_dropout_backward"),
    "copies": ("copy_", "fill_", "cat", "index", "index_select", "index_put_", "_index_put_impl_", "index_add_"),
    "optimizer": ("_fused_adamw_", "linalg_vector_norm", "_foreach_norm", "_foreach_mul_"),
}
REST = "rest"
OWN = "Headstart"
#: Workload -> the library with which it is compared.
PEERS = {"bert": "transformers", "gpt": "transformers", "awd-lstm": "fastai", "flair": "flair"}


def part_of(operator: str) -> str:
    """The part of a step to which an operator of the profiler belongs; `rest` if it is in none."""
    name = operator.removeprefix("aten::")
    return next((part for part, operators in PARTS.items() if name in operators), REST)


def shares(microseconds: dict[str, float]) -> dict[str, float]:
    """The share of each part of a step in its time.

    Args:
        microseconds: operator -> its own time.
    """
    total, found = sum(microseconds.values()), Counter[str]()
    for operator, spent in microseconds.items():
        found[part_of(operator)] += spent / total
    return {part: found[part] for part in (*PARTS, REST)}


def _profiled(run: Callable[[], None], *, steps: int, trace: Path | None) -> dict[str, float]:
    """Operator -> microseconds of its own in some steps."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(steps):
            run()
    if trace is not None:
        trace.parent.mkdir(parents=True, exist_ok=True)
        found.export_chrome_trace(str(trace))
    return {event.key: float(event.self_cpu_time_total) for event in found.key_averages()}


def measure(workload: str, arguments: argparse.Namespace, *, flops: float) -> dict[str, dict[str, float]]:
    """The rows of a workload.

    Args:
        flops: peak FLOPs per second of one thread.
    """
    torch.manual_seed(0)
    device = torch.device("cpu")
    pair = PAIRS[workload][0]("small", device)
    names = {"headstart": OWN, "peer": PEERS[workload]}
    runs = {names[side]: run for side, run in steps_of(pair, device, bf16=arguments.bf16).items()}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(arguments.turns + 2):
        for name, run in runs.items():
            began = time.process_time()
            run()
            # The first two turns are a warm-up: memory is allocated and kernels are chosen.
            if turn > 1:
                seconds[name].append(time.process_time() - began)
    ideal = 3 * pair.flops / flops
    found = {}
    for name, run in runs.items():
        file = arguments.traces / f"{workload}-{name}.json" if arguments.traces else None
        parts = shares(_profiled(run, steps=3, trace=file))
        used = statistics.median(seconds[name])
        row = {"milliseconds": 1000 * used, "peak": ideal / used} | parts
        if name != OWN:
            row["most"] = used / ideal
        found[f"{workload}, {name}"] = row
        shown = ", ".join(f"{part} {share:.0%}" for part, share in parts.items())
        print(f"{workload}, {name}: {1000 * used:.0f} ms, {ideal / used:.0%} of the peak; {shown}", flush=True)
    return found


def main() -> None:
    """Profile the chosen workloads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"{', '.join(PAIRS)}; all by default")
    parser.add_argument("--turns", type=int, default=9, help="steps of each side")
    parser.add_argument("--traces", type=Path, help="folder for traces of the profiled steps")
    add_record_option(parser)
    arguments = parser.parse_args()
    if unknown := set(arguments.workloads) - set(PAIRS):
        parser.error(f"unknown workload {', '.join(sorted(unknown))}; known: {', '.join(PAIRS)}")
    threads.own(1)
    arguments.bf16 = has_bf16(torch.device("cpu"))
    dtype = torch.bfloat16 if arguments.bf16 else torch.float32
    flops = peak(torch.device("cpu"), dtype)
    found: dict[str, dict[str, float]] = {}
    for workload in arguments.workloads or PAIRS:
        found |= measure(workload, arguments, flops=flops)
    precision = "bf16" if arguments.bf16 else "float32"
    record(
        arguments.record,
        title=f"Time of a training step by kind of operator, {precision}, one thread, {arguments.turns} steps",
        row_title="model, side",
        columns=[
            Column(name="milliseconds", title="step, processor time", format=".0f", unit=" ms"),
            Column(name="peak", title="share of the peak", format=".0%"),
            Column(name="most", title="largest possible ratio", format=".2f", unit=" x"),
            Column(name="products", title="matrix products, LSTM", format=".0%"),
            Column(name="pointwise", title="activations, norms, sums", format=".0%"),
            Column(name="dropout", title="random numbers", format=".0%"),
            Column(name="copies", title="copies, casts, lookups", format=".0%"),
            Column(name="optimizer", title="optimizer", format=".0%"),
            Column(name=REST, title="rest", format=".0%"),
        ],
        values=found,
        notes=f"Peak: {flops / 1e9:.0f} GFLOPs per second, a product of 2,048 x 2,048 matrices on one core.",
    )


if __name__ == "__main__":
    main()
