"""Time from labelled rows to a served model: each command of a new user, in an empty folder.

    python benchmarks/first_model.py --case "SST-2, words" datasets/sst2/train.tsv 0 1
        --case "SST-2, MiniLM" datasets/sst2/train.tsv 0 1 all-MiniLM-L6-v2

A case names a labelled file, its columns of the text and of the label (numbers without a header), and, unless words
models alone are trained, an encoder of `headstart starts`. A random sample of the rows becomes data.csv, and further
rows without their labels new.csv. `suggest` chooses from new.csv; the labels of the file are the answers that `label`
merges. Every command is a process of its own, whose wall time and processor time are printed; other work on the machine
changes the latter less. The installation of an encoder includes its download.
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
from pathlib import Path
from typing import Final

from components.cli.onboarding.files import read_rows

from components.reporting.recording import add_record_option, record
from components.reporting.results import Column

ROOT: Final = Path(__file__).resolve().parents[1]
#: Name of the task, and of the labelled file that it is named after.
TASK: Final = "data"
#: Seconds after which a command is stopped.
LIMIT: Final = 3600
#: Number of texts that are suggested.
SUGGESTED: Final = 50


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
        _write(folder / f"{TASK}.csv", [("text", "label"), *rows])
        _write(folder / "new.csv", [("text",), *((text,) for text, _ in further)])

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

    def _note(self, step: str, wall: float, processor: float) -> None:
        self.seconds[step] = wall, processor
        print(f"  {step:48} {wall:7.1f} s, processor {processor:7.1f} s", flush=True)


def _processor_time() -> float:
    """Processor seconds of the processes that this one has started and waited for, and of those that they have."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


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
    file: Path, text: str, label: str, start: str | None, *, labelled: int, further: int, folder: Path
) -> dict[str, tuple[float, float]]:
    """Wall and processor seconds of every step.

    Args:
        file: labelled rows.
        text, label: columns.
        start: encoder; None: words models.
        labelled: number of labelled rows.
        further: number of rows without labels.
        folder: an empty folder.
    """
    result = {str(row[text]).strip(): str(row[label]) for row in read_rows(file).rows if str(row[text]).strip()}
    rows = list(result.items())
    random.Random(0).shuffle(rows)
    if len(rows) < labelled + further:
        raise SystemExit(f"{file}: {len(rows)} different texts, fewer than the {labelled + further} that are needed")
    project = Project(folder, rows[:labelled], rows[labelled : labelled + further])
    if start is not None:
        project.run("starts install", "starts", "--install", start)
    project.run("init data.csv", "init", "data.csv", *(["--start", start] if start is not None else []))
    project.run("fit", "fit")
    answers = f"{TASK}-to-label.csv"
    project.run(f"suggest new.csv --count {SUGGESTED}", "suggest", "new.csv", "--count", str(SUGGESTED))
    project.answer(folder / answers)
    project.run(f"label {answers}", "label", answers)
    project.run("fit, with the further labels", "fit")
    project.serve("serve, until the first answer")
    project.run(f"predict new.csv, {further:,} rows", "predict", "new.csv", "predictions.csv")
    wall, processor = zip(*project.seconds.values(), strict=True)
    return project.seconds | {"all commands": (sum(wall), sum(processor))}


def main() -> None:
    """Measure every case in a folder of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--case", nargs="+", action="append", required=True, metavar="TITLE FILE TEXT LABEL [START]", dest="cases"
    )
    parser.add_argument("--labelled", type=int, default=400)
    parser.add_argument("--further", type=int, default=2000)
    parser.add_argument("--note", default="", help="about the machine, for the record")
    add_record_option(parser)
    arguments = parser.parse_args()
    columns, values = [], dict[str, dict[str, float]]()
    for number, case in enumerate(arguments.cases):
        if len(case) not in (4, 5):
            parser.error(f"--case {' '.join(case)}: expected TITLE FILE TEXT LABEL [START]")
        title, file, text, label, *start = case
        print(title)
        with tempfile.TemporaryDirectory(prefix="first-model-") as folder:
            seconds = measure(
                Path(file).resolve(),
                text,
                label,
                start[0] if start else None,
                labelled=arguments.labelled,
                further=arguments.further,
                folder=Path(folder),
            )
        names = f"wall-{number}", f"processor-{number}"
        for name, kind in zip(names, ("wall time", "processor time"), strict=True):
            columns.append(Column(name=name, title=f"{title}: {kind}", format=",.0f", unit=" s"))
        for step, times in seconds.items():
            values.setdefault(step, {}).update(zip(names, times, strict=True))
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
