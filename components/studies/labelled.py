"""What is learned from samples of a task's labels, which all variants of a study share: `layers` and `ablation`.

ablation    without pretraining, without adaptation, and with one technique of the settings switched off at a time
            (Howard and Ruder 2018, section 5, tables 5 to 7). The score is that of the last step: a head on frozen
            features, which is the first point of a curve, does not stand in for a run that is worse.
layers      which layer of the frozen encoder gives the best features: the six rows of Devlin et al. 2019, table 7, and
            ELMo's scalar mix (Peters et al. 2018, equation 1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import numpy as np

from components.core.errors import ConfigError
from components.data.scoring import Scoring, title
from components.data.scoring.base import Floats
from components.data.scoring.intervals import sizes_of
from components.data.tasks.budgets import sample_rows
from components.data.tasks.data import Split
from components.data.tasks.examples import TaskFacts, read_facts, read_split, strata_of
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import best_score
from components.evaluation.aggregates import Scores, measured, unit
from components.learners.finetuning.execution import Trained, clear, train_all
from components.learners.finetuning.fit import FinetuneJob
from components.learners.finetuning.stage import fits_of, own_ways
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.reporting.evaluations import labels_at
from components.settings.finetune import FinetuneSettings
from components.settings.section import Start
from components.studies.frame import Outputs, Parts, Rows, Sheet

#: Kinds of task with exactly one label per row or word.
LABELLED = ("classification", "pair", "tagging")
#: Largest default budget in labels per class: with many labels encoders and layers differ little.
MOST = 50
CHOICES = ("first", "second_to_last", "last", "sum", "sum_last_four", "concat_last_four", "mix")
#: How the features of layers are learned.
FEATURES: dict[str, Any] = {"words": "none", "label_names": "none", "pooling": "mean"}
WHOLE = "all techniques"
#: Technique -> the values of `finetune.<name>`, and of its section `training`, that switch it off.
TECHNIQUES: Mapping[str, Mapping[str, Any]] = {
    "gradual unfreezing": {"unfreeze_epochs": 0.0},
    "discriminative rates": {"discriminative": 1.0},
    "schedule of the rate": {"training": {"schedule": "constant"}},
    "dropout": {"dropout": 0.0, "head_dropout": 0.0},
    "activation regularisation": {"activation_penalty": 0.0},
    "mean and maximum in pooling": {"pooling": "summary"},
    "gradients through all chunks": {"chunks_learned": 1},
    "language model as an auxiliary objective": {"lm_weight": 0.0},
    "head on frozen features first": {"head_steps": 0},
}
#: Starts that lack a part of the training of the encoder -> what they lack.
EARLIER = {"pretrained": "adaptation to the domain", "scratch": "pretraining and adaptation"}


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
        directory = outputs.of("examples", outputs.task(task))
        facts = read_facts(directory)
        if facts.kind not in LABELLED:
            needs = f"this study needs one label per text or word, which {facts.kind} does not have"
            raise ConfigError(f"{facts.task}: {needs}; it supports {', '.join(LABELLED)}")
        usual = max((of for of in facts.budgets if 0 < of <= MOST), default=facts.budgets[0])
        return cls(facts, read_split(directory, "train"), read_split(directory, "dev"), budget or usual)

    @property
    def scoring(self) -> Scoring:
        """The metrics of the task."""
        return scoring_for(self.facts.kind, self.facts.labels)

    @property
    def amount(self) -> str:
        """The label budget."""
        return labels_at(self.labels, unit(self.scoring))

    @property
    def described(self) -> str:
        """The primary metric, where it is measured, and the label budget."""
        where = "on dev" if self.facts.selection == "dev" else "by cross-validation"
        return f"{title(self.scoring.main)} {where} at {self.amount}"

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

    def compared(
        self,
        jobs: Mapping[str, FinetuneJob],
        seeds: int,
        score: Callable[[Trained], Floats],
        *,
        base: str,
        columns: tuple[str, str],
    ) -> Rows:
        """A row of each variant, learned from each of `seeds` samples of the train rows, and its difference to `base`,
        paired by sample. `score` returns (1 + G,) values of a run, of which G are without a cluster of dev rows."""
        scores, scoring = dict[str, Scores](), self.scoring
        for name, job in jobs.items():
            trainings = {
                way: [(fit,) for fit in fits_of(job, settings, [(self.labels, seed) for seed in range(seeds)])]
                for way, settings in own_ways(job).items()
            }
            values = np.stack([score(trained) for (trained,) in train_all(trainings, title=name, cluster=job.cluster)])
            clear([*chain(*trainings.values())], cluster=job.cluster)
            sizes = sizes_of(self.dev.clusters, len(self.dev)) if len(values.T) > 1 else None
            scores[name] = Scores(range(seeds), values, sizes, within=scoring.ranges[scoring.main])
        return [
            {columns[0]: name.replace("_", " "), "score": of.interval()}
            | {columns[1]: None if name == base else of.minus(scores[base]).interval()}
            for name, of in scores.items()
        ]


def layers(outputs: Outputs, *, task: str = "", encoder: str = "", budget: int = 0, seeds: int = 3) -> Parts:
    """Metric of every choice of layers, and its difference to the last layer, for one or several encoders."""
    data, rows = Labelled.of(outputs, task, budget), Rows()
    facts, dev, scoring = data.facts, data.dev, data.scoring

    def score(run: Trained) -> Floats:
        if facts.selection != "dev":
            return np.asarray([best_score(run.record)])
        matrix = scoring.statistics(dev.fields, dev.targets, run.answers["dev"])
        return measured([matrix], dev.clusters, scoring.scores)[scoring.main][0]

    for block, start in outputs.chosen(encoder):
        model, jobs = outputs.encoder(block, start).model, dict[str, FinetuneJob]()
        for choice in CHOICES:
            settings = outputs.finetuning(block).by("features", **FEATURES, layers=choice)
            try:
                TaskModel(model, task=find_task(facts.kind), settings=settings, labels=facts.labels)
            except ConfigError:
                continue
            jobs[choice] = data.job(outputs, block, start, settings)
        of = data.compared(jobs, seeds, score, base="last", columns=("layers", "minus the last layer"))
        rows += [{"encoder": f"{block}-{start}"} | row for row in of]
    yield f"{data.described}; means over samples of the labels."
    yield Sheet(rows, facts.task, value="score")


def without(technique: str, settings: FinetuneSettings) -> FinetuneSettings:
    """The settings without a technique; the same settings if they do not use it."""
    changes = dict(TECHNIQUES[technique])
    if "chunks_learned" in changes and not settings.chunk:
        return settings
    if "training" in changes:
        changes["training"] = settings.training.model_copy(update=changes["training"])
    return settings.model_copy(update=changes)


def ablation(outputs: Outputs, *, task: str = "", encoder: str = "", budget: int = 0, seeds: int = 3) -> Parts:
    """Fine-tune with all techniques, and without each of them, on the same labels."""
    data, (block, start) = Labelled.of(outputs, task, budget), outputs.chosen(encoder)[0]
    settings = outputs.finetuning(block)

    def vocabulary(start: str) -> str:
        return outputs.encoder(block, start).tokenizer.fingerprint()

    variants = {WHOLE: (start, settings)}
    for other, lacking in EARLIER.items():
        # With another vocabulary, a row would have two differences.
        if other != start and outputs.exists("encoder", block, other) and vocabulary(other) == vocabulary(start):
            variants[f"without {lacking}"] = other, settings
    for technique in TECHNIQUES:
        if (changed := without(technique, settings)) != settings:
            variants[f"without {technique}"] = start, changed
    rows = data.compared(
        {name: data.job(outputs, block, *of) for name, of in variants.items()},
        seeds,
        lambda run: np.asarray([run.record["curve"][-1][run.record["score"]]]),
        base=WHOLE,
        columns=("fine-tuning", "change"),
    )
    yield f"{data.described}; means over {seeds} samples of the labels with their intervals."
    yield Sheet(rows, f"{data.facts.task}, {block}-{start}", {"change": "+.3f"}, "change", reference=0.0)
