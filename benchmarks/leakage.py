"""Speed and peak memory of the stage `leakage` on one core.

    python benchmarks/leakage.py data/general data/domain/aws --megabytes 200 --rows 3000

Writes and ingests a corpus of the given size as `benchmarks/ingestion.py` does. One half of the test rows are sentences
of its documents, the other half are sentences with permuted letters. Then the stage searches dev and test in the
corpus, in a process of its own on one core.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.ingestion import take_one_core, write_corpus
from components.formats.corpus import read_documents
from components.ingestion.stage import IngestJob, ingest
from components.leakage.stage import LeakageJob, leakage
from components.reporting.recording import add_record_option, record
from components.reporting.results import Column
from components.settings.data import CorpusSource
from components.settings.ingest import IngestSettings
from components.settings.leakage import LeakageSettings
from components.settings.tasks import TaskSource
from components.tasks.examples import ExamplesJob, examples

#: Characters of a test row.
LENGTH = 160


def write_task(corpus: Path, folder: Path, *, rows: int) -> None:
    """Write train, dev and test with `rows` rows each, half of them parts of documents of the corpus."""
    documents = [text for text in read_documents(corpus) if len(text) > 2 * LENGTH]
    chosen = random.Random(0).sample(documents, min(len(documents), 3 * rows))
    shift = str.maketrans("abcdefghijklmnopqrstuvwxyz", "bcdefghijklmnopqrstuvwxyza")
    folder.mkdir(parents=True)
    for number, split in enumerate(("train", "dev", "test")):
        with (folder / f"{split}.jsonl").open("w", encoding="utf-8") as file:
            for index, text in enumerate(chosen[number::3]):
                part = text[LENGTH : 2 * LENGTH].partition(" ")[2].rpartition(" ")[0]
                row = {"text": part if index % 2 else part.translate(shift), "label": "xy"[index // 2 % 2]}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")


def measure(job: LeakageJob, results: multiprocessing.Queue[dict[str, float]]) -> None:
    """Run the stage; puts seconds, peak memory in MB and counts on the queue."""
    start, processor = time.perf_counter(), time.process_time()
    found = json.loads((leakage(job) / "leakage.json").read_text())
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1e3
    source = found["sources"]["corpus/domain"]
    counts = {"documents": source["documents"], "exact": source["test"]["exact"], "rows": found["rows"]["test"]}
    results.put({"seconds": seconds, "processor": processor, "peak": peak, **counts})


def main() -> None:
    """Write the corpus and the task, measure one run, print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+", help="folders of real text")
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--rows", type=int, default=3000, help="rows of dev, and of test")
    add_record_option(parser)
    arguments = parser.parse_args()
    take_one_core()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = write_corpus(arguments.sources, folder / "raw", megabytes=arguments.megabytes)
        corpus = folder / "corpus" / "domain"
        source = CorpusSource(path=str(folder / "raw"))
        settings = IngestSettings()
        ingest(IngestJob(name="domain", source=source, settings=settings, output=corpus))
        write_task(corpus, folder / "task", rows=arguments.rows)
        task = TaskSource(path=str(folder / "task"), dev_rows=None, overlap="report")
        job = LeakageJob(
            task="task",
            examples=examples(ExamplesJob(task="task", source=task, output=folder / "examples")),
            corpus=folder / "corpus",
            systems={"model-adapted": ["corpus/domain"]},
            settings=LeakageSettings(),
            near=settings.near_duplicates,
            output=folder / "leakage",
        )
        spawn = multiprocessing.get_context("spawn")
        results: multiprocessing.Queue[dict[str, float]] = spawn.Queue()
        process = spawn.Process(target=measure, args=(job, results))
        process.start()
        run = results.get()
        process.join()
    run["rate"] = size / run["processor"]
    print(f"corpus        {size:.0f} MB of raw text, {run['documents']:,} documents")
    print(f"test          {run['rows']:,} rows, {run['exact']:,} of them found word by word")
    print(f"time          {run['seconds']:.1f} s, {run['processor']:.1f} s of the processor: {run['rate']:.1f} MB/s")
    print(f"peak memory   {run['peak']:.0f} MB")
    record(
        arguments.record,
        title=f"Search of {2 * arguments.rows:,} rows of dev and test in a corpus, on one core",
        row_title="corpus",
        columns=[
            Column(name="documents", title="documents", format=",.0f"),
            Column(name="rate", title="speed (processor time)", format=".1f", unit=" MB/s"),
            Column(name="peak", title="peak memory", format=",.0f", unit=" MB"),
        ],
        values={f"{size:,.0f} MB": {key: run[key] for key in ("documents", "rate", "peak")}},
    )


if __name__ == "__main__":
    main()
