"""An encoder with its prompt and without: scores with few labels from its frozen vectors.

    python benchmarks/prompts.py datasets FOLDER ENCODER [--prompt "query: "] [--record NAME]

ENCODER is a published model's folder. A logistic regression learns from a few labels of each class.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.comparison.sets import SETS, prepare
from benchmarks.label_texts import TEST, vectors
from benchmarks.results import Column, add_record_option, record
from components.interchange.importing import import_encoder
from components.models.encoder import Encoder, load_encoder
from components.models.sentence import Reading


def with_prompt(encoder: Encoder, prompt: str) -> Encoder:
    """The encoder, which from now on reads texts after a prompt."""
    reading = encoder.model.config.reading or Reading()
    changed = reading.model_copy(update={"prompt": prompt})
    encoder.model.config = encoder.model.config.model_copy(update={"reading": changed})
    encoder.model.prompt = ()
    encoder.model.bind(encoder.tokenizer)
    return encoder


def score(x: NDArray[np.float64], y: NDArray[np.int64], test: NDArray[np.float64], truth: NDArray[np.int64]) -> float:
    """Macro F1; the columns are scaled as those of the labelled rows are, because E5's vectors are close together."""
    mean, deviation = x.mean(0), x.std()
    model = LogisticRegression(max_iter=1000).fit((x - mean) / deviation, y)
    return float(f1_score(truth, model.predict((test - mean) / deviation), average="macro"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path, help="where the sets are prepared")
    parser.add_argument("encoder", type=Path)
    parser.add_argument("--prompt", default="query: ")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["sst2", "trec"])
    parser.add_argument("--labels", nargs="+", type=int, default=[8, 16])
    parser.add_argument("--draws", type=int, default=5)
    add_record_option(parser)
    arguments = parser.parse_args()
    scores: dict[tuple[str, int, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        import_encoder(arguments.encoder, output=Path(folder) / "encoder")
        encoder = load_encoder(Path(folder) / "encoder")
        for name in arguments.sets:
            prepared = prepare(name, data=arguments.data, folder=arguments.folder)
            rows = json.loads((prepared.folder / "peers.json").read_text("utf-8"))
            chosen = np.random.default_rng(0).permutation(len(rows["test"]))[:TEST]
            for kind, prompt in (("without", ""), ("with", arguments.prompt)):
                read = with_prompt(encoder, prompt)
                test, most = vectors([rows["test"][row][0] for row in chosen], read), max(arguments.labels)
                for draw in range(arguments.draws):
                    random = np.random.default_rng(draw)
                    drawn = [random.permutation(np.flatnonzero(prepared.labels == label))[:most]
                             for label in range(len(prepared.names))]  # fmt: skip
                    x = vectors([rows["train"][row][0] for row in np.concatenate(drawn)], read)
                    y = np.repeat(np.arange(len(drawn)), most)
                    place = np.tile(np.arange(most), len(drawn))
                    for count in arguments.labels:
                        few = place < count
                        entry = scores.setdefault((name, count, kind), [])
                        entry.append(score(x[few], y[few], test, prepared.truth[chosen]))
                print(name, kind, flush=True)
    values = {}
    for name, count, _ in scores:
        means = {kind: float(np.mean(scores[name, count, kind])) for kind in ("without", "with")}
        values[f"{SETS[name].title}, {count} labels a class"] = means | {"gain": means["with"] - means["without"]}
    for row, each in values.items():
        print(row, {kind: round(value, 3) for kind, value in each.items()})
    record(
        arguments.record,
        title=f"Macro F1 on at most {TEST:,} rows of test from the frozen vectors of {arguments.encoder.name}",
        row_title="data set",
        columns=[
            Column(name="without", title="without a prompt", format=".3f"),
            Column(name="with", title=f"after {arguments.prompt.strip()!r}", format=".3f"),
            Column(name="gain", title="gain", format="+.3f"),
        ],
        values=values,
        seeds=list(range(arguments.draws)),
        selection="test",
    )


if __name__ == "__main__":
    main()
