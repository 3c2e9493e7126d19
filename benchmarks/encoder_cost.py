"""Seconds of `headstart.fit` from one encoder beside another, on a few rows, side by side in one run.

    python benchmarks/encoder_cost.py datasets FOLDER ENCODER [--rounds 2] [--cores 2] [--record NAME]

ENCODER is the folder of all-MiniLM-L6-v2. The other encoder has the shape of bge-small (BERT of 12 layers and 384
columns) with random weights, which is enough for a time, and the tokenizer of ENCODER. Each fit runs in a process of
its own; rounds alternate. Seconds of the processors, of all processes, change least with other work on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.comparison.sets import prepare
from benchmarks.results import Column, add_record_option, record
from components.interchange.huggingface import CONVERTERS
from components.models.encoder import build_model

SHAPE: Final = {"layers": 12, "width": 384, "heads": 12}
#: The processes of a fit live until it ends; those that ended before are counted in their parents.
FIT: Final = """
import json, psutil, sys
from headstart import fit
texts, labels = json.loads(sys.argv[1])
fit(texts, label=labels, start=sys.argv[2], verbose=False)
mine = psutil.Process()
print(sum(sum(each.cpu_times()[:4]) for each in (mine, *mine.children(recursive=True))))
"""


def deeper(encoder: Path, folder: Path) -> Path:
    """A published model of the shape with random weights."""
    from safetensors.torch import save_file

    target = folder / "bge-small-shape"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(encoder, target)
    size = json.loads((encoder / "config.json").read_text("utf-8"))["vocab_size"]
    config, tensors = CONVERTERS["bert"].to_huggingface(build_model("bert", vocabulary=size, settings=SHAPE))
    (target / "config.json").write_text(json.dumps(config))
    save_file(tensors, target / "model.safetensors")
    return target


def seconds(texts: list[str], labels: list[int], start: Path, *, cores: int) -> float:
    """Seconds of the processors of one fit on some cores."""
    command = [sys.executable, "-c", FIT, json.dumps([texts, labels]), str(start)]
    mine = sorted(os.sched_getaffinity(0))[:cores]
    root = Path(__file__).parents[1]
    fitted = subprocess.run(
        command, check=True, cwd=root, stdout=subprocess.PIPE, preexec_fn=lambda: os.sched_setaffinity(0, mine)
    )
    return float(fitted.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path, help="where the set and the encoder are prepared")
    parser.add_argument("encoder", type=Path)
    parser.add_argument("--labels", type=int, default=16)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    add_record_option(parser)
    arguments = parser.parse_args()
    prepared = prepare("sst2", data=arguments.data, folder=arguments.folder)
    rows = json.loads((prepared.folder / "peers.json").read_text("utf-8"))
    drawn = np.concatenate([np.flatnonzero(prepared.labels == label)[: arguments.labels] for label in (0, 1)])
    texts, labels = [rows["train"][row][0] for row in drawn], prepared.labels[drawn].tolist()
    starts = {"6 layers (all-MiniLM-L6-v2)": arguments.encoder.resolve(),
              "12 layers (shape of bge-small)": deeper(arguments.encoder, arguments.folder).resolve()}  # fmt: skip
    taken: dict[str, list[float]] = {name: [] for name in starts}
    for _ in range(arguments.rounds):
        for name, start in starts.items():
            taken[name].append(seconds(texts, labels, start, cores=arguments.cores))
            print(name, f"{taken[name][-1]:.1f}", flush=True)
    values = {name: {"processors": min(each)} for name, each in taken.items()}
    first, second = values.values()
    values["ratio"] = {"processors": second["processors"] / first["processors"]}
    print(f"{values['ratio']['processors']:.2f}")
    record(
        arguments.record,
        title=f"Seconds of fit, {arguments.labels} rows for each of two classes of SST-2, least of {arguments.rounds}",
        row_title="encoder",
        columns=[Column(name="processors", title="seconds of the processors", format=".2f")],
        values=values,
        seeds=[0],
    )  # fmt: skip


if __name__ == "__main__":
    main()
