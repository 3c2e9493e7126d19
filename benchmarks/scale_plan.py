"""What a corpus of one terabyte and 64 GPUs need, derived from the measured data path (`benchmarks/scale.py`).

    python benchmarks/scale_plan.py --record scale-plan

Reads docs/results/data-path.json and multiplies the numbers of its largest corpus, which are per gigabyte and per core.
The memory of a step is extrapolated along the line through the two largest corpora.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from components.reporting.recording import add_record_option, record
from components.reporting.results import RESULTS, Column, read_result

SOURCE = "data-path"
#: Raw text in gigabytes, and number of GPUs; one worker per GPU.
GIGABYTES, GPUS = 1000, 64


def plan(sizes_measured: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Rows of the plan.

    Args:
        sizes_measured: at least two sizes in gigabytes, ascending, each with the numbers of `benchmarks/scale.py`,
            which are per gigabyte of raw text except the memory in MB.
    """
    (before, smaller), (largest, measured) = sizes_measured[-2:]
    hours = {step: GIGABYTES * measured[f"{step}_seconds"] / 3600 for step in ("ingest", "tokenize", "epoch")}
    # Sizes in MB per gigabyte are GB per terabyte.
    sizes = {"ingest": measured["corpus_bytes"], "tokenize": measured["token_bytes"]}
    names = {"ingest": "documents (Parquet)", "tokenize": "token shards (Arrow)", "epoch": "batches of one epoch"}
    rows = {}
    for step, name in names.items():
        memory = f"{step}_memory"
        slope = (measured[memory] - smaller[memory]) / (largest - before)
        rows[name] = {
            "hours": hours[step],
            "hours_gpu": hours[step] / GPUS,
            "memory": (measured[memory] + slope * (GIGABYTES - largest)) / 1000,
        }
        if step in sizes:
            rows[name] |= {"size": sizes[step], "size_gpu": sizes[step] / GPUS}
    return rows


def main() -> None:
    """Print the plan; record it if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of measured results")
    add_record_option(parser)
    arguments = parser.parse_args()
    result = read_result(arguments.results / f"{SOURCE}.json")
    # A row is named by its size: "10 GB".
    rows = plan(
        [
            (float(row.name.split()[0]), {name: values[0] for name, values in row.estimates.items()})
            for row in result.values
        ]
    )
    for name, row in rows.items():
        print(f"{name:<24}" + "  ".join(f"{key} {value:,.2f}" for key, value in row.items()))
    record(
        arguments.record,
        title=f"One terabyte of raw text and {GPUS} GPUs, computed from {SOURCE} at {result.values[-1].name}",
        row_title="step",
        columns=[
            Column(name="size", title="stored", format=",.0f", unit=" GB"),
            Column(name="size_gpu", title="per GPU", format=",.1f", unit=" GB"),
            Column(name="hours", title="core hours", format=",.1f"),
            Column(name="hours_gpu", title="core hours per GPU", format=",.2f"),
            Column(name="memory", title="memory of a process", format=",.1f", unit=" GB"),
        ],
        values=rows,
    )


if __name__ == "__main__":
    main()
