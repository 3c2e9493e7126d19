"""Cost and quality of `headstart.fit` from few labels: processor seconds on one core, and scores on rows of dev.

    python benchmarks/fit_cost.py run DATA CELLS --start all-MiniLM-L6-v2 --variant before
    python benchmarks/fit_cost.py summary CELLS --record fit-cost

DATA has the folders trec and sst2 (experiments/README.md). The held-out rows are dev of SST-2, and rows of
TREC.train.all that are not labelled; test is not read. `run` fits every set, label budget and draw, and appends a line
to CELLS, with the name of the variant: the code of two commits is compared by running each into the same file.
`summary` compares the cells that all variants have.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import f1_score

from components.reporting.results import Column, add_record_option, record

#: Held-out rows.
HELD = 800
Rows = list[tuple[str, str]]


def read(data: Path, name: str) -> tuple[Rows, Rows | None]:
    """The rows (text, label) that labels are drawn from, each text once, and dev; None: there is none."""
    if name == "trec":
        lines = (data / "trec" / "TREC.train.all").read_text(encoding="latin-1").splitlines()
        return list({line.split(" ", 1)[1]: line.split(" ", 1)[0] for line in lines}.items()), None
    train, dev = (
        dict(line.rsplit("\t", 1) for line in (data / "sst2" / f"{split}.tsv").read_text(encoding="utf-8").splitlines())
        for split in ("train", "dev")
    )
    return list(train.items()), [row for row in dev.items() if row[0] not in train]


def drawn(data: Path, name: str, *, labels: int, draw: int) -> tuple[Rows, Rows]:
    """Labelled rows, `labels` of each class, and held-out rows."""
    rows, dev = read(data, name)
    random.Random(draw).shuffle(rows)
    count: Counter[str] = Counter()
    labelled, rest = Rows(), Rows()
    for row in rows:
        (labelled if count[row[1]] < labels else rest).append(row)
        count[row[1]] += 1
    held = sorted(rest if dev is None else dev)
    random.Random(1).shuffle(held)
    return labelled, held[:HELD]


def seconds() -> float:
    """Processor seconds of this process and its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


def cell(arguments: argparse.Namespace, name: str, labels: int, draw: int) -> dict[str, Any]:
    """Fit and score once."""
    import headstart

    labelled, held = drawn(arguments.data, name, labels=labels, draw=draw)
    texts, targets = zip(*labelled, strict=True)
    began = seconds()
    model = headstart.fit(list(texts), label=list(targets), start=arguments.start, seed=draw, verbose=False)
    spent = seconds() - began
    predicted = model.predict([text for text, _ in held])["label"].tolist()
    truth = [label for _, label in held]
    accuracy = float(np.mean([label == right for label, right in zip(predicted, truth, strict=True)]))
    macro = float(f1_score(truth, predicted, average="macro"))
    way = "" if model.report is None else model.report.way
    return {"variant": arguments.variant, "set": name, "labels": labels, "draw": draw, "seconds": spent} | {
        "accuracy": accuracy,
        "macro_f1": macro,
        "way": way,
    }


def run(arguments: argparse.Namespace) -> None:
    """Measure all cells."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for draw in range(arguments.draws):
        for labels in arguments.labels:
            for name in arguments.sets:
                result = cell(arguments, name, labels, draw)
                with arguments.cells.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                print(result, flush=True)


def summary(arguments: argparse.Namespace) -> None:
    """Means over the draws that all variants have."""
    cells = [json.loads(line) for line in arguments.cells.read_text().splitlines()]
    variants = list(dict.fromkeys(each["variant"] for each in cells))
    by_key = {(each["set"], each["labels"], each["draw"], each["variant"]): each for each in cells}
    shared = sorted({key[:3] for key in by_key if all((*key[:3], variant) in by_key for variant in variants)})
    names = {"accuracy": ".3f", "macro_f1": ".3f", "seconds": ".0f"}
    columns = [Column(name=f"{v}-{n}", title=f"{v}: {n}", format=f) for v in variants for n, f in names.items()]
    values: dict[str, dict[str, float]] = {}
    for name, labels in dict.fromkeys(key[:2] for key in shared):
        draws = [key for key in shared if key[:2] == (name, labels)]
        values[f"{name}, {labels} labels, {len(draws)} draws"] = {
            f"{v}-{n}": float(np.mean([by_key[(*key, v)][n] for key in draws])) for v in variants for n in names
        }
    record(
        arguments.record,
        title=f"`headstart.fit` with a start, on at most {HELD} held-out rows; processor seconds of one core",
        row_title="data, labels a class",
        columns=columns,
        values=values,
        seeds=sorted({key[2] for key in shared}),
        selection="dev",
        notes=arguments.note,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measure = commands.add_parser("run", help="measure cells")
    measure.add_argument("data", type=Path)
    measure.add_argument("cells", type=Path)
    measure.add_argument("--start", required=True)
    measure.add_argument("--variant", required=True, help="name of the code in the table")
    measure.add_argument("--sets", nargs="+", choices=["trec", "sst2"], default=["trec", "sst2"])
    measure.add_argument("--labels", nargs="+", type=int, default=[8, 64], help="per class")
    measure.add_argument("--draws", type=int, default=3)
    measure.set_defaults(do=run)
    table = commands.add_parser("summary", help="compare the variants")
    table.add_argument("cells", type=Path)
    table.add_argument("--note", default="", help="about the machine, for the record")
    add_record_option(table)
    table.set_defaults(do=summary)
    arguments = parser.parse_args()
    arguments.do(arguments)


if __name__ == "__main__":
    main()
