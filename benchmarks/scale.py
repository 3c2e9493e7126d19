"""Time and memory of the data path for growing corpora: ingest, tokenize, and one epoch of a pretraining sampler.

    python benchmarks/scale.py data/general --gigabytes 0.5 1 10

Writes corpora of the given sizes as `benchmarks/ingestion.py` does: the text of the given folders repeated, with the
letters of the alphabet permuted in each pass. Each step runs in its own process on one core. Reported per size: seconds
of processor time per gigabyte (10^9 bytes) of raw text, which should not grow with the size; the highest memory of each
step without the file cache, which should not grow either; and tokens and bytes that are stored per gigabyte.

    python benchmarks/scale.py data/general --gigabytes 0.5 --nodes 3

compares this machine with a Ray cluster of nodes with folders of their own, which share the storage only, and see
neither the package nor the raw files. Reported for the local run and for each number of nodes: the speed of ingest,
tokenize and predict (a words model), the memory of the largest worker without the file cache, and how many outputs have
the digests of the local run. In the last run, a node is killed in the middle of ingest.
"""

from __future__ import annotations

import argparse
import atexit
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.ingestion import take_one_core, write_corpus  # noqa: E402
from benchmarks.results import (  # noqa: E402
    Column,
    add_record_option,
    record,
)
from components.cluster import shards  # noqa: E402
from components.core.artifacts import digest_file, read_manifest  # noqa: E402
from components.data.formats import corpus  # noqa: E402
from components.data.ingestion.stage import IngestJob, ingest  # noqa: E402
from components.data.tasks.data import Split  # noqa: E402
from components.data.tasks.kinds import scoring_for  # noqa: E402
from components.data.tasks.members import save_members  # noqa: E402
from components.learners.base import Rows  # noqa: E402
from components.learners.words.classifier import WordsModel, load_words, write_words  # noqa: E402
from components.learners.words.systems import SYSTEMS  # noqa: E402
from components.models import family  # noqa: E402
from components.serving.parts import LoadableModel, PartOptions, predict_parts  # noqa: E402
from components.settings.cluster import ClusterSettings  # noqa: E402
from components.settings.data import CorpusSource, IngestSettings  # noqa: E402
from components.settings.tokenizer import TokenizerSettings  # noqa: E402
from components.tokenization import load_tokenizer  # noqa: E402
from components.tokenization.store import TokenStore  # noqa: E402
from components.tokenization.tokenize import TokenizeJob, tokenize  # noqa: E402
from components.tokenization.train import TokenizerJob, train_tokenizer  # noqa: E402
from components.training.pretraining.samplers import sampler_for  # noqa: E402
from infra.stack.nodes import Cluster, kill_tree  # noqa: E402

#: Sampler of the epoch, and the shape of its batches.
FAMILY, ROWS, WINDOW = "roberta", 256, 512
#: Seconds between two readings of the memory.
INTERVAL = 0.02
STEPS = ("ingest", "tokenize", "epoch")


class Memory:
    """Highest memory of this process in MB without the pages of files, which the kernel can drop, while it runs."""

    def __init__(self) -> None:
        self.peak, self._ended = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(INTERVAL):
            status = Path("/proc/self/status").read_text().splitlines()
            anonymous = next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
            self.peak = max(self.peak, anonymous / 1e3)


def ingest_step(folder: Path) -> dict[str, float]:
    job = IngestJob(
        name="scale", source=CorpusSource(path=str(folder / "raw")), settings=IngestSettings(), output=folder / "corpus"
    )
    ingest(job)
    return {"corpus_bytes": size_of(folder / "corpus")}


def tokenize_step(folder: Path) -> dict[str, float]:
    tokenize(TokenizeJob(corpus=folder / "corpus", tokenizer=folder / "tokenizer", output=folder / "tokens"))
    return {
        "token_bytes": size_of(folder / "tokens"),
        "tokens": sum(TokenStore(folder / "tokens", split).tokens for split in ("train", "heldout")),
    }


