"""Rows a second and memory of the reader of tables, beside pandas and polars, on made-up csv and JSON lines.

    python benchmarks/reading.py --megabytes 1000 --repeats 3

Every library reads the whole file, on one core. pandas and polars hold all rows in memory; the reader yields rows of
Python text, a block at a time. `polars, rows` iterates over the rows of the frame, too. polars, if it is not installed,
is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Column, add_record_option, record

#: Library -> statements that read `path`, a csv or jsonl file, and count its rows.
LIBRARIES: Final = {
    "headstart": (
        "from components.data.formats.rows import read_columns\n"
        "rows = sum(1 for _ in read_columns(path, form, ['text', 'label']))"
    ),
    "pandas": (
        "import pandas as pd\n"
        "frame = pd.read_csv(path, dtype=str) if form == 'csv' else pd.read_json(path, lines=True, dtype=False)\n"
        "rows = len(frame)"
    ),
    "polars": (
        "import polars as pl\n"
        "frame = pl.read_csv(path, infer_schema=False) if form == 'csv' else pl.read_ndjson(path)\n"
        "rows = len(frame)"
    ),
    "polars, rows": (
        "import polars as pl\n"
        "frame = pl.read_csv(path, infer_schema=False) if form == 'csv' else pl.read_ndjson(path)\n"
        "rows = sum(1 for _ in frame.select('text', 'label').iter_rows())"
    ),
}
SCRIPT: Final = """\
import json, resource, sys, time
from pathlib import Path
form, path = sys.argv[1], Path(sys.argv[2])
import pyarrow
pyarrow.set_cpu_count(1)
LIBRARY_IMPORTS
began, used = time.perf_counter(), time.process_time()
READ
print(json.dumps({"rows": rows, "seconds": time.process_time() - used,
                  "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def write_files(folder: Path, megabytes: float) -> dict[str, Path]:
    """Files of about this size with the columns id, text and label; every third text has a delimiter."""
    rng = random.Random(0)
    words = [f"w{rng.randrange(1 << 16):x}" for _ in range(5_000)]
    paths = {form: folder / f"rows.{form}" for form in ("csv", "jsonl")}
    with paths["csv"].open("w") as table, paths["jsonl"].open("w") as objects:
        table.write("id,text,label\n")
        number = 0
        while table.tell() < megabytes * 1e6:
            text = " ".join(rng.choices(words, k=60))
            text = text if number % 3 else text.replace(" ", ", ", 1)
            quoted = f'"{text}"' if "," in text else text
            table.write(f"{number},{quoted},{number % 7}\n")
            objects.write(json.dumps({"id": number, "text": text, "label": str(number % 7)}) + "\n")
            number += 1
    return paths


def measure(library: str, form: str, path: Path) -> dict[str, float]:
    """Rows, seconds of the processor and peak memory of one read, in a process of its own."""
    statements = LIBRARIES[library].split("\n")
    imports = [line for line in statements if "import " in line]
    read = "\n".join(line for line in statements if line not in imports)
    script = SCRIPT.replace("LIBRARY_IMPORTS", "\n".join(imports)).replace("READ", read)
    environment = {**os.environ, "POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, form, path], capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    add_record_option(parser)
    options = parser.parse_args()
    libraries = [name for name in LIBRARIES if "polars" not in name or _is_installed("polars")]
    values: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for form, path in write_files(Path(folder), options.megabytes).items():
            size = path.stat().st_size / 1e6
            turns = [{name: measure(name, form, path) for name in libraries} for _ in range(options.repeats)]
            fastest = "polars" if "polars" in libraries else "pandas"
            for name in libraries:
                seconds = statistics.median(turn[name]["seconds"] for turn in turns)
                values[f"{form}, {name}"] = {
                    "speed": size / seconds,
                    "rows": turns[0][name]["rows"] / seconds,
                    "ratio": statistics.median(turn[fastest]["seconds"] / turn[name]["seconds"] for turn in turns),
                    "memory": max(turn[name]["megabytes"] for turn in turns),
                }
                shown = (f"{key} {value:,.2f}" for key, value in values[f"{form}, {name}"].items())
                print(f"{form}, {name}: {', '.join(shown)}", flush=True)
    record(
        options.record,
        title=f"Tables of {options.megabytes:,.0f} MB, one core, processor time, medians of {options.repeats} turns",
        row_title="file, library",
        columns=[
            Column(name="speed", title="speed", format=",.0f", unit=" MB/s"),
            Column(name="rows", title="rows a second", format=",.0f"),
            Column(name="ratio", title=f"relative to {fastest}", format=".2f", unit=" x"),
            Column(name="memory", title="peak memory", format=",.0f", unit=" MB"),
        ],
        values=values,
    )


def _is_installed(name: str) -> bool:
    return subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, check=False).returncode == 0


if __name__ == "__main__":
    main()
