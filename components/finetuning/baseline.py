"""Stage `baseline`: what a classifier reaches without any language model.

TF-IDF with logistic regression, over words and over words and word pairs, and the most frequent class; on the same
draws of labels, and with the same output format, as the fine-tuned systems.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from components.artifacts import writing
from components.config import Section
from components.finetuning.examples import read_facts, read_split, strata_of
from components.finetuning.results import KIND, RunResult, summary, write_results
from components.finetuning.tasks.base import Split
from components.finetuning.tasks.checks import draw
from components.progress import Progress
from components.scoring import Scoring, scoring_for

#: Inverse strengths of the L2 penalty; dev decides, as it does for the fine-tuned systems.
C_GRID = (1.0, 10.0, 100.0, 1000.0)
#: Systems by name, with the lengths of their word n-grams.
NGRAMS = {"tfidf-words": (1, 1), "tfidf-words-pairs": (1, 2)}
MOST_FREQUENT = "most-frequent"
ITERATIONS = 1000


class BaselineJob(Section):
    """What the stage is told; `examples` is the output directory of that stage."""

    examples: Path
    output: Path


@dataclass(frozen=True)
class _Data:
    train: Split
    dev: Split
    test: Split
    classes: int
    scoring: Scoring

    def dev_scores(self, found: NDArray[np.float32]) -> dict[str, float]:
        """Of (N, C) probabilities."""
        return self.scoring.score(self.dev.fields, self.dev.targets, list(found))


def baseline(job: BaselineJob) -> Path:
    """Train the baselines at every budget and seed; writes what `components.finetuning.results` describes.

    Raises:
        ArtifactError: the examples are incomplete.
    """
    facts = read_facts(job.examples)
    train = read_split(job.examples, "train")
    strata = strata_of(train, facts.kind)
    scoring = scoring_for(facts.kind, facts.labels)
    splits = {name: read_split(job.examples, name) for name in ("dev", "test")}
    total = len(facts.budgets) * len(facts.seeds) * (len(NGRAMS) + 1)

    def results() -> Iterator[RunResult]:
        with Progress(f"baseline {facts.task}", total=total, unit="run") as bar:
            for budget in facts.budgets:
                for seed in facts.seeds:
                    rows, short = draw(strata, budget, seed=seed)
                    data = _Data(train.take(rows), splits["dev"], splits["test"], len(facts.labels), scoring)
                    record = {
                        "budget": budget,
                        "seed": seed,
                        "rows": len(rows),
                        "short": {str(label): count for label, count in short.items()},
                    }
                    for system in (*NGRAMS, MOST_FREQUENT):
                        yield _run(system, data, record)
                        bar.advance(1)

    with writing(job.output, kind=KIND) as draft:
        records = write_results(draft.path, results(), splits=splits, labels=facts.labels)
        (draft.path / "metrics.json").write_text(json.dumps(summary(records), indent=1, sort_keys=True) + "\n")
        draft.facts |= {"task": facts.task, "system": "baselines", "examples": facts.digests, "runs": len(records)}
    return job.output


def _run(system: str, data: _Data, record: dict[str, Any]) -> RunResult:
    began = time.perf_counter()
    details: dict[str, Any] = {}
    if system == MOST_FREQUENT:
        found = _most_frequent(data)
    else:
        found, details = _tfidf(data, ngrams=NGRAMS[system])
    scores = data.dev_scores(found["dev"])
    curve = [{"step": 0, "epoch": 0.0, "train_loss": None, **scores}]
    record = {
        **record,
        **details,
        "score": data.scoring.main,
        "curve": curve,
        "best_step": 0,
        "best_epoch": 0.0,
        "steps": 0,
        "tokens": 0,
        "seconds": round(time.perf_counter() - began, 3),
    }
    return RunResult(system, "baseline", "none", record, {name: list(rows) for name, rows in found.items()})


def _most_frequent(data: _Data) -> dict[str, NDArray[np.float32]]:
    """Everybody gets the shares of the training labels; the first of the most frequent ones wins."""
    counts = np.bincount(data.train.labels, minlength=data.classes)
    shares = (counts / counts.sum()).astype(np.float32)
    return {name: np.tile(shares, (len(split), 1)) for name, split in (("dev", data.dev), ("test", data.test))}


def _tfidf(data: _Data, *, ngrams: tuple[int, int]) -> tuple[dict[str, NDArray[np.float32]], dict[str, Any]]:
    """Term frequencies 1 + log(tf), logistic regression over all classes; the vocabulary is that of the draw."""
    vectorizer = TfidfVectorizer(ngram_range=ngrams, sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")
    x = vectorizer.fit_transform(data.train.texts)
    x_dev = vectorizer.transform(data.dev.texts)
    tried: list[tuple[float, float, LogisticRegression]] = []
    for c in C_GRID:
        regression = LogisticRegression(C=c, max_iter=ITERATIONS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            regression.fit(x, data.train.labels)
        tried.append((data.dev_scores(_full(regression, x_dev, data.classes))[data.scoring.main], c, regression))
    # The first of equals: the strongest penalty.
    _, c, regression = max(tried, key=lambda entry: entry[0])
    found = {
        "dev": _full(regression, x_dev, data.classes),
        "test": _full(regression, vectorizer.transform(data.test.texts), data.classes),
    }
    return found, {"c": c, "vocabulary": len(vectorizer.vocabulary_)}


def _full(regression: LogisticRegression, x: Any, classes: int) -> NDArray[np.float32]:
    """Probabilities with a column for every class, those that the draw does not hold among them."""
    found = np.zeros((x.shape[0], classes), dtype=np.float32)
    found[:, regression.classes_] = regression.predict_proba(x)
    return found
