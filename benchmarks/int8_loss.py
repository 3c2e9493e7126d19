"""What `--int8` costs and saves: macro F1 and speed of the same models with stored and with quantised matrices.

    python benchmarks/int8_loss.py DATA --encoder ENCODER --record int8-loss

DATA and the sets are those of `benchmarks/few_labels.py`. Each model is trained by `headstart.fit` from the encoder.
The rows of test are predicted by one thread, and processor time is compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from components.training import threads

threads.prepare()

import numpy as np  # noqa: E402 (after the thread settings)
import torch  # noqa: E402

from benchmarks.comparison.cells import score  # noqa: E402
from benchmarks.comparison.sets import SETS, prepare  # noqa: E402
from components.inference.loading import load_model  # noqa: E402
from components.reporting.recording import add_record_option, record  # noqa: E402
from components.reporting.results import Column  # noqa: E402
from components.settings.finetune import FIRST_MINUTES  # noqa: E402
from components.task_models.classifier import TextClassifier  # noqa: E402
from components.tasks.data import Fields  # noqa: E402
from headstart import fit  # noqa: E402

#: Set -> labels a class.
TASKS = {"sst2": 64, "trec": 64, "clinc150": 8}
#: Number of predictions that are timed.
TURNS = 3


def main() -> None:
    """Measure every set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--encoder", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--minutes", type=float, default=FIRST_MINUTES, help="limit of training")
    add_record_option(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    values = {}
    for name in arguments.sets:
        with tempfile.TemporaryDirectory() as folder:
            row = f"{SETS[name].title}, {TASKS[name]} labels a class"
            values[row] = measure(name, TASKS[name], arguments, folder=Path(folder))
            print(row, {key: round(value, 4) for key, value in values[row].items()}, flush=True)
    record(
        arguments.record,
        title="Predictions with matrices as stored and with 8-bit integers (--int8), on the same rows of test",
        row_title="data set",
        columns=[
            Column(name="stored", title="macro F1", format=".3f"),
            Column(name="int8", title="macro F1, int8", format=".3f"),
            Column(name="loss", title="loss", format="+.4f"),
            Column(name="equal", title="equal labels", format=".1%"),
            Column(name="ratio", title="texts per second, ratio", format=".2f", unit=" x"),
        ],
        values=values,
        selection="test",
    )


def measure(name: str, budget: int, arguments: argparse.Namespace, *, folder: Path) -> dict[str, float]:
    """The numbers of one data set."""
    prepared = prepare(name, data=arguments.data, folder=folder / "sets")
    train, test = (_read(prepared.folder / f"{split}.jsonl") for split in ("train", "test"))
    rows = [train[index] for index in prepared.rows(budget, 0)]
    model = fit(rows, label="label", start=arguments.encoder, minutes=arguments.minutes, verbose=False)
    stored = load_model(model.save(folder / "model"))
    if not isinstance(stored, TextClassifier):
        raise SystemExit(f"{name}: a words model is better than the encoder; measure another set")
    both = {"stored": stored, "int8": stored.quantised()}
    texts = [(row["text"],) for row in test]
    predicted: dict[str, list[int]] = {}
    seconds: dict[str, list[float]] = {}
    for classifier in both.values():
        classifier.prepare()
    for turn in range(TURNS):
        for side, classifier in list(both.items())[:: 1 if turn % 2 else -1]:
            predicted[side], spent = _predict(classifier, texts, prepared.names)
            seconds.setdefault(side, []).append(spent)
    found = {side: score(labels, prepared.truth, prepared.names)["macro_f1"] for side, labels in predicted.items()}
    medians = {side: statistics.median(times) for side, times in seconds.items()}
    return found | {
        "loss": found["stored"] - found["int8"],
        "equal": float(np.mean(np.equal(predicted["stored"], predicted["int8"]))),
        "ratio": medians["stored"] / medians["int8"],
    }


def _predict(classifier: TextClassifier, rows: Sequence[Fields], names: Sequence[str]) -> tuple[list[int], float]:
    """Predicted labels as indices of `names`, and processor seconds."""
    began = time.process_time()
    answers = classifier.answer(rows)
    seconds = time.process_time() - began
    return [names.index(classifier.labels[int(np.argmax(answer))]) for answer in answers], seconds


def _read(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
