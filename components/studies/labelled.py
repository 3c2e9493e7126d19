"""A task for the studies of encoders, and what is learned from samples of its labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from components.core.errors import ConfigError
from components.data.scoring import Scoring, title
from components.data.scoring.base import Floats
from components.data.tasks.budgets import ALL, sample_rows
from components.data.tasks.data import Split
from components.data.tasks.examples import TaskFacts, read_facts, read_split, strata_of
from components.data.tasks.kinds import scoring_for
from components.evaluation.aggregates import Scores, unit
from components.learners.finetuning.execution import Trained, clear, train_all
from components.learners.finetuning.fit import FinetuneJob
from components.learners.finetuning.stage import fits_of, own_ways
from components.reporting.evaluations import labels_at
from components.settings.finetune import FinetuneSettings
from components.settings.section import Start
from components.studies.frame import Outputs, Row

#: Kinds of task with exactly one label per row or word.
LABELLED = ("classification", "pair", "tagging")
#: Largest default budget in labels per class: with many labels encoders and layers differ little.
MOST = 50


@dataclass(frozen=True)
class Labelled:
    """A task, of which `labels` of each stratum of train are sampled; dev is empty if none is named."""

    facts: TaskFacts
    train: Split
    dev: Split
    labels: int

    @classmethod
    def of(cls, outputs: Outputs, task: str, budget: int = 0) -> Labelled:
        """Read a task. The test split is not read. Without a `budget`, the task's largest one up to `MOST`, or its
        smallest if all are larger."""
        name = outputs.task(task)
        directory = outputs.of("examples", name)
        facts = read_facts(directory)
        if facts.kind not in LABELLED:
            needs = f"this study needs one label per text or word, which {facts.kind} does not have"
            raise ConfigError(f"{name}: {needs}; it supports {', '.join(LABELLED)}")
        usual = max((of for of in facts.budgets if of != ALL and of <= MOST), default=facts.budgets[0])
        return cls(facts, read_split(directory, "train"), read_split(directory, "dev"), budget or usual)

    @property
    def scoring(self) -> Scoring:
        """The metrics of the task."""
        return scoring_for(self.facts.kind, self.facts.labels)

    @property
    def described(self) -> str:
        """The primary metric, where it is measured, and the label budget."""
        where = "on dev" if self.facts.selection == "dev" else "by cross-validation"
        return f"{title(self.scoring.main)} {where} at {labels_at(self.labels, unit(self.scoring))}"

    def sample(self, *, seed: int) -> Split:
        """The train rows of a run with this seed."""
        return self.train.take(sample_rows(strata_of(self.train, self.facts.kind), self.labels, seed=seed)[0])

    def job(self, outputs: Outputs, block: str, start: str, settings: FinetuneSettings) -> FinetuneJob:
        """The training of the task from an encoder of the run."""
        return FinetuneJob(
            task=self.facts.task,
            family=block,
            start=cast(Start, start),
            examples=outputs.of("examples", self.facts.task),
            encoder=outputs.encoder_directory(block, start),
            output=outputs.out,
            settings=settings,
            cluster=outputs.params.cluster,
        )

    def learned(self, job: FinetuneJob, seeds: int, score: Callable[[Trained], Floats], *, title: str) -> Scores:
        """Train on each of `seeds` samples of the train rows; `score` returns (1 + G,) values of a run."""
        trainings = {
            way: [(fit,) for fit in fits_of(job, settings, [(self.labels, seed) for seed in range(seeds)])]
            for way, settings in own_ways(job).items()
        }
        values = np.stack([score(trained) for (trained,) in train_all(trainings, title=title, cluster=job.cluster)])
        clear([fits for of_way in trainings.values() for fits in of_way], cluster=job.cluster)
        return Scores(range(seeds), values, within=self.scoring.ranges[self.scoring.main])


def beside(scores: Mapping[str, Scores], base: str, first: str, column: str) -> list[Row]:
    """A row of each score, and its difference to that of `base`, paired by sample."""
    return [
        {first: name.replace("_", " "), "score": of.interval()}
        | {column: None if name == base else of.minus(scores[base]).interval()}
        for name, of in scores.items()
    ]
