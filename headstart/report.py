"""What was tried in a fit, with cross-validated scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from components.data.scoring import Scoring, title
from components.data.scoring.base import Vectors, numbers
from components.data.scoring.intervals import CONFIDENCE, exact_bound, inseparable_pairs, interval, left_out, sizes_of
from components.data.tasks.budgets import ALL
from components.data.tasks.data import Split
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import OUT_OF_FOLD, read_answers

#: Rows that a note names.
NAMED = 10
#: Training texts that the final model answers for the report.
ANSWERED = 500


@dataclass(frozen=True)
class Tried:
    """One system, or one of its ways to learn.

    Attributes:
        system: name.
        way: way to learn; empty for systems with one way.
        score: cross-validated; None: left out, because it would take too long for this number of labels.
        low, high: confidence interval of the score, over samples of rows and of training rows; None where the rows were
            not kept.
        seconds: of the cross-validation and of training.
        share: of the steps of training; below 1 where the limit of minutes has shortened it.
    """

    system: str
    way: str = ""
    score: float | None = None
    low: float | None = None
    high: float | None = None
    seconds: float = 0.0
    share: float = 1.0


@dataclass(frozen=True)
class Report:
    """What was tried and chosen.

    Attributes:
        kind: of the task.
        metric: by which systems are compared.
        labels: number of labelled rows that were learned from, choices included.
        folds: of the cross-validation.
        chosen: name of the chosen system, and its way to learn.
        tried: all systems.
        notes: what a person should know: rows without a label, missing starts, copies and groups.
        selected: score of predictions by the systems that were chosen without the row's fold, which no choice has
            raised, and its confidence interval; None in reports of earlier versions.
        cut: share of the texts that the encoder does not read to their end; 0 without an encoder.
    """

    kind: str
    metric: str
    labels: int
    folds: int
    chosen: str
    way: str
    tried: list[Tried] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    selected: tuple[float, float, float] | None = None
    cut: float = 0.0

    @property
    def best(self) -> Tried:
        """The chosen system."""
        return next(entry for entry in self.tried if entry.system == self.chosen and entry.low is not None)

    @property
    def table(self) -> pd.DataFrame:
        """One row per system and way to learn: system, way, the metric, low, high, seconds, chosen."""
        table = pd.DataFrame(self.tried).drop(columns="share").rename(columns={"score": self.metric})
        return table.assign(chosen=[entry is self.best for entry in self.tried])

    def __str__(self) -> str:
        best = self.best
        way = f" ({self.way})" if self.way else ""
        score, low, high = self.selected or (best.score, best.low, best.high)
        lines = [
            f"{self.chosen}{way}: {title(self.metric)} {score:.3f} [{low:.3f}, {high:.3f}], "
            f"{self.folds}-fold cross-validation within {self.labels} labels",
            self.table.to_string(index=False, float_format=lambda value: f"{value:.3f}", na_rep=""),
        ]
        lines += [
            f"{entry.system} {entry.way}: trained for {entry.share:.0%} of its steps; raise `minutes` to train for all"
            for entry in self.tried
            if entry.share < 1
        ]
        if self.cut:
            lines.append(f"{self.cut:.1%} of the texts are so long that the encoder does not read them to their end.")
        return "\n".join([*lines, *self.notes])

    def _repr_html_(self) -> str:
        first, *_ = str(self).splitlines()
        return f"<p>{first}</p>" + str(self.table.to_html(index=False, na_rep="", float_format="{:.3f}".format))

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return asdict(self)

    @classmethod
    def of(cls, described: dict[str, Any]) -> Report:
        """The report that `as_dict` has described."""
        selected = described.get("selected")
        tried = [Tried(**entry) for entry in described["tried"]]
        return cls(**{**described, "tried": tried, "selected": selected and tuple(selected)})


def bounds_of(scoring: Scoring, rows: Split, answers: Vectors, *, folds: int) -> tuple[float, float, float]:
    """The primary metric of answers out of fold, and its confidence interval as a measure of the final model.

    A class of which no row is right has no variance; it raises the bound of macro F1 by the one of its rows.
    """
    statistics = scoring.statistics(rows.fields, rows.targets, answers)
    sums = np.asarray(statistics.sum(0), dtype=np.float64)
    score, (least, most) = float(scoring.scores(sums)[scoring.main]), scoring.ranges[scoring.main]
    without = left_out(statistics, rows.units, scoring.scores)[scoring.main]
    sizes = sizes_of(rows.units, len(rows))
    bounds = interval(np.array([score]), without[None], sizes, confidence=CONFIDENCE, within=(least, most), folds=folds)
    high = bounds.high
    if scoring.main.startswith("macro"):
        hits, _, truths = scoring.counts(sums)
        missed = [exact_bound(count, (1 - CONFIDENCE) / 2) for count in truths[(hits == 0) & (truths > 0)]]
        high = max(high, min(most, score + sum(missed) / np.count_nonzero(truths)))
    return score, bounds.low, float(high)


def inseparable(labels: Sequence[str], rows: Split, answers: Vectors, places: Sequence[str]) -> list[str]:
    """Notes about pairs of labels that are shown not to be told apart, with the rows to read again.

    Args:
        answers: (N, C) probabilities, out of fold.
        places: of the rows.
    """
    given, shares = numbers(rows.targets), np.asarray(answers)
    inside = [np.flatnonzero(given == label) for label in range(len(labels))]
    # How much surer the answer is of another label than of the given one.
    surer = shares - shares[np.arange(len(given)), given][:, None]
    confused = np.array([(surer[each] >= 0).mean(0) if len(each) else np.zeros(len(labels)) for each in inside])
    notes = []
    for first, second, rate in inseparable_pairs(confused, [len(each) for each in inside]):
        wrong = np.concatenate([inside[first], inside[second]])
        other = np.repeat([second, first], [len(inside[first]), len(inside[second])])
        order = np.argsort(-surer[wrong, other], kind="stable")
        notes.append(
            f"The labels {labels[first]!r} and {labels[second]!r} are not told apart: out of fold {rate:.0%} of "
            "their rows are answered with the other one. Read again, the surest first: "
            f"{', '.join(places[row] for row in wrong[order[:NAMED]])}. If their labels are right, more rows or a "
            "start may tell them apart."
        )
    return notes


def contradicted(labels: Sequence[str], rows: Split, answers: Vectors, places: Sequence[str]) -> list[str]:
    """A note about training texts that the final model does not answer with their own label, and why not."""
    given, answered = numbers(rows.targets), np.asarray(answers).argmax(1)
    wrong = np.flatnonzero(given != answered)
    if not len(wrong):
        return []
    of_text = Counter(digest for digest, _ in set(zip(rows.digests, given.tolist(), strict=True)))
    copies = sum(of_text[rows.digests[row]] > 1 for row in wrong)
    named = ", ".join(
        f"{places[row]} ({labels[given[row]]}, answered {labels[answered[row]]})" for row in wrong[:NAMED]
    )
    why = [f"{copies} of them have a copy with another label"] * (copies > 0)
    why += ["they are like rows of the other label, and the model does not learn single rows"] * (copies < len(wrong))
    return [
        f"{len(wrong)} of {len(rows)} training texts have another answer than their label: {'; '.join(why)}: {named}."
    ]


def dependent(rows: Split) -> list[str]:
    """Notes about rows that are not independent."""
    collected, units = [], len(np.unique(rows.units))
    if copies := len(rows) - len(set(rows.digests)):
        collected.append(f"{copies} rows repeat an earlier text; copies of a text are in one fold.")
    if units < len(rows) - copies:
        collected.append(f"The {len(rows)} rows are in {units} groups, whose rows are in one fold.")
    return collected


def tried_of(
    directory: Path, records: Sequence[dict[str, Any]], *, train: Split, kind: str, labels: Sequence[str], folds: int
) -> list[Tried]:
    """The entries of a stage's output, each system followed by its ways to learn.

    Args:
        directory: output of the stage `finetune` or `baseline`.
        records: of its runs.
        train: the labelled rows.
        kind: of the task.
        labels: names of the labels.
        folds: number of folds.
    """
    scoring = scoring_for(kind, labels)
    answers = read_answers(directory, OUT_OF_FOLD)
    collected = []
    for record in records:
        predicted = answers[record["system"], ALL, record["seed"]]
        score, low, high = bounds_of(scoring, train, predicted, folds=folds)
        kept, ways = record.get("way", ""), record.get("ways", [])
        share = next((way["share"] for way in ways if way["way"] == kept), 1.0)
        collected.append(Tried(record["system"], kept, score, low, high, record["seconds"], share))
        collected += [
            Tried(record["system"], way["way"], way["score"], seconds=way["seconds"], share=way["share"])
            for way in ways
            if way["way"] != kept
        ]
    return collected
