"""Correctness and speed on a GPU: everything that a simulation cannot show, in at most 15 minutes.

    python benchmarks/gpu.py                       # all steps
    python benchmarks/gpu.py parity attention      # these steps
    python benchmarks/gpu.py --cpu                 # tiny sizes on the CPU: only shows that the steps run
    python benchmarks/gpu.py --record gpu-h100     # writes docs/results/gpu-h100.json from the throughputs

Each step runs in a process of its own with a time limit and prints one line of JSON: `step`, `card`, `torch`,
`seconds`, and `result` or `error`. The program ends with status 1 if a step has an error or a result with `ok: false`.

| step | result |
|---|---|
| smoke | every family learns one batch by heart in bf16 and float32; loss before and after |
| parity | loss and gradient norm of every family: CPU, GPU, and compiled; largest relative difference |
| resume | whether a run that stops and continues has the bits of an uninterrupted one |
| bert-32x512 to wikitext-103 | tokens per second, model FLOPs utilisation, and the speed relative to transformers |
| profile | the 15 operators of a BERT-base step with the largest share of the GPU's time |
| attention | kernel that torch chooses for each kind of mask, its time, and whether outputs and gradients are finite |
| lstm | kernels, time and error of an LSTM layer in bf16 and float32 |
| waits | calls that wait for the GPU, per step: pretraining and fine-tuning of a tagger |

It needs this repository, torch, transformers, pydantic, pyarrow and scipy; no Ray, Prefect, DVC or MLflow.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# `benchmarks` is not installed; the folder of a script is on its path, but not the one above.
sys.path.insert(0, str(ROOT))

#: Step -> workload and size of benchmarks/training.py.
THROUGHPUTS = {
    "bert-32x512": ("bert", "32x512"),
    "bert-128x512": ("bert", "128x512"),
    "bert-32x128": ("bert", "32x128"),
    "gpt2-1024": ("gpt", "gpt2-1024"),
    "wikitext-103": ("awd-lstm", "wikitext-103"),
}
#: Step -> seconds after which its process is ended; 900 in total. Compilation takes most of the time of a throughput.
LIMITS = {
    "smoke": 80,
    "parity": 110,
    "resume": 40,
    "profile": 35,
    "attention": 35,
    "lstm": 30,
    "waits": 40,
    **dict.fromkeys(THROUGHPUTS, 104),
}


def run_step(name: str, *, cpu: bool) -> dict[str, Any]:
    """Run a step in this process.

    Raises:
        SystemExit: there is no GPU.
    """
    # Before torch: cuBLAS reads it when it is initialised.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    from benchmarks.gpu_steps import correctness, speed

    if not cpu and not torch.cuda.is_available():
        raise SystemExit(
            f"no GPU: torch {torch.__version__} finds no CUDA device; run this on a machine with one and a CUDA build "
            "of torch, or with --cpu, which only shows that the steps run"
        )
    device = torch.device("cpu" if cpu else "cuda")
    steps: dict[str, Callable[[torch.device], dict[str, Any]]] = {
        "smoke": correctness.smoke,
        "parity": correctness.parity,
        "resume": correctness.resume,
        "waits": correctness.waits,
        "profile": speed.profile,
        "attention": speed.attention,
        "lstm": speed.lstm,
        **{step: partial(speed.throughput, *workload) for step, workload in THROUGHPUTS.items()},
    }
    began = time.perf_counter()
    result: dict[str, Any] = {"step": name, "card": "cpu" if cpu else torch.cuda.get_device_name(device)}
    result["torch"] = torch.__version__
    try:
        result["result"] = steps[name](device)
    except Exception as error:
        result |= {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc(limit=-4)}
    return result | {"seconds": round(time.perf_counter() - began, 1)}


def in_process(name: str, *, cpu: bool) -> dict[str, Any]:
    """Run a step in a process of its own; its line, or one with the error."""
    command = [sys.executable, __file__, name, "--inside", *(["--cpu"] if cpu else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMITS[name], check=False)
    except subprocess.TimeoutExpired:
        return {"step": name, "error": f"not finished after {LIMITS[name]} s"}
    if done.returncode == 0:
        line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return line
    if "no GPU:" in done.stderr:
        raise SystemExit(done.stderr.strip().splitlines()[-1])
    return {"step": name, "error": f"ended with status {done.returncode}", "traceback": done.stderr[-2000:]}


def write_record(name: str | None, lines: list[dict[str, Any]]) -> None:
    measured = [line for line in lines if line["step"] in THROUGHPUTS and "result" in line]
    if name is None or not measured:
        return
    from benchmarks.results import Column, record

    columns = [
        Column(name="headstart", title="tokens per second", format=",.0f"),
        Column(name="utilisation", title="model FLOPs utilisation", format=".1%"),
        Column(name="ratio", title="relative to transformers", format=".2f", unit=" x"),
    ]
    values = {
        " ".join(THROUGHPUTS[line["step"]]): {
            column.name: line["result"][column.name] for column in columns if column.name in line["result"]
        }
        for line in measured
    }
    record(
        name,
        title=f"Training throughput on one {measured[0]['card']}, bf16",
        row_title="model, rows x tokens",
        columns=columns,
        values=values,
        processor=measured[0]["card"],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", choices=[*LIMITS, []], help="default: all")
    parser.add_argument("--cpu", action="store_true", help="tiny sizes on the CPU")
    parser.add_argument("--record", metavar="NAME", help="write docs/results/NAME.json")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        print(json.dumps(run_step(arguments.steps[0], cpu=arguments.cpu)), flush=True)
        return
    lines = []
    for name in arguments.steps or LIMITS:
        lines.append(in_process(name, cpu=arguments.cpu))
        print(json.dumps(lines[-1]), flush=True)
    write_record(arguments.record, lines)
    sys.exit(any("error" in line or not line["result"]["ok"] for line in lines))


if __name__ == "__main__":
    main()
