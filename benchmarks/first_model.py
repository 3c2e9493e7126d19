"""Time from labelled rows to a served model: each command of a new user, in an empty folder.

    python benchmarks/first_model.py --case "SST-2, words" datasets/sst2/train.tsv 0 1
        --case "SST-2, MiniLM" datasets/sst2/train.tsv 0 1 all-MiniLM-L6-v2

A case names a labelled file, its columns of the text and of the label (numbers without a header), and, unless words
models alone are trained, an encoder of `headstart starts`. A random sample of the rows becomes data.csv, and further
rows without their labels new.csv. `suggest` chooses from new.csv; the labels of the file are the answers that `label`
merges. Every command is a process of its own, whose wall time and processor time are printed; other work on the machine
changes the latter less. The installation of an encoder includes its download.

    --peer setfit ENVIRONMENTS/setfit/bin/python --peer autointent PYTHON --peer open-autonlu PYTHON

measures instead what Headstart (init, fit, predict of one row) and other libraries take from data.csv to the first
prediction, and the macro F1 of their predictions of new.csv. A peer is a system of benchmarks/comparison/peers.py and
the interpreter of an environment with its library: setfit.txt of benchmarks/comparison/requirements;
autointent[sentence-transformers]==0.4.0; or open-autonlu==1.0.0, which needs Python 3.12; each with torch==2.13.0.
Peers start from the encoder of the case, without one they are not measured. One that takes longer than --limit is left
out. With OMP_NUM_THREADS=1 all use one thread.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Timer
from typing import Final

import psutil
from sklearn.metrics import f1_score

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.results import Column, add_record_option, record
from components.data.sampling import read_rows

ROOT: Final = Path(__file__).resolve().parents[1]
#: Name of the task, and of the labelled file that it is named after.
TASK: Final = "data"
#: Seconds after which a command is stopped.
LIMIT: Final = 3600
#: Number of texts that are suggested.
SUGGESTED: Final = 50
PEERS: Final = ROOT / "benchmarks" / "comparison" / "peers.py"
HEADSTART: Final = "Headstart"


@dataclass(frozen=True)
class Peers:
    """Other libraries: system of `peers.py` -> interpreter of its environment; and the seconds that each may take."""

    pythons: dict[str, Path]
    limit: float


@dataclass(frozen=True)
class First:
    """From data.csv to the first prediction.

    Attributes:
        wall, processor: seconds.
        macro_f1: of the predictions of new.csv.
    """

    wall: float
    processor: float
    macro_f1: float


class Project:
    """An empty folder in which commands are timed.

    Args:
        folder: the folder.
        rows: (text, label) of labelled rows.
        further: of rows whose labels are not given.
    """

    def __init__(self, folder: Path, rows: Sequence[tuple[str, str]], further: Sequence[tuple[str, str]]) -> None:
        self.folder = folder
        self.seconds: dict[str, tuple[float, float]] = {}
        self._answers = dict(further)
        self.names = sorted(set(dict(rows).values()))
        _write(folder / f"{TASK}.csv", [("text", "label"), *rows])
        _write(folder / "new.csv", [("text",), *((text,) for text, _ in further)])
        _write(folder / "one.csv", [("text",), further[0][:1]])

    def run(self, step: str, *arguments: str) -> None:
        """Run `headstart` with the arguments, and note its times."""
        began, before = time.perf_counter(), _processor_time()
        done = subprocess.run(
            _command(*arguments), cwd=self.folder, env=_environment(), capture_output=True, text=True, timeout=LIMIT
        )
        if done.returncode:
            raise SystemExit(f"headstart {' '.join(arguments)}: {done.stderr or done.stdout}")
        self._note(step, time.perf_counter() - began, _processor_time() - before)

    def answer(self, file: Path) -> None:
        """Fill in the labels of suggested texts."""
        with file.open(encoding="utf-8-sig", newline="") as source:
            rows = list(csv.DictReader(source))
        _write(file, [("text", "label"), *((row["text"], self._answers[row["text"]]) for row in rows)])

    def serve(self, step: str) -> None:
        """Note the wall time from the start of `headstart serve` to its first answer, and its processor time."""
        body = json.dumps({"inputs": {"text": [next(iter(self._answers))]}}).encode()
        began, before = time.perf_counter(), _processor_time()
        with _server(self.folder) as port:
            request = urllib.request.Request(f"http://127.0.0.1:{port}/invocations", data=body)
            with urllib.request.urlopen(request, timeout=LIMIT) as response:
                assert len(json.load(response)["predictions"]) == 1
            answered = time.perf_counter() - began
        self._note(step, answered, _processor_time() - before)

    def macro_f1(self, labels: Sequence[str]) -> float:
        return float(f1_score(list(self._answers.values()), labels, average="macro", labels=self.names))

    def peer(self, system: str, python: Path, start: str, *, limit: float) -> First | None:
        """Let another library learn from data.csv and predict new.csv; None: it has failed or takes too long."""
        encoder = self.folder / ".headstart" / "starts" / start
        command = [str(python), str(PEERS), system, "--encoder", str(encoder), "--files", f"{TASK}.csv", "new.csv"]
        # Nothing is looked for in a network, and no cache of an earlier run is read.
        offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        environment = os.environ | offline | {"HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder)}
        log, began = self.folder / f"{system}.log", time.perf_counter()
        with (
            log.open("w", encoding="utf-8") as messages,
            subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=messages, text=True
            ) as process,
        ):
            assert process.stdout is not None
            timer = Timer(limit, process.kill)
            timer.start()
            label = process.stdout.readline()
            wall, processor = time.perf_counter() - began, _tree_time(process.pid) if label else 0.0
            labels = process.stdout.readline()
            timer.cancel()
        if not labels:
            print(f"  {system} has failed:\n{log.read_text(encoding='utf-8')[-2000:]}", flush=True)
            return None
        first = First(wall, processor, self.macro_f1(json.loads(labels)))
        self._print(f"{system}, until the first prediction", wall, processor)
        return first

    def _note(self, step: str, wall: float, processor: float) -> None:
        self.seconds[step] = wall, processor
        self._print(step, wall, processor)

    def _print(self, step: str, wall: float, processor: float) -> None:
        print(f"  {step:48} {wall:7.1f} s, processor {processor:7.1f} s", flush=True)


def _processor_time() -> float:
    """Processor seconds of the processes that this one has started and waited for, and of those that they have."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tree_time(pid: int) -> float:
    """Processor seconds of a running process, its descendants and the children that they have waited for."""
    process = psutil.Process(pid)
    return sum(sum(each.cpu_times()[:4]) for each in (process, *process.children(recursive=True)))


