"""Speed and peak memory of the ingest stage on one core, near-duplicate search included.

    python benchmarks/ingestion.py data/general data/domain/aws --megabytes 500 --repeats 3

Writes a corpus of the wanted size from the real documents of the given folders: each pass over them after the first is
spelled in another alphabet (a permutation of the letters), so that words keep their lengths and frequencies while no
document repeats an earlier one; every 20th document of a pass is an exact repeat, every 20th a near repeat. Then each
run ingests it in a process of its own, held to one core, and reports MB/s of raw text by the clock and by processor
time, and the peak of the resident memory.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import string
import tempfile
import time
from pathlib import Path

from components.formats.lines import Reading
from components.ingestion.readers import raw_files, read_texts
from components.ingestion.stage import IngestJob, ingest
from components.settings.data import CorpusSource
from components.settings.ingest import IngestSettings


def write_corpus(sources: list[Path], target: Path, *, megabytes: float) -> float:
    """Fill `target` with .jsonl files of about 64 MB; returns the megabytes written."""
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
                for number, text, _ in read_texts(path, CorpusSource(path=str(source)), Reading()):
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
                    if written >= (part + 1) * 64e6:
                        output.close()
                        part += 1
                        output = (target / f"part-{part:04d}.jsonl").open("w", encoding="utf-8")
        copy += 1
    return written / 1e6


def measure(raw: Path, output: Path, results: multiprocessing.Queue[dict[str, float]]) -> None:
    """Ingest `raw` once in this process; puts seconds, processor seconds, peak memory and counts on the queue."""
    job = IngestJob(name="benchmark", source=CorpusSource(path=str(raw)), settings=IngestSettings(), output=output)
    start, processor = time.perf_counter(), time.process_time()
    ingest(job)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1e3
    counts = json.loads((output / "metrics.json").read_text())
    results.put({"seconds": seconds, "processor": processor, "peak": peak, **counts})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+", help="folders of real text")
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
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
    print(f"corpus            {size:.0f} MB, {first['documents']} documents, {first['kept']} kept,")
    print(
        f"                  {first['dropped_exact_duplicate']} exact and {first['dropped_near_duplicate']} near repeats"
    )
    for name, unit, label in (
        ("clock_rate", "MB/s", "by the clock"),
        ("processor_rate", "MB/s", "by processor time"),
        ("peak", "MB", "peak memory"),
    ):
        values = [run[name] for run in runs]
        print(
            f"{label:<18}{statistics.median(values):.1f} {unit}  (of {', '.join(f'{value:.1f}' for value in values)})"
        )


if __name__ == "__main__":
    main()
