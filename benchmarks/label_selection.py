"""Texts chosen as by `headstart suggest`, and texts chosen at random: scores on test, and labels saved.

    python benchmarks/label_selection.py WORK --data FOLDER --encoder datasets/minilm --record label-selection

`--data` has the folders sst2, trec, clinc150 and truevoice-intent (experiments/README.md). Features are those of the
frozen encoder, and for Thai those of words; they are computed once per set and kept in WORK. The head is logistic
regression. The pool of a draw is a random 80% of train. The choice begins without labels, by typicality; each further
round doubles the labels, from 8 to 64 a class on average, and their true labels are then shown. At random, as many
texts are drawn from the same pool.

`labels saved` is 1 less the ratio of the labels with which the choice reaches the score of random choice at the largest
budget that both curves contain; scores in between are interpolated over the logarithm of the labels. The interval is a
bootstrap over the draws.

    python benchmarks/label_selection.py WORK ... noise --record label-noise      # label-quality
    python benchmarks/label_selection.py WORK ... curves --record label-curves    # more-labels

`noise` measures precision and recall: 10% of the rows of train get another label, each with the same probability.
`curves` hides the largest budget of label curves of random choice; the true gain is the mean over all draws.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.training import threads

threads.prepare()

import numpy as np  # noqa: E402 (after the thread settings)
from numpy.typing import NDArray  # noqa: E402

from components.evaluation.benefits import labels_needed  # noqa: E402
from components.ingestion.dedup import Shingles  # noqa: E402
from components.interchange.importing import import_encoder  # noqa: E402
from components.labelling.models import Training, encoder_features, fitted, word_features  # noqa: E402
from components.labelling.pool import NGRAM, PERMUTATIONS, Pool, joined  # noqa: E402
from components.labelling.quality import suspects  # noqa: E402
from components.labelling.review import FOLDS, STRENGTH  # noqa: E402
from components.labelling.selection import typical, uncertain  # noqa: E402
from components.reporting.recording import add_record_option, record  # noqa: E402
from components.reporting.results import Column  # noqa: E402
from components.scoring import title as metric_title  # noqa: E402
from components.scoring.label_curves import expected_gain  # noqa: E402
from components.settings.finetune import FinetuneSettings  # noqa: E402
from components.settings.training import Training as TrainingSettings  # noqa: E402
from components.tasks.folds import folds_of  # noqa: E402
from components.tasks.kinds import scoring_for  # noqa: E402

#: Name -> title.
SETS = {"trec": "TREC", "sst2": "SST-2", "truevoice": "TrueVoice, action", "clinc150": "CLINC150"}
#: Sets whose texts the encoder cannot read.
THAI = ("truevoice",)
#: Mean number of labels a class.
BUDGETS = (8, 16, 32, 64)
#: Budgets of the curves, and which of them are shown to predict which.
CURVE = (4, 8, 16, 32, 64)
SHOWN = (((4, 8, 16), 32), ((4, 8, 16, 32), 64), ((8, 16, 32), 64))
METRICS = ("accuracy", "macro_f1")
#: Share of train that is the pool of a draw.
SHARE = 0.8
Rows = list[tuple[str, str]]
Strategy = Callable[..., list[int]]


def read(name: str, folder: Path) -> tuple[Rows, Rows]:
    """(text, label) of train and test."""
    if name == "sst2":
        lines = [(folder / f"sst2/{part}.tsv").read_text(encoding="utf-8").splitlines() for part in ("train", "test")]
        first, second = ([(line.split("\t")[0], line.split("\t")[1]) for line in part] for part in lines)
    elif name == "trec":
        lines = [(folder / f"trec/TREC.{part}.all").read_text("latin-1").splitlines() for part in ("train", "test")]
        first, second = ([(line.partition(" ")[2], line.partition(" ")[0]) for line in part] for part in lines)
    elif name == "clinc150":
        document = json.loads((folder / "clinc150/data_full.json").read_text(encoding="utf-8"))
        first, second = ([(text, label) for text, label in document[part]] for part in ("train", "test"))
    else:
        found = []
        for part in ("train", "test"):
            with (folder / f"truevoice-intent/mari_{part}.csv").open(encoding="utf-8", newline="") as file:
                found.append([(row["texts"], row["action"]) for row in csv.DictReader(file)])
        first, second = found
    # A text occurs once in train.
    return list({text: (text, label) for text, label in first if text.strip()}.values()), second


@dataclass(frozen=True)
class Data:
    """Features and labels of train and of test.

    Attributes:
        features: (N, D) of train.
        labels: (N,).
        test: (M, D).
        answers: (M,).
        names: C labels.
        texts: of train, to find copies.
    """

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    test: NDArray[np.float32]
    answers: NDArray[np.int64]
    names: list[str]
    texts: Pool

    def training(self, rows: Sequence[int], labels: NDArray[np.int64] | None = None) -> Training:
        """Labelled rows of train."""
        own = self.labels if labels is None else labels
        targets = [np.asarray([own[row]], dtype=np.float64) for row in rows]
        return Training([self.texts.fields[row] for row in rows], targets, self.names, exclusive=True)

    def scores(self, rows: Sequence[int]) -> dict[str, float]:
        """Metrics on test of a head on these rows."""
        answers = fitted(self.features[rows], self.training(rows)).answers(self.test)
        targets = [np.asarray([answer], dtype=np.float64) for answer in self.answers]
        found = scoring_for("classification", self.names).score([("",)] * len(targets), targets, list(answers))
        return {name: found[name] for name in METRICS}


def prepare(name: str, folder: Path, encoder: Path, work: Path) -> Data:
    """The data of a set; the features are computed once."""
    train, test = read(name, folder)
    names = sorted({label for _, label in train})
    number = {label: index for index, label in enumerate(names)}
    texts = [(text,) for text, _ in train]
    file = work / f"{name}.npz"
    if not file.is_file():
        began = time.perf_counter()
        others = [(text,) for text, _ in test]
        if name in THAI:
            vectors = word_features(texts, labels=len(names), others=others)
        else:
            if not (work / "encoder" / "manifest.json").is_file():
                import_encoder(encoder, output=work / "encoder")
            settings = FinetuneSettings(
                method="features",
                layers="last",
                pooling="mean",
                max_length=128,
                training=TrainingSettings(rate=0.01, batch_size=16),
            )
            vectors = encoder_features(
                work / "encoder", texts + others, kind="classification", labels=names, settings=settings
            )
        np.savez(file, vectors=vectors)
        print(f"{name}: features in {time.perf_counter() - began:.0f} s", flush=True)
    vectors = np.load(file)["vectors"]
    shingles = Shingles(ngram=NGRAM, permutations=PERMUTATIONS)
    pool = Pool(texts, shingles.sketches([joined(fields) for fields in texts]), name, 0)
    return Data(
        vectors[: len(train)],
        np.asarray([number[label] for _, label in train]),
        vectors[len(train) :],
        np.asarray([number[label] for _, label in test]),
        names,
        pool,
    )


def at_random(data: Data, rest: NDArray[np.int64], chosen: list[int], count: int, seed: int) -> list[int]:
    """Rows of the pool, each with the same probability."""
    return np.random.default_rng([seed, len(chosen)]).permutation(rest)[:count].tolist()


def suggested(data: Data, rest: NDArray[np.int64], chosen: list[int], count: int, seed: int) -> list[int]:
    """Rows of the pool as `headstart suggest` chooses them."""
    sketches = data.texts.sketches[rest]
    copies = Pool(list(range(len(rest))), sketches, "", 0).copies  # type: ignore[arg-type]
    features = data.features[rest]
    training = data.training(chosen)
    if not training.teaches:
        labelled = data.features[chosen]
        found = typical(features, labelled=labelled, count=count, copies=copies, seed=seed)
        return [int(rest[index]) for index, _ in found]
    probabilities = fitted(data.features[chosen], training).answers(features)
    picked = uncertain(features, probabilities, counts=training.counts, count=count, copies=copies, seed=seed)
    return [int(rest[index]) for index in picked]


STRATEGIES: dict[str, Strategy] = {"random": at_random, "suggested": suggested}


def draw(data: Data, strategy: Strategy, budgets: Sequence[int], seed: int) -> list[dict[str, float]]:
    """Scores at each budget of one draw."""
    order = np.random.default_rng(seed).permutation(len(data.labels))
    pool = np.sort(order[: int(SHARE * len(order))])
    chosen: list[int] = []
    found = []
    for budget in budgets:
        count = budget * len(data.names) - len(chosen)
        chosen += strategy(data, np.setdiff1d(pool, chosen), chosen, count, seed)
        found.append(data.scores(chosen))
    return found


def saved(own: NDArray[np.float64], rival: NDArray[np.float64], budgets: Sequence[int]) -> float:
    """1 less the ratio of labels at equal score, of two mean curves (K,); negative if more labels are needed."""
    sizes = list(map(float, budgets))
    # Where the choice stays below random choice, random choice reaches its last score with fewer labels.
    if (needed := labels_needed(float(rival[-1]), labels=sizes, scores=own.tolist())) is not None:
        return 1 - needed / sizes[-1]
    needed = labels_needed(float(own[-1]), labels=sizes, scores=rival.tolist())
    return 1 - sizes[-1] / (needed or sizes[-1])


def selection(arguments: argparse.Namespace) -> None:
    """Scores of both strategies, and labels saved."""
    values: dict[str, dict[str, list[float]]] = {}
    for name in arguments.sets:
        data = prepare(name, arguments.data, arguments.encoder, arguments.work)
        curves: dict[str, list[list[dict[str, float]]]] = {}
        for title, strategy in STRATEGIES.items():
            for seed in range(arguments.draws):
                curves.setdefault(title, []).append(draw(data, strategy, BUDGETS, seed))
                print(name, title, seed, [f"{found['accuracy']:.3f}" for found in curves[title][-1]], flush=True)
        for metric in METRICS:
            own, rival = (
                np.asarray([[found[metric] for found in curve] for curve in curves[title]])
                for title in ("suggested", "random")
            )
            samples = np.random.default_rng(0).integers(len(own), size=(2000, len(own)))
            resampled = [saved(own[rows].mean(0), rival[rows].mean(0), BUDGETS) for rows in samples]
            low, high = np.quantile(resampled, (0.025, 0.975))
            row: dict[str, list[float]] = {}
            for index, budget in enumerate(BUDGETS):
                row[f"random{budget}"] = [float(rival[:, index].mean())]
                row[f"own{budget}"] = [float(own[:, index].mean())]
            row["saved"] = [saved(own.mean(0), rival.mean(0), BUDGETS), float(low), float(high)]
            values[f"{SETS[name]}, {metric_title(metric)}"] = row
            print(name, metric, {key: [round(value, 3) for value in found] for key, found in row.items()}, flush=True)
    columns = [
        Column(name=f"{kind}{budget}", title=f"{title}, {budget}")
        for budget in BUDGETS
        for kind, title in (("random", "random"), ("own", "suggested"))
    ]
    record(
        arguments.record,
        title="Texts chosen by suggest and at random, on test, by mean labels a class; labels saved at equal score",
        seeds=list(range(arguments.draws)),
        selection="none",
        confidence=0.95,
        row_title="data set, metric",
        columns=[*columns, Column(name="saved", title="labels saved", format=".2f")],
        values=values,
        notes="Logistic regression on the frozen encoder (TrueVoice: words); each round doubles the labels.",
    )


def noise(arguments: argparse.Namespace) -> None:
    """Precision and recall of labels that look wrong, with 10% wrong labels."""
    values: dict[str, dict[str, list[float]]] = {}
    for name in arguments.sets:
        data = prepare(name, arguments.data, arguments.encoder, arguments.work)
        for seed in range(arguments.draws):
            rng = np.random.default_rng(seed)
            wrong = rng.permutation(len(data.labels))[: len(data.labels) // 10]
            labels = data.labels.copy()
            labels[wrong] = (labels[wrong] + rng.integers(1, len(data.names), len(wrong))) % len(data.names)
            folds = folds_of(labels, FOLDS, seed=seed)
            shares = np.zeros((len(labels), len(data.names)))
            for fold in np.unique(folds):
                rows = np.flatnonzero(folds != fold)
                head = fitted(data.features[rows], data.training(rows.tolist(), labels), strength=STRENGTH)
                shares[folds == fold] = head.answers(data.features[folds == fold])
            targets = [np.asarray([label], dtype=np.float64) for label in labels]
            found = [one.row for one in suspects(targets, shares, data.names, exclusive=True)]
            is_wrong = np.isin(found, wrong)
            row = values.setdefault(SETS[name], {})
            row.setdefault("accuracy", []).append(float((shares.argmax(1) == data.labels).mean()))
            row.setdefault("flagged", []).append(len(found) / len(labels))
            row.setdefault("precision", []).append(float(is_wrong.mean()))
            row.setdefault("recall", []).append(float(is_wrong.sum() / len(wrong)))
            row.setdefault("first", []).append(float(is_wrong[:100].mean()))
        print(name, {key: round(float(np.mean(found)), 3) for key, found in values[SETS[name]].items()}, flush=True)
    record(
        arguments.record,
        title="Labels that look wrong, where 10% of the labels of train are wrong",
        seeds=list(range(arguments.draws)),
        selection="none",
        row_title="data set",
        columns=[
            Column(name="accuracy", title="accuracy of the models"),
            Column(name="flagged", title="share of rows flagged"),
            Column(name="precision", title="precision"),
            Column(name="recall", title="recall"),
            Column(name="first", title="precision of the first 100"),
        ],
        values={title: {key: [float(np.mean(found))] for key, found in row.items()} for title, row in values.items()},
        notes=f"{FOLDS}-fold cross-validation of logistic regression on the frozen encoder (TrueVoice: words).",
    )


def curves(arguments: argparse.Namespace) -> None:
    """How often the interval of `more-labels` contains the gain of the hidden largest budget."""
    values: dict[str, dict[str, list[float]]] = {}
    for name in arguments.sets:
        data = prepare(name, arguments.data, arguments.encoder, arguments.work)
        draws = [draw(data, at_random, CURVE, 1000 + seed) for seed in range(arguments.draws)]
        for metric in METRICS:
            table = np.asarray([[found[metric] for found in one] for one in draws])  # (draws, K)
            hits, widths, errors, silent = [], [], [], 0
            for shown, hidden in SHOWN:
                columns, last = [CURVE.index(size) for size in shown], CURVE.index(hidden)
                true = float(table[:, last].mean() - table[:, columns[-1]].mean())
                for start in range(0, len(table) - 2, 3):
                    scores = table[start : start + 3, columns].T.tolist()
                    gain = expected_gain(shown, scores, more=hidden - shown[-1])
                    if gain.gain is None or gain.low is None or gain.high is None:
                        silent += 1
                        continue
                    hits.append(gain.low <= true <= gain.high)
                    widths.append(gain.high - gain.low)
                    errors.append(abs(gain.gain - true))
            row = {
                "answers": [float(len(hits))],
                "silent": [float(silent)],
                "coverage": [float(np.mean(hits))],
                "width": [float(np.mean(widths))],
                "error": [float(np.mean(errors))],
            }
            values[f"{SETS[name]}, {metric_title(metric)}"] = row
            print(name, metric, {key: [round(value, 3) for value in found] for key, found in row.items()}, flush=True)
    record(
        arguments.record,
        title="Gain of a hidden largest budget, from 3 draws of the smaller ones: coverage of intervals of 95%",
        seeds=list(range(1000, 1000 + arguments.draws)),
        selection="none",
        row_title="data set, metric",
        columns=[
            Column(name="answers", title="answers", format=".0f"),
            Column(name="silent", title="no answer", format=".0f"),
            Column(name="coverage", title="coverage"),
            Column(name="width", title="width"),
            Column(name="error", title="mean absolute error"),
        ],
        values=values,
        notes="The relative error of the law was chosen on TREC and SST-2; TrueVoice and CLINC150 are other sets.",
    )


COMMANDS: dict[str, Callable[[argparse.Namespace], Any]] = {"selection": selection, "noise": noise, "curves": curves}


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("what", nargs="?", choices=COMMANDS, default="selection")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--draws", type=int, default=5)
    add_record_option(parser)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    threads.own(1)
    COMMANDS[arguments.what](arguments)


if __name__ == "__main__":
    main()