def _write(path: Path, rows: Sequence[Sequence[str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "components.cli", *arguments]


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


@contextmanager
def _server(folder: Path) -> Iterator[int]:
    """A server of the champion that takes requests; its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = _command("serve", "--port", str(port))
    with subprocess.Popen(command, cwd=folder, env=_environment(), stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).close()
                    break
                except (urllib.error.URLError, OSError):
                    time.sleep(0.1)
            else:
                raise SystemExit("headstart serve has ended")
            yield port
        finally:
            process.terminate()


def measure(
    file: Path, text: str, label: str, start: str | None, *, counts: tuple[int, int], peers: Peers, folder: Path
) -> tuple[dict[str, tuple[float, float]], dict[str, First]]:
    """Wall and processor seconds of every step, and what each library takes to its first prediction.

    Args:
        file: labelled rows.
        text, label: columns.
        start: encoder; None: words models.
        counts: number of labelled rows, and of rows without labels.
        peers: measured if there is an encoder.
        folder: an empty folder.
    """
    result = {str(row[text]).strip(): str(row[label]) for row in read_rows(file).rows if str(row[text]).strip()}
    rows = list(result.items())
    random.Random(0).shuffle(rows)
    labelled, further = counts
    if len(rows) < labelled + further:
        raise SystemExit(f"{file}: {len(rows)} different texts, fewer than the {labelled + further} that are needed")
    project = Project(folder, rows[:labelled], rows[labelled : labelled + further])
    if start is not None:
        project.run("starts install", "starts", "--install", start)
    steps = "init data.csv", "fit", "predict one.csv, 1 row"
    project.run(steps[0], "init", "data.csv", *(["--start", start] if start is not None else []))
    project.run(steps[1], "fit")
    project.run(steps[2], "predict", "one.csv", "one-predicted.csv")
    project.run(f"predict new.csv, {further:,} rows", "predict", "new.csv", "predictions.csv")
    with (folder / "predictions.csv").open(encoding="utf-8", newline="") as predicted:
        macro_f1 = project.macro_f1([row["prediction"] for row in csv.DictReader(predicted)])
    wall, processor = (sum(project.seconds[step][part] for step in steps) for part in (0, 1))
    firsts: dict[str, First | None] = {HEADSTART: First(wall, processor, macro_f1)}
    if peers.pythons:
        for system, python in peers.pythons.items() if start is not None else ():
            firsts[system] = project.peer(system, python, start, limit=peers.limit)
        return project.seconds, {system: first for system, first in firsts.items() if first is not None}
    answers = f"{TASK}-to-label.csv"
    project.run(f"suggest new.csv --count {SUGGESTED}", "suggest", "new.csv", "--count", str(SUGGESTED))
    project.answer(folder / answers)
    project.run(f"label {answers}", "label", answers)
    project.run("fit, with the further labels", "fit")
    project.serve("serve, until the first answer")
    walls, processors = zip(*project.seconds.values(), strict=True)
    return project.seconds | {"all commands": (sum(walls), sum(processors))}, {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--case", nargs="+", action="append", required=True, metavar="TITLE FILE TEXT LABEL [START]", dest="cases"
    )
    parser.add_argument("--labelled", type=int, default=400)
    parser.add_argument("--further", type=int, default=2000)
    parser.add_argument("--note", default="", help="about the machine, for the record")
    parser.add_argument("--peer", nargs=2, action="append", default=[], metavar=("SYSTEM", "PYTHON"), dest="peers")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds after which a peer is stopped")
    add_record_option(parser)
    arguments = parser.parse_args()
    # Not resolved: a virtual environment is known by the path of its interpreter, which is a link.
    peers = {system: Path(python).absolute() for system, python in arguments.peers}
    columns, values, firsts = [], dict[str, dict[str, float]](), dict[str, dict[str, float]]()
    for number, case in enumerate(arguments.cases):
        if len(case) not in (4, 5):
            parser.error(f"--case {' '.join(case)}: expected TITLE FILE TEXT LABEL [START]")
        title, file, text, label, *start = case
        print(title)
        with tempfile.TemporaryDirectory(prefix="first-model-") as folder:
            seconds, systems = measure(
                Path(file).resolve(),
                text,
                label,
                start[0] if start else None,
                counts=(arguments.labelled, arguments.further),
                peers=Peers(peers, arguments.limit),
                folder=Path(folder),
            )
        names = f"wall-{number}", f"processor-{number}"
        for name, kind in zip(names, ("wall time", "processor time"), strict=True):
            columns.append(Column(name=name, title=f"{title}: {kind}", format=",.0f", unit=" s"))
        for step, times in seconds.items():
            values.setdefault(step, {}).update(zip(names, times, strict=True))
        for system, first in systems.items():
            firsts[f"{title}: {system}"] = asdict(first)
            print(f"  {system:48} macro F1 {first.macro_f1:.3f}")
    if peers:
        record(
            arguments.record,
            title=f"From {arguments.labelled} labelled rows in a csv file to the first prediction, and macro F1 of "
            f"{arguments.further:,} further rows",
            row_title="case, library",
            columns=[
                Column(name="wall", title="wall time", format=",.0f", unit=" s"),
                Column(name="processor", title="processor time", format=",.0f", unit=" s"),
                Column(name="macro_f1", title="macro F1"),
            ],
            values=firsts,
            notes=arguments.note,
        )
        return
    total = values.pop("all commands")
    record(
        arguments.record,
        title=f"Time of the commands from {arguments.labelled} labelled rows to a served model",
        row_title="headstart",
        columns=columns,
        values=values | {"all commands": total},
        notes=arguments.note,
    )


if __name__ == "__main__":
    main()
