"""Which texts are flagged as unlike the training texts (`components.learners.domain`).

    python benchmarks/out_of_domain.py datasets FOLDER [--labels 16] [--draws 5] [--record NAME]

For each set the training texts are those of a few labels a class. The shares of flagged texts are of its test split, of
the other sets' test splits, and of random letters; of CLINC150 also of its own texts without a domain.
"""

from __future__ import annotations

import argparse
import json
import random
import string
import sys
from pathlib import Path
from typing import Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.comparison.sets import SETS, prepare
from benchmarks.results import Column, add_record_option, record
from components.learners.domain import Domain

NAMES: Final = ("sst2", "trec", "clinc150", "truevoice-action")
#: Texts of a test split that are tried.
TEXTS: Final = 300
LETTERS, OUTSIDE = "random letters", "CLINC150, no domain"


def texts_of(path: Path) -> list[str]:
    """The texts of a prepared split."""
    return [json.loads(line)["text"] for line in path.read_text("utf-8").split("\n") if line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path, help="where the sets are prepared")
    parser.add_argument("--labels", type=int, default=16)
    parser.add_argument("--draws", type=int, default=5)
    add_record_option(parser)
    arguments = parser.parse_args()
    prepared = {name: prepare(name, data=arguments.data, folder=arguments.folder) for name in NAMES}
    tried = {SETS[name].title: texts_of(each.folder / "test.jsonl")[:TEXTS] for name, each in prepared.items()}
    whole = json.loads((arguments.data / "clinc150" / "data_full.json").read_text("utf-8"))
    tried[OUTSIDE] = [text for text, _ in whole["oos_test"][:TEXTS]]
    letters = random.Random(0)
    tried[LETTERS] = ["".join(letters.choices(string.ascii_lowercase + " ", k=60)) for _ in range(TEXTS)]
    values: dict[str, dict[str, float]] = {}
    for name, each in prepared.items():
        learned = texts_of(each.folder / "train.jsonl")
        shares: dict[str, list[float]] = {title: [] for title in tried}
        for draw in range(arguments.draws):
            domain = Domain.fit([(learned[row],) for row in each.rows(arguments.labels, draw)])
            for title, texts in tried.items():
                shares[title].append(float(np.mean([domain.excludes((text,)) for text in texts])))
        title = SETS[name].title
        values[title] = {f"of{number}": float(np.mean(of)) for number, of in enumerate(shares.values())}
        print(title, {key: round(float(np.mean(of)), 3) for key, of in shares.items()}, flush=True)
    record(
        arguments.record,
        title=f"Shares of texts that are flagged as out of the domain, {arguments.labels} training texts a class",
        row_title="training texts",
        columns=[Column(name=f"of{number}", title=title, format=".0%") for number, title in enumerate(tried)],
        values=values,
        seeds=list(range(arguments.draws)),
        selection="test",
        notes=f"At most {TEXTS} texts of a test split. The diagonal has texts of the domain.",
    )


if __name__ == "__main__":
    main()