def epoch_step(folder: Path) -> dict[str, float]:
    store, tokenizer = TokenStore(folder / "tokens", "train"), load_tokenizer(folder / "tokenizer")
    config = family(FAMILY).config(vocabulary=tokenizer.vocab_size)
    options: dict[str, Any] = {"batch_size": ROWS, "window": WINDOW, "seed": 0}
    sampler = sampler_for(FAMILY, store, config=config, pieces=tokenizer.pieces, **options)
    step = 0
    while sampler.tokens_before(step) < store.tokens:
        sampler.batch(step)
        step += 1
    return {"epoch_tokens": float(sampler.tokens_before(step))}


def measured(step: Callable[[Path], dict[str, float]], folder: Path, results: Any) -> None:
    """Run a step in this process; puts processor seconds, memory in MB and the step's numbers on the queue."""
    began = time.process_time()
    with Memory() as memory:
        numbers = step(folder)
    results.put({"seconds": time.process_time() - began, "memory": memory.peak, **numbers})


def in_process(step: Callable[[Path], dict[str, float]], folder: Path) -> dict[str, float]:
    """The numbers of a step that runs in its own process."""
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    process = spawn.Process(target=measured, args=(step, folder, results))
    process.start()
    result: dict[str, float] = results.get()
    process.join()
    return result


def size_of(folder: Path) -> float:
    """Bytes of all files of a folder."""
    return float(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()))


def measure(sources: list[Path], folder: Path, *, gigabytes: float) -> dict[str, float]:
    """The numbers of one size, per gigabyte of raw text, and the highest memory of each step."""
    size = write_corpus(sources, folder / "raw", megabytes=1000 * gigabytes) / 1e3
    numbers: dict[str, float] = {"gigabytes": size}
    for name, step in zip(STEPS, (ingest_step, tokenize_step, epoch_step), strict=True):
        if name == "tokenize":
            # The vocabulary is not measured, so a small sample suffices.
            settings = TokenizerSettings(sample_megabytes=8)
            output = folder / "tokenizer"
            train_tokenizer(TokenizerJob(corpus=folder / "corpus", output=output, kind="wordpiece", settings=settings))
        result = in_process(step, folder)
        numbers[f"{name}_memory"] = result.pop("memory")
        numbers[f"{name}_seconds"] = result.pop("seconds") / size
        numbers |= {key: value / size for key, value in result.items()}
    return numbers


@dataclass(frozen=True)
class StagesRun:
    """Seconds by stage, digests of the outputs, and the memory of the largest worker in MB."""

    seconds: dict[str, float]
    digests: dict[str, str]
    memory: float = 0.0


