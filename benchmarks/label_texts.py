"""Several texts for each label beside a single name: with no label, and with a few labels of each class.

    python benchmarks/label_texts.py datasets FOLDER ENCODER [--sets sst2 trec clinc150] [--record NAME]

ENCODER is a published model's folder. Without labels, a text has the label whose vector, the mean of the vectors of its
texts, is nearest. With labels, a logistic regression learns from the labelled texts and the vector of each label.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.comparison.sets import SETS, prepare
from benchmarks.results import Column, add_record_option, record
from components.data.tasks.reading.labels import text_of
from components.interchange.importing import import_encoder
from components.models.encoder import Encoder, load_encoder
from components.registry.pyfunc import embed

TEST: Final = 1000
#: Of TREC and SST-2: a name, and terms, a definition and a template. Of other sets the name and templates with it.
NAMES: Final = {
    "trec": ["definition or description", "thing", "abbreviation", "person", "place", "number"],
    "sst2": ["negative", "positive"],
}
TEXTS: Final = {
    "trec": [
        ["definition", "description", "explanation", "reason", "a question about what something is or why it happens"],
        ["thing", "animal", "food", "product", "event", "a question about a thing, an animal, a work or a product"],
        ["abbreviation", "acronym", "a question about what letters stand for"],
        ["person", "group of people", "name", "a question about who somebody is or was"],
        ["place", "city", "country", "mountain", "a question about where something is"],
        ["number", "date", "distance", "amount", "a question about how many, how much or when"],
    ],
    "sst2": [
        ["negative", "bad", "boring", "awful", "It was terrible.", "a review of somebody who did not like the film"],
        ["positive", "good", "moving", "great", "It was wonderful.", "a review of somebody who liked the film"],
    ],
}
TEMPLATES: Final = ("{}", "This text is about {}.", "The intent is {}.")
Matrix = NDArray[np.float64]


def vectors(texts: list[str], encoder: Encoder) -> Matrix:
    """(N, D) unit vectors of texts."""
    given = np.asarray(embed(encoder, texts), dtype=np.float64)
    return given / np.linalg.norm(given, axis=1, keepdims=True)


def score(x: Matrix, y: NDArray[np.int64], of_labels: Matrix, test: Matrix, truth: NDArray[np.int64]) -> float:
    """Macro F1 on test after learning from the rows x, which may be none, and the vector of each label."""
    if not len(x):
        answers = (test @ (of_labels / np.linalg.norm(of_labels, axis=1, keepdims=True)).T).argmax(1)
    else:
        every = np.concatenate([y, np.arange(len(of_labels))])
        model = LogisticRegression(C=10, max_iter=1000).fit(np.concatenate([x, of_labels]), every)
        answers = model.predict(test)
    return float(f1_score(truth, answers, average="macro"))


def measure(name: str, arguments: argparse.Namespace, encoder: Encoder) -> dict[str, dict[str, float]]:
    prepared = prepare(name, data=arguments.data, folder=arguments.folder)
    rows = json.loads((prepared.folder / "peers.json").read_text("utf-8"))
    chosen = np.random.default_rng(0).permutation(len(rows["test"]))[:TEST]
    test, truth = vectors([rows["test"][row][0] for row in chosen], encoder), prepared.truth[chosen]
    names = NAMES.get(name) or [text_of(label) for label in prepared.names]
    lists = TEXTS.get(name) or [[template.format(text) for template in TEMPLATES] for text in names]
    of = {
        "name": vectors(names, encoder),
        "texts": np.stack([vectors(texts, encoder).mean(0) for texts in lists]),
    }
    result: dict[str, dict[str, float]] = {}
    for count in (0, arguments.labels):
        scores: dict[str, list[float]] = {system: [] for system in of}
        for draw in range(arguments.draws if count else 1):
            random, y = np.random.default_rng(draw), prepared.labels
            drawn = [random.permutation(np.flatnonzero(y == label))[:count] for label in range(len(names))]
            learned = np.concatenate(drawn)
            x = vectors([rows["train"][row][0] for row in learned], encoder) if count else test[:0]
            for system, of_labels in of.items():
                scores[system].append(score(x, y[learned], of_labels, test, truth))
        means = {system: float(np.mean(each)) for system, each in scores.items()}
        result[f"{SETS[name].title}, {count} labels a class"] = means | {"gain": means["texts"] - means["name"]}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path, help="where the sets are prepared")
    parser.add_argument("encoder", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["sst2", "trec", "clinc150"])
    parser.add_argument("--labels", type=int, default=8)
    parser.add_argument("--draws", type=int, default=5)
    add_record_option(parser)
    arguments = parser.parse_args()
    values: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        import_encoder(arguments.encoder, output=Path(folder) / "encoder")
        encoder = load_encoder(Path(folder) / "encoder")
        for name in arguments.sets:
            measured = measure(name, arguments, encoder)
            values |= measured
            for row, means in measured.items():
                print(row, {system: round(value, 3) for system, value in means.items()}, flush=True)
    record(
        arguments.record,
        title=f"Macro F1 on at most {TEST:,} rows of test from the vectors of {arguments.encoder.name}",
        row_title="data set",
        columns=[
            Column(name="name", title="a name for each label", format=".3f"),
            Column(name="texts", title="several texts for each label", format=".3f"),
            Column(name="gain", title="gain", format="+.3f"),
        ],
        values=values,
        seeds=list(range(arguments.draws)),
        selection="test",
    )


if __name__ == "__main__":
    main()
