"""Words models with and without text that has no labels: the same labelled rows, scored on test.

    python benchmarks/latent_words.py imdb=FOLDER --budgets 10 50 --draws 5

A data set is a folder with train.jsonl and test.jsonl, plain or .zst (text, label). Penalties and rounds are chosen by
cross-validation within the label budget; there is no dev. `latent-words` also learns from the texts of the other rows
of train, without their labels.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from components.training import threads

threads.prepare()

from components.reporting.recording import add_record_option, record  # noqa: E402 (after the thread settings)
from components.reporting.results import Column  # noqa: E402 (after the thread settings)
from components.settings.tasks import TaskSource  # noqa: E402
from components.tasks.budgets import sample_rows  # noqa: E402
from components.tasks.examples import ExamplesJob, examples, read_facts, read_split, run_folds, strata_of  # noqa: E402
from components.tasks.kinds import scoring_for  # noqa: E402
from components.tasks.selection import Data, predict  # noqa: E402
from components.words.systems import SYSTEMS  # noqa: E402

METRICS = ("accuracy", "macro_f1")


def make_examples(name: str, folder: Path, *, test_rows: int, scratch: Path) -> Path:
    """The output directory of the stage `examples`."""
    files = {split: next(folder.glob(f"{split}.jsonl*")).name for split in ("train", "test")}
    source = TaskSource(path=str(folder), dev=None, test_rows=test_rows, budgets=[1], seeds=[0], **files)
    return examples(ExamplesJob(task=name, source=source, output=scratch / name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--systems", nargs="+", default=["tfidf-words", "latent-words"])
    parser.add_argument("--budgets", nargs="+", type=int, default=[10, 50])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--test-rows", type=int, default=5000)
    add_record_option(parser)
    arguments = parser.parse_args()
    threads.own(1)
    values: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for data in arguments.data:
            name, _, folder = data.partition("=")
            directory = make_examples(name, Path(folder), test_rows=arguments.test_rows, scratch=Path(scratch))
            facts, train, test = read_facts(directory), read_split(directory, "train"), read_split(directory, "test")
            scoring, strata = scoring_for(facts.kind, facts.labels), strata_of(train, facts.kind)
            for budget in arguments.budgets:
                for seed in range(arguments.draws):
                    rows, _ = sample_rows(strata, budget, seed=seed)
                    folds = run_folds(facts, train, rows, seed=seed, most=arguments.folds)
                    read = Data(train, rows, train.take([]), test, facts.labels, scoring, folds)
                    for system in arguments.systems:
                        began = time.perf_counter()
                        found = predict(SYSTEMS[facts.kind][0][system], read)
                        scores = scoring.score(test.fields, test.targets, found.answers["test"])
                        row = values.setdefault(f"{name}, {budget} labels a class, {system}", {})
                        for key in METRICS:
                            row.setdefault(key, []).append(scores[key])
                        row.setdefault("seconds", []).append(time.perf_counter() - began)
                        print(name, budget, seed, system, *(f"{key} {scores[key]:.4f}" for key in METRICS), flush=True)
    for title, row in values.items():
        print(f"{title:44} " + " ".join(f"{key} {np.mean(value):.3f}" for key, value in row.items()))
    record(
        arguments.record,
        title="Words models with and without text that has no labels, on test",
        seeds=list(range(arguments.draws)),
        selection="none",
        row_title="data set, labels per class, system",
        columns=[
            Column(name="accuracy", title="accuracy"),
            Column(name="lowest", title="lowest draw"),
            Column(name="macro_f1", title="macro F1"),
            Column(name="seconds", title="seconds", format=".0f"),
        ],
        values={
            title: {key: [float(np.mean(found))] for key, found in row.items()} | {"lowest": [min(row["accuracy"])]}
            for title, row in values.items()
        },
        notes=f"{arguments.test_rows} rows of test; the seconds include the cross-validation.",
    )


if __name__ == "__main__":
    main()