def prepare(folder: Path, documents: Path) -> None:
    """What is not measured: a vocabulary, a words model that tells long documents from short ones, and its input."""
    sample = TokenizerSettings(sample_megabytes=8)
    train_tokenizer(TokenizerJob(corpus=documents, output=folder / "tokenizer", kind="wordpiece", settings=sample))
    texts = list(islice(corpus.read_documents(documents), 2000))
    half = sorted(map(len, texts))[len(texts) // 2]
    targets = [np.asarray([float(len(text) > half)]) for text in texts]
    rows = Split([(text,) for text in texts], targets, [None] * len(texts))
    scoring = scoring_for("classification", ["short", "long"])
    training = Rows(rows, np.arange(len(rows)), rows, rows, ["short", "long"], scoring)
    model = SYSTEMS["classification"]["tfidf-words"](training)[-1].model
    assert isinstance(model, WordsModel)
    write = partial(write_words, model, kind="classification", labels=["short", "long"])
    save_members(folder / "model", [write], facts={"system": "tfidf-words"})
    with pq.ParquetWriter(folder / "texts.parquet", corpus.SCHEMA) as writer:
        for shard in corpus.shards(documents):
            for batch in corpus.read_batches(shard, corpus.SCHEMA.names):
                writer.write_batch(batch)


def run_stages(folder: Path, name: str) -> None:
    """Run the stages on the cluster of RAY_ADDRESS, or without one on this machine; prints seconds and digests."""
    shards.PARALLEL_BYTES = 0
    settings = ClusterSettings(storage=str(folder / "storage"), launcher="ray" if name != "local" else "local")
    documents, output = folder / name / "corpus", folder / name
    ingesting = IngestJob(
        name="scale",
        source=CorpusSource(path=str(folder / "raw")),
        settings=IngestSettings(),
        output=documents,
        cluster=settings,
    )
    tokenizing = TokenizeJob(
        corpus=documents, tokenizer=folder / "tokenizer", output=output / "tokens", cluster=settings
    )

    def predicted() -> Path:
        model = LoadableModel(partial(load_words, folder / "model"), "classification", "scale")
        predict_parts(
            folder / "texts.parquet", output / "answers.jsonl", model=model, options=PartOptions(cluster=settings)
        )
        return output / "answers.jsonl"

    stages: dict[str, Callable[[], Path]] = {
        "ingest": lambda: ingest(ingesting),
        "tokenize": lambda: tokenize(tokenizing),
        "predict": predicted,
    }
    result = StagesRun({}, {})
    for stage, run in stages.items():
        began = time.perf_counter()
        path = run()
        result.seconds[stage] = time.perf_counter() - began
        result.digests[stage] = digest_file(path) if path.is_file() else read_manifest(path, verify=True).digest
        if stage == "ingest" and not (folder / "tokenizer").exists():
            prepare(folder, path)
    print(json.dumps(asdict(result)))


def on_nodes(folder: Path, *, count: int, kill: bool) -> StagesRun:
    """The stages on a new cluster.

    Args:
        kill: whether a node is killed when a third of the raw files are read, and another one joins.
    """
    name = f"nodes-{count}{'-killed' if kill else ''}"
    work = folder / f"{name}-cluster"
    for hidden in (work, folder / name):
        hidden.mkdir()
    cluster = Cluster(work, (ROOT / "components", folder / "raw", folder / "local", folder / name), {})
    try:
        started = [cluster.node(f"node-{number}") for number in range(count)]
        driver = drive(folder, name, cluster.variables)
        memory = 0.0
        parts = len(list((folder / "raw").iterdir()))
        while driver.poll() is None:
            memory = max([memory, *(worker_memory(node.pid) for node in started)])
            if kill and len(list((folder / "storage").glob("shards-*/*.documents"))) > parts // 3:
                kill_tree(started[0].pid)
                started.append(cluster.node("joined"))
                kill = False
            time.sleep(INTERVAL)
        return replace(results_of(driver), memory=memory)
    finally:
        cluster.close()


def drive(folder: Path, name: str, variables: Mapping[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, str(folder), "--stages", name]
    process = subprocess.Popen(command, env=dict(variables), stdout=subprocess.PIPE, text=True)
    atexit.register(kill_tree, process.pid)
    return process


def results_of(driver: subprocess.Popen[str]) -> StagesRun:
    output, _ = driver.communicate()
    if driver.returncode:
        raise RuntimeError(output)
    return StagesRun(**json.loads(output.splitlines()[-1]))


def worker_memory(node: int) -> float:
    """The largest memory of a worker of a node in MB, without the pages of files."""
    largest = 0.0
    with suppress(psutil.Error, OSError):
        for process in psutil.Process(node).children(recursive=True):
            if process.name().startswith("ray::"):
                status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                anonymous = next((int(line.split()[1]) for line in status if line.startswith("RssAnon")), 0)
                largest = max(largest, anonymous / 1e3)
    return largest


def compare_with_nodes(
    sources: list[Path], folder: Path, *, gigabytes: float, nodes: int
) -> dict[str, dict[str, float]]:
    """The rows of the table: the local run, each number of nodes, and the killed one."""
    size = write_corpus(sources, folder / "raw", megabytes=1000 * gigabytes, of_a_file=32) / 1e3
    for name in ("storage", "local"):
        (folder / name).mkdir()
    rows: dict[str, dict[str, float]] = {}
    local = StagesRun({}, {})
    for label, count, kill in [
        ("this machine", 0, False),
        *((f"{count} node{'s' * (count > 1)}", count, False) for count in range(1, nodes + 1)),
        (f"{nodes} nodes, one killed", nodes, True),
    ]:
        run = on_nodes(folder, count=count, kill=kill) if count else results_of(drive(folder, "local", os.environ))
        local = local if count else run
        rows[label] = {f"{stage}_speed": 1e3 * size / run.seconds[stage] for stage in run.seconds}
        rows[label]["same"] = sum(run.digests[stage] == digest for stage, digest in local.digests.items())
        rows[label] |= {"memory": run.memory} if run.memory else {}
        print(json.dumps({"run": label, **rows[label], **run.seconds}), flush=True)
    return rows


def measure_nodes(arguments: argparse.Namespace) -> None:
    """Compare the local process with nodes, and record the table."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends the nodes
    folder = Path(tempfile.mkdtemp(prefix="headstart-scale-", dir=arguments.work))
    gigabytes = arguments.gigabytes[0]
    try:
        values = compare_with_nodes(arguments.sources, folder, gigabytes=gigabytes, nodes=arguments.nodes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    record(
        arguments.record,
        title=f"{gigabytes:g} GB of raw text on Ray nodes of one processor, on one machine",
        row_title="run",
        columns=[
            Column(name="ingest_speed", title="ingest", format=".1f", unit=" MB/s"),
            Column(name="tokenize_speed", title="tokenize", format=".1f", unit=" MB/s"),
            Column(name="predict_speed", title="predict", format=".1f", unit=" MB/s"),
            Column(name="memory", title="memory of the largest worker", format=",.0f", unit=" MB"),
            Column(name="same", title="outputs with the digests of the local run", format=".0f"),
        ],
        values=values,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=Path, nargs="+", help="folders of real text")
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.5, 1.0])
    parser.add_argument("--work", type=Path, help="folder with space for three times the largest size")
    parser.add_argument("--nodes", type=int, default=0, help="compare this process with up to so many Ray nodes")
    parser.add_argument("--stages", help=argparse.SUPPRESS)
    add_record_option(parser)
    arguments = parser.parse_args()
    if arguments.stages:
        run_stages(arguments.sources[0], arguments.stages)
        return
    if arguments.nodes:
        measure_nodes(arguments)
        return
    take_one_core()
    values: dict[str, dict[str, float]] = {}
    for gigabytes in arguments.gigabytes:
        folder = Path(tempfile.mkdtemp(prefix="headstart-scale-", dir=arguments.work))
        try:
            numbers = measure(arguments.sources, folder, gigabytes=gigabytes)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(json.dumps({name: round(value, 3) for name, value in numbers.items()}), flush=True)
        values[f"{gigabytes:g} GB"] = {
            **{name: numbers[name] for step in STEPS for name in (f"{step}_seconds", f"{step}_memory")},
            "tokens": numbers["tokens"] / 1e6,
            "token_bytes": numbers["token_bytes"] / 1e6,
            "corpus_bytes": numbers["corpus_bytes"] / 1e6,
        }
    record(
        arguments.record,
        title=f"Data path on one core by size of the corpus; epoch of the sampler of {FAMILY} ({ROWS} x {WINDOW})",
        row_title="raw text",
        columns=[
            *(Column(name=f"{step}_seconds", title=f"{step}, s per GB", format=".1f") for step in STEPS),
            *(Column(name=f"{step}_memory", title=f"{step}, memory", format=",.0f", unit=" MB") for step in STEPS),
            Column(name="tokens", title="tokens per GB", format=",.0f", unit=" M"),
            Column(name="corpus_bytes", title="documents per GB", format=",.0f", unit=" MB"),
            Column(name="token_bytes", title="token shards per GB", format=",.0f", unit=" MB"),
        ],
        values=values,
    )


if __name__ == "__main__":
    main()
