"""Few labels: Headstart compared with what users would pick, on the same rows, from the same encoder, on one core.

    python benchmarks/few_labels.py environments ENVIRONMENTS
    python benchmarks/few_labels.py run DATA WORK --environments ENVIRONMENTS --encoder ENCODER
    python benchmarks/few_labels.py summary WORK --record few-labels

`environments` creates below ENVIRONMENTS a virtual environment for each file of benchmarks/comparison/requirements:
setfit (with sentence-transformers), model2vec, fastai, flair, and gensim for tests/parity. ENCODER is all-MiniLM-L6-v2
(experiments/README.md), from which every system but fastai and TF-IDF starts. DATA has the folders sst2, trec,
clinc150, imdb, imdb-unsup, truevoice-intent, sick, enwiki2015-slice and thaigov, with the files of
experiments/README.md (of TREC TREC.train.all and TREC.test.all).

`run` measures cells; a cell is one set, label budget, draw and system. Every cell is a line of WORK/cells.jsonl. Cells
that the file holds are not measured again, so a killed run goes on, and systems can be added later. Draws are the outer
loop: a partial result is balanced. `--systems`, `--sets`, `--budgets` and `--draws` select cells.

Systems:

    tfidf             words and word pairs, logistic regression, C by cross-validation in the labels
    tfidf-characters  the same and character n-grams
    tfidf-balanced    tfidf with balanced class weights, C by macro F1
    embeddings        sentence-transformers, frozen, logistic regression with C = 1
    embeddings-balanced  the same with balanced class weights
    embeddings-cv     embeddings, C by cross-validation
    model2vec         static vectors distilled from the encoder, logistic regression
    setfit            SetFit with its defaults (1 epoch, batches of 16, all pairs); above 16,000 pairs R = 20 per text
    flair             fine-tuning, 10 epochs (flair's defaults)
    fastai            AWD-LSTM from random weights: its published weights are in no package
    headstart         `method: auto`, `selection: budget`, from the encoder
    headstart-contrastive  `method: contrastive`, `selection: budget`, from the encoder
    headstart-frozen  `method: features`, `selection: budget`, on the frozen encoder
    headstart-words   words models, `selection: budget`
    headstart-own     no imported model: own pretraining on general text, adaptation to unlabelled text, and words

Budgets are rows of each class. The sets sst2-skewed (4:1, in train and test) and trec-natural (as rows come) have
budgets of 60 and 150 rows in all.

No system sees dev or the labels of test. Test is a fixed sample of at most 2,000 rows of a set (1,000 of IMDb and
TrueVoice). Scores are computed here, for all systems alike. Processor seconds are recorded beside those of the clock,
which depend on other work on the machine.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.comparison.headstart import HEADSTART, learn
from benchmarks.comparison.sets import SETS, Cells, Key, Prepared, prepare, score
from benchmarks.comparison.summary import summarise
from benchmarks.results import add_record_option

HERE = Path(__file__).parent / "comparison"
#: System -> its environment; None: Headstart's.
PEERS: dict[str, str | None] = {
    "tfidf": None,
    "tfidf-characters": None,
    "tfidf-balanced": None,
    "embeddings-balanced": "setfit",
    "embeddings": "setfit",
    "embeddings-cv": "setfit",
    "model2vec": "model2vec",
    "setfit": "setfit",
    "flair": "flair",
    "fastai": "fastai",
}
SYSTEMS = (*PEERS, *HEADSTART)
ENVIRONMENTS = sorted(path.stem for path in (HERE / "requirements").glob("*.txt"))


def make_environments(folder: Path) -> None:
    """Create the environments that do not exist, with the pinned libraries."""
    for name in ENVIRONMENTS:
        target = folder / name
        if (target / "complete").is_file():
            continue
        venv.create(target, with_pip=True, clear=True)
        requirements = HERE / "requirements" / f"{name}.txt"
        subprocess.run([target / "bin" / "python", "-m", "pip", "install", "-q", "-r", requirements], check=True)
        (target / "complete").touch()
        print(f"{target}: {requirements.name} installed", flush=True)


@dataclass
class Peers:
    """The processes of the other systems; one per system, started when it is needed."""

    environments: Path
    encoder: Path
    work: Path
    running: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def learn(self, key: Key, prepared: Prepared) -> dict[str, Any]:
        """Learn and predict a cell; the keys of `peers.answer`, or `error`."""
        process = self.running.get(key.system) or self._start(key.system)
        cache = self.work / "cache"
        cache.mkdir(parents=True, exist_ok=True)
        request = {
            "set": key.set,
            "data": str(prepared.folder / "peers.json"),
            "rows": prepared.rows(key.budget, key.draw).tolist(),
            "draw": key.draw,
            "cache": str(cache),
        }
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"{key.system} ended; its messages are in {self._log(key.system)}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _start(self, system: str) -> subprocess.Popen[str]:
        name = PEERS[system]
        python = Path(sys.executable) if name is None else self.environments / name / "bin" / "python"
        if not python.is_file():
            raise SystemExit(f"{python} does not exist; run `few_labels.py environments {self.environments}` first")
        # One thread each; libraries are told not to look for models in the network.
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | threads | offline
        self._log(system).parent.mkdir(parents=True, exist_ok=True)
        self.running[system] = subprocess.Popen(
            [python, HERE / "peers.py", system, "--encoder", self.encoder.absolute()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log(system).open("a"),
            text=True,
            env=environment,
        )
        return self.running[system]

    def _log(self, system: str) -> Path:
        return self.work / "logs" / f"{system}.log"

    def stop(self) -> None:
        """End the processes."""
        for process in self.running.values():
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def wanted(arguments: argparse.Namespace) -> Iterator[Key]:
    """The chosen cells: draw by draw; within a draw system by system, small budgets first."""
    for draw in range(arguments.draws):
        for system in arguments.systems:
            for place in range(max(len(SETS[name].budgets) for name in arguments.sets)):
                for name in arguments.sets:
                    budgets = SETS[name].budgets[place : place + 1]
                    for budget in budgets:
                        if not arguments.budgets or budget in arguments.budgets:
                            yield Key(name, budget, draw, system)


def run(arguments: argparse.Namespace) -> None:
    """Measure the chosen cells that are not stored."""
    cells = Cells(arguments.work / "cells.jsonl")
    peers = Peers(arguments.environments, arguments.encoder, arguments.work)
    prepared: dict[str, Prepared] = {}
    try:
        for key in wanted(arguments):
            if key.set not in prepared:
                prepared[key.set] = prepare(
                    key.set, data=arguments.data, folder=arguments.work / "sets", judged=arguments.judged
                )
            data = prepared[key.set]
            if cells.has(key, data.digest):
                continue
            began = time.perf_counter()
            answer = peers.learn(key, data) if key.system in PEERS else learn(key, data, arguments)
            if "error" in answer:
                print(f"{key}: {answer['error']}", flush=True)
                continue
            scores = score(answer["predicted"], data.truth, data.names)
            cells.add(key, answer | scores | provenance(key, data))
            spent = f"{answer['learn_seconds']:.1f} + {answer['predict_seconds']:.1f} s of the processor"
            took = f"{time.perf_counter() - began:.1f} s, {answer['megabytes']:.0f} MB"
            print(f"{key}: macro F1 {scores['macro_f1']:.3f}; {spent}; {took}", flush=True)
    finally:
        peers.stop()


def provenance(key: Key, data: Prepared) -> dict[str, Any]:
    """What identifies the rows, and the command that measures the cell alone."""
    rows = data.rows(key.budget, key.draw)
    fixed = "DATA WORK --environments ENVIRONMENTS --encoder ENCODER"
    chosen = f"--systems {key.system} --sets {key.set} --budgets {key.budget} --draws {key.draw + 1}"
    return {
        "data": data.digest,
        "rows": len(rows),
        "rows_digest": hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest(),
        "command": f"python benchmarks/few_labels.py run {fixed} {chosen}",
        "measured": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "load": os.getloadavg()[0],
    }


def main(words: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("environments", help="create the environments of the other systems")
    make.add_argument("folder", type=Path)
    make.set_defaults(do=lambda arguments: make_environments(arguments.folder))
    measure = commands.add_parser("run", help="measure cells")
    measure.add_argument("data", type=Path)
    measure.add_argument("work", type=Path)
    measure.add_argument("--environments", type=Path, required=True)
    measure.add_argument("--encoder", type=Path, required=True)
    measure.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    measure.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    measure.add_argument(
        "--budgets", nargs="+", type=int, default=[], help="per class, or rows in all; default: those of the set"
    )
    measure.add_argument("--draws", type=int, default=5, help="draws 0 ... N - 1")
    measure.add_argument("--judged", choices=["test", "dev"], default="test", help="dev: for a choice of settings")
    measure.set_defaults(do=run)
    report = commands.add_parser("summary", help="tables with paired intervals over draws")
    report.add_argument("work", type=Path)
    add_record_option(report)
    report.set_defaults(do=lambda arguments: summarise(arguments.work / "cells.jsonl", arguments.record))
    arguments = parser.parse_args(None if words is None else list(words))
    arguments.do(arguments)


if __name__ == "__main__":
    main()
