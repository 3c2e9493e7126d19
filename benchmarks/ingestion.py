"""Speed and peak memory of the ingest stage on one core, near-duplicate search included.

    python benchmarks/ingestion.py data/general data/domain/aws --megabytes 500 --repeats 3

Writes a corpus of the given size from the documents of the given folders. Each pass over them after the first permutes
the letters of the alphabet, so words keep their lengths and frequencies, but no document repeats one of an earlier
pass. In each pass, every 20th document is followed by an exact duplicate, and as many others by a near duplicate. Then
each run ingests the corpus in its own process on one core, and reports MB/s of raw text by wall time and by processor
time, and the peak resident memory.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import string
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Column, add_record_option, record
from components.data.formats.lines import Reading
from components.data.ingestion.readers import raw_files, read_documents
from components.data.ingestion.stage import IngestJob, ingest
from components.settings.data import CorpusSource, IngestSettings


def write_corpus(sources: list[Path], target: Path, *, megabytes: float, of_a_file: float = 64) -> float:
    """Write .jsonl files of about `of_a_file` megabytes into `target`; returns the number of megabytes."""
    target.mkdir(parents=True)
    written, part, copy = 0, 0, 0
    output = (target / "part-0000.jsonl").open("w", encoding="utf-8")
    while written < megabytes * 1e6:
        alphabet = list(string.ascii_lowercase)
        random.Random(copy).shuffle(alphabet)
        letters = "".join(alphabet)
        table = str.maketrans(string.ascii_letters, letters + letters.upper()) if copy else {}
        for source in sources:
            for path in raw_files(source)[0]:
                for number, (text,), _ in read_documents(path, CorpusSource(path=str(source)), Reading()):
                    texts = [text.translate(table)]
                    if number % 20 == 0:
                        texts.append(texts[0])
                    elif number % 20 == 10:
                        texts.append(f"{texts[0]} Once more.")
                    for variant in texts:
                        written += output.write(json.dumps({"text": variant}, ensure_ascii=False) + "\n")
                    if written >= megabytes * 1e6:
                        output.close()
                        return written / 1e6
                    if written >= (part + 1) * of_a_file * 1e6:
                        output.close()
                        part += 1
                        output = (target / f"part-{part:04d}.jsonl").open("w", encoding="utf-8")
        copy += 1
    return written / 1e6


def measure(raw: Path, output: Path, results: multiprocessing.Queue[dict[str, float]]) -> None:
    """Ingest `raw` in this process; puts wall and processor seconds, peak memory in MB and counts on the queue."""
    job = IngestJob(name="benchmark", source=CorpusSource(path=str(raw)), settings=IngestSettings(), output=output)
    start, processor = time.perf_counter(), time.process_time()
    ingest(job)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1e3
    counts = json.loads((output / "metrics.json").read_text())
    results.put({"seconds": seconds, "processor": processor, "peak": peak, **counts})


def take_one_core() -> None:
    """Restrict this process and those that it starts to one core and one thread."""
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+", help="folders of real text")
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    add_record_option(parser)
    arguments = parser.parse_args()
    take_one_core()
    spawn = multiprocessing.get_context("spawn")
    runs: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        size = write_corpus(arguments.sources, Path(folder) / "raw", megabytes=arguments.megabytes)
        for repeat in range(arguments.repeats):
            results: multiprocessing.Queue[dict[str, float]] = spawn.Queue()
            process = spawn.Process(target=measure, args=(Path(folder) / "raw", Path(folder) / f"{repeat}", results))
            process.start()
            runs.append(results.get())
            process.join()
    for run in runs:
        run["clock_rate"], run["processor_rate"] = size / run["seconds"], size / run["processor"]
    first = runs[0]
    exact, near = first["dropped_exact_duplicate"], first["dropped_near_duplicate"]
    print(f"corpus            {size:.0f} MB, {first['documents']} documents, {first['kept']} kept,")
    print(f"                  {exact} exact and {near} near duplicates")
    for name, unit, label in (
        ("clock_rate", "MB/s", "by wall time"),
        ("processor_rate", "MB/s", "by processor time"),
        ("peak", "MB", "peak memory"),
    ):
        values = [run[name] for run in runs]
        print(
            f"{label:<18}{statistics.median(values):.1f} {unit}  (of {', '.join(f'{value:.1f}' for value in values)})"
        )
    record(
        arguments.record,
        title=f"Ingestion with near-duplicate search on one core, medians of {arguments.repeats} runs",
        row_title="corpus",
        columns=[
            Column(name="clock_rate", title="speed", format=".1f", unit=" MB/s"),
            Column(name="peak", title="peak memory", format=",.0f", unit=" MB"),
        ],
        values={
            f"{size:,.0f} MB": {key: statistics.median(run[key] for run in runs) for key in ("clock_rate", "peak")}
        },
    )


if __name__ == "__main__":
    main()
