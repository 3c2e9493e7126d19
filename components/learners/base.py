"""What everything that learns a task has in common: its rows, and what is fitted on them.

A learner is a function from `Rows` to its candidates, which `components.learners.select` chooses from. A fold of a
cross-validation is `rows.without(fold)`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from components.data.formats.textkey import digest_of
from components.data.scoring import Scoring
from components.data.tasks.budgets import sample_rows
from components.data.tasks.data import Answer, Fields, Labels, Split
from components.data.tasks.examples import largest_draw, read_facts, read_split, run_folds, strata_of
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import OUT_OF_FOLD, RunResult, write_results


class Fitted(Protocol):
    """A fitted system."""

    def answers(self, rows: Sequence[Fields]) -> list[Answer]:
        """The answers to N inputs; the answer to a row does not depend on the others."""


@dataclass(frozen=True)
class Candidate:
    """A system with one setting of its hyper-parameter."""

    fit: Callable[[], Fitted]
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Fitted, details: Mapping[str, Any] = MappingProxyType({})) -> Candidate:
        """A candidate that is fitted already."""
        return cls(lambda: model, details)

    @cached_property
    def model(self) -> Fitted:
        return self.fit()


@dataclass(frozen=True, eq=False)
class Rows:
    """What one label budget and seed learn from, and the rows that are predicted.

    Attributes:
        whole: the train split, whose inputs are read without labels too.
        drawn: (N,) indices, ascending, in `whole` of the rows of the budget.
        dev, test: the rows that are predicted.
        folds: (N,) fold of each row of the budget, by which choices are made; None: they are made on dev.
        further: inputs without labels beside the train split's inputs.
        largest: indices of the rows that the seed draws at any budget; None: those of the budget.
        short: stratum -> number of its rows, where there are fewer than the budget.
        held: positions in `drawn` of the rows that are held out.
        left_out: digests of everything that is not read, because it belongs to held-out rows.
        whole_run: the same without held-out rows, with what its folds and systems compute once; a fold must not learn
            from what it does not have itself.
    """

    whole: Split
    drawn: NDArray[np.int64]
    dev: Split
    test: Split
    labels: Sequence[str]
    scoring: Scoring
    folds: Labels | None = None
    further: Sequence[Fields] = ()
    largest: NDArray[np.int64] | None = None
    short: Mapping[int, int] = field(default_factory=dict)
    held: NDArray[np.integer] | None = None
    left_out: frozenset[bytes] = frozenset()
    whole_run: Rows | None = None

    @classmethod
    def of(
        cls,
        examples: Path,
        budget: int,
        seed: int,
        *,
        most: int | None = None,
        further: Sequence[Fields] = (),
    ) -> Rows:
        """The rows of a task's label budget and seed; dev is not read where choices are made by cross-validation.

        Args:
            examples: output directory of the stage `examples`.
            budget: rows per stratum; -1 for all.
            most: maximum number of folds; None: `data.tasks.<name>.folds`.

        Raises:
            ConfigError: the rows are too few for a cross-validation.
        """
        facts, whole = read_facts(examples), read_split(examples, "train")
        drawn, short = sample_rows(strata_of(whole, facts.kind), budget, seed=seed)
        crossed = facts.selection == "budget"
        return cls(
            whole,
            drawn,
            whole.take([]) if crossed else read_split(examples, "dev"),
            read_split(examples, "test"),
            facts.labels,
            scoring_for(facts.kind, facts.labels),
            run_folds(facts, whole, drawn, seed=seed, most=most) if crossed else None,
            further,
            largest_draw(facts, whole, seed=seed),
            short,
        )

    def without(self, held: int | NDArray[np.integer], *, further: frozenset[bytes] = frozenset()) -> Rows:
        """These rows without everything that belongs to some of them (`Split.belonging`): a fold, or positions in
        `drawn`; `further`: digests of other inputs that are not read."""
        inside = np.flatnonzero(self.folds == held) if isinstance(held, int) else held
        left_out = self.whole.belonging(self.drawn[inside]) | further
        return replace(self, held=inside, left_out=left_out, whole_run=self.run)

    @property
    def run(self) -> Rows:
        """The rows without held-out ones."""
        return self.whole_run or self

    @cached_property
    def kept(self) -> NDArray[np.int64]:
        """Positions in `drawn` of the labelled rows."""
        if not self.left_out:
            return np.arange(len(self.drawn))
        return np.flatnonzero([self.whole.digests[row] not in self.left_out for row in self.drawn])

    @property
    def learned(self) -> NDArray[np.int64]:
        """Indices, ascending, in `whole` of the labelled rows."""
        return self.drawn[self.kept]

    @property
    def held_out(self) -> Split:
        """The rows that are held out; dev if none are."""
        return self.dev if self.held is None else self.whole.take(self.drawn[self.held])

    @cached_property
    def labelled(self) -> Split:
        return self.whole.take(self.learned)

    @cached_property
    def texts(self) -> list[Fields]:
        """All inputs, with labels or without."""
        return [parts for parts, key in self._inputs if key not in self.left_out]

    @property
    def record(self) -> dict[str, Any]:
        """Entries of the results."""
        return {
            "rows": len(self.kept),
            "short": {str(stratum): count for stratum, count in self.short.items()},
            "score": self.scoring.main
        }  # fmt: skip

    @property
    def judged(self) -> tuple[str, Split]:
        """The name in results and the rows of what choices are made on."""
        return ("dev", self.dev) if self.folds is None else (OUT_OF_FOLD, self.run.labelled)

    @property
    def fold_numbers(self) -> list[int]:
        return [] if self.folds is None else np.unique(self.folds).tolist()

    def joined(self, by_fold: Sequence[Sequence[Answer]]) -> list[Answer]:
        """The answers to the rows of each fold, in the order of `drawn`."""
        assert self.folds is not None
        parts = list(map(iter, by_fold))
        return [next(parts[fold]) for fold in np.searchsorted(self.fold_numbers, self.folds)]

    def score(self, answers: Sequence[Answer]) -> dict[str, float]:
        """All metrics of answers to the judged rows."""
        _, rows = self.judged
        return self.scoring.score(rows.fields, rows.targets, answers)

    @cached_property
    def free(self) -> tuple[Fields, ...]:
        """Inputs, in the order of their digests, of no row that the runs of a seed learn from or are judged on, of no
        copy and of no row of the same group. What is fitted on them is the same for all folds and budgets of the seed.
        """
        if self.run is not self:
            return self.run.free
        belonging = self.whole.belonging(self.of_seed)
        inputs = {key: parts for parts, key in self._inputs if key not in belonging}
        return tuple(inputs[key] for key in sorted(inputs))

    @property
    def of_seed(self) -> NDArray[np.int64]:
        """Indices of the rows that the seed draws at any budget."""
        return self.drawn if self.largest is None else self.largest

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` returned when this key came first, in this run and its folds."""
        made = self.run._made
        if key not in made:
            made[key] = make()
        return made[key]

    @cached_property
    def _made(self) -> dict[Hashable, Any]:
        return {}

    @cached_property
    def _inputs(self) -> list[tuple[Fields, bytes]]:
        """All inputs without labels, with their digests; further ones that are in the train split are left out."""
        if self.run is not self:
            return self.run._inputs
        given = set(self.whole.digests)
        further = [(parts, key) for parts in self.further if (key := digest_of(parts)) not in given]
        return [*zip(self.whole.fields, self.whole.digests, strict=True), *further]


#: The candidates of a system's hyper-parameter on some rows, the simplest first.
Learner = Callable[[Rows], Sequence[Candidate]]


def per_row(scoring: Scoring, rows: Split) -> Callable[[Sequence[Answer]], NDArray[np.float64]]:
    """Answers -> (N,) primary metric of each row."""
    return lambda result: scoring.scores(scoring.statistics(rows.fields, rows.targets, result).toarray())[scoring.main]


def write_runs(directory: Path, examples: Path, results: Iterable[RunResult], *, system: str) -> dict[str, Any]:
    """Write the files of `components.data.tasks.results`, one result at a time; returns facts of the manifest.
    `examples`: output directory of the stage `examples`."""
    facts = read_facts(examples)
    named = ("dev", "test") if facts.selection == "dev" else ("test",)
    splits = {name: read_split(examples, name) for name in named}
    records = write_results(directory, results, splits=splits, labels=facts.labels)
    return {
        "task": facts.task,
        "system": system,
        "selection": facts.selection,
        "examples": facts.digests,
        "runs": len(records),
    }
