"""Word vectors from an encoder beside the encoder: what the second step of `static` is worth.

    python benchmarks/static_vectors.py datasets FOLDER ENCODER [--sets sst2 trec clinc150 imdb] [--record NAME]

ENCODER is an encoder directory, for example artifacts/encoder/NAME/pretrained. A logistic regression learns from a few
labels of each class on the mean states of the encoder, on the vectors of the first step and on those of both steps.
Rows that are held out of train are scored; the passages of the second step are the other texts of train.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import f1_score

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.comparison.sets import SETS, prepare
from benchmarks.results import Column, add_record_option, record
from components.models.encoder import load_encoder
from components.tokenization.special import UNK
from components.training.pretraining import static

#: Held-out rows, and rows of train that are read at most.
HELDOUT: Final = 1500
MOST: Final = 12_000
WIDTH: Final = 256
COLUMNS: Final = {"encoder": "encoder", "first": "first step", "both": "both steps", "closed": "of the gap closed"}


def features(texts: list[str], encoder: Path) -> dict[str, NDArray[np.float64]]:
    """System -> (N, D) features of texts."""
    teacher = load_encoder(encoder)
    tokenizer, room = teacher.tokenizer, static.room_of(teacher.model)
    ids = tokenizer.encode_batch(texts)
    read = {row: teacher.model.special_tokens(each[:room].tolist() or [UNK]) for row, each in enumerate(ids)}
    means = static.mean_states(teacher.model, read, rows=len(texts), name="texts")
    learned = texts[:-HELDOUT]
    counts = np.bincount(np.concatenate(ids[: len(learned)]), minlength=tokenizer.vocab_size)
    table = static.reduce(static.encode_pieces(teacher, tokenizer, name="pieces"), width=WIDTH)
    table *= torch.from_numpy(static.piece_weights(counts, smoothing=static.SMOOTHING)).float()[:, None]
    both = static.learn_means(teacher, tokenizer, table, static.cut_passages(learned), name="passages")
    shares = static.piece_shares(ids, pieces=len(table))
    return {
        "encoder": means.double().numpy(),
        "first": shares @ table.double().numpy(),
        "both": shares @ both.double().numpy(),
    }


def score(x: NDArray[np.float64], y: NDArray[np.int64], *, labels: int, draw: int) -> float:
    """Macro F1 on the held-out rows after learning `labels` rows of each class."""
    random = np.random.default_rng(draw)
    of_class = (random.permutation(np.flatnonzero(y[:-HELDOUT] == label))[:labels] for label in np.unique(y))
    rows, scaled = np.concatenate(list(of_class)), x / x.std()
    model = LogisticRegressionCV(
        Cs=[0.01, 0.1, 1, 10, 100],
        cv=3,
        max_iter=300,
        l1_ratios=(0.0,),
        scoring="accuracy",
        use_legacy_attributes=False,
    )
    predicted = model.fit(scaled[rows], y[rows]).predict(scaled[-HELDOUT:])
    return float(f1_score(y[-HELDOUT:], predicted, average="macro"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path, help="where the sets are prepared")
    parser.add_argument("encoder", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["sst2", "trec", "clinc150", "imdb"])
    parser.add_argument("--labels", type=int, default=16)
    parser.add_argument("--draws", type=int, default=5)
    add_record_option(parser)
    arguments = parser.parse_args()
    values: dict[str, dict[str, float]] = {}
    for name in arguments.sets:
        prepared = prepare(name, data=arguments.data, folder=arguments.folder)
        rows = [json.loads(line) for line in (prepared.folder / "train.jsonl").read_text("utf-8").split("\n") if line]
        order = np.random.default_rng(0).permutation(len(rows))[:MOST]
        x, y = features([rows[row]["text"] for row in order], arguments.encoder), prepared.labels[order]
        draws = range(arguments.draws)
        scores = {
            system: np.mean([score(of, y, labels=arguments.labels, draw=draw) for draw in draws])
            for system, of in x.items()
        }
        closed = (scores["both"] - scores["first"]) / (scores["encoder"] - scores["first"])
        values[SETS[name].title] = {key: float(value) for key, value in scores.items()} | {"closed": float(closed)}
        print(SETS[name].title, {key: round(value, 3) for key, value in values[SETS[name].title].items()}, flush=True)
    record(
        arguments.record,
        title=f"Macro F1 on {HELDOUT:,} rows held out of train, {arguments.labels} labels a class",
        row_title="data set",
        columns=[
            Column(name=key, title=title, format=".3f" if key != "closed" else ".0%") for key, title in COLUMNS.items()
        ],
        values=values,
        seeds=list(range(arguments.draws)),
        selection="dev",
    )


if __name__ == "__main__":
    main()
