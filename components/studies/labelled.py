"""What is learned from samples of a task's labels, which all variants of a study share.

ablation    without pretraining, without adaptation, and with one technique of the settings switched off at a time
            (Howard and Ruder 2018, section 5, tables 5 to 7). The score is that of the last step: a head on frozen
            features, which is the first point of a curve, does not stand in for a run that is worse.
layers      which layer of the frozen encoder gives the best features: the six rows of Devlin et al. 2019, table 7, and
            ELMo's scalar mix (Peters et al. 2018, equation 1)

transferability    how transferable are the features of each layer? (Yosinski, Clune, Bengio and Lipson 2014, figure 2)

Base networks are trained on the labels of two tasks, A and B, from random weights. Then the first n layer groups of a
network are copied from a base network, those above are random, and the network is trained on task B:

    BnB, BnB+    copied from base B; frozen, or trained (+)
    AnB, AnB+    copied from base A; frozen, or trained (+)

n = 0 is base B itself. A decrease of BnB is due to co-adapted layers that were separated: the layers above do not find
again what they had learned together with those below. A further decrease of AnB is due to layers that are specific to
task A. If AnB+ is above base B, transfer helps even after fine-tuning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, cast

import numpy as np

from components.cluster.launcher import map_parallel
from components.core.errors import ConfigError
from components.core.progress import Progress
from components.data.scoring import Scoring, title
from components.data.scoring.base import Floats
from components.data.scoring.intervals import sizes_of
from components.data.tasks.budgets import ALL
from components.data.tasks.data import Split
from components.data.tasks.examples import TaskFacts, read_split
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import best_score
from components.evaluation.aggregates import Scores, measured, unit
from components.learners.finetuning.execution import Trained, clear, train_all
from components.learners.finetuning.fit import FinetuneJob, Fit, fresh_encoder
from components.learners.finetuning.runs import Run
from components.learners.finetuning.stage import fits_of, for_start, own_ways
from components.learners.task_models.kinds import find_task
from components.learners.task_models.model import TaskModel
from components.models.encoder import load_encoder
from components.reporting.evaluations import labels_at
from components.settings.finetune import FinetuneSettings
from components.settings.section import Start
from components.studies.frame import Outputs, Parts, Rows, Sheet, over
from components.training.rng import counter_seed

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
#: Series -> (base network of the copied layers, whether they are trained).
SERIES = {"BnB": ("B", False), "BnB+": ("B", True), "AnB": ("A", False), "AnB+": ("A", True)}
#: The head reads the last layer, so that the random layers cannot be bypassed; no auxiliary objective, which would
#: train them for another task; a random head; and the best of five evaluations on dev counts.
COPIED = {"layers": "last", "lm_weight": 0.0, "head_steps": 0, "evaluations": 5}


@dataclass(frozen=True)
class Labelled:
    """A task, of which `labels` of each stratum of train are sampled; dev is empty if none is named."""

    facts: TaskFacts
    dev: Split
    labels: int

    @classmethod
    def of(cls, outputs: Outputs, task: str, budget: int = 0) -> Labelled:
        """Read a task. The test split is not read. Without a `budget`, the task's largest one up to `MOST`, or its
        smallest if all are larger."""
        facts, dev = outputs.examples(task, "dev")
        if facts.kind not in LABELLED:
            needs = f"this study needs one label per text or word, which {facts.kind} does not have"
            raise ConfigError(f"{facts.task}: {needs}; it supports {', '.join(LABELLED)}")
        usual = max((of for of in facts.budgets if 0 < of <= MOST), default=facts.budgets[0])
        return cls(facts, dev, budget or usual)

    @property
    def scoring(self) -> Scoring:
        """The metrics of the task."""
        return scoring_for(self.facts.kind, self.facts.labels)

    @property
    def described(self) -> str:
        """The primary metric, where it is measured, and the label budget."""
        where = "on dev" if self.facts.selection == "dev" else "by cross-validation"
        return f"{title(self.scoring.main)} {where} at {labels_at(self.labels, unit(self.scoring))}"

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


def ablation(
    outputs: Outputs, *, task: str = "", encoder: str = "", budget: int = 0, seeds: int = 3, lacking: str = ""
) -> Parts:
    """Fine-tune with all techniques and without each of them, on the same labels. `lacking`: only this one is left
    out."""
    data, (block, start) = Labelled.of(outputs, task, budget), outputs.chosen(encoder)[0]
    settings = outputs.finetuning(block)

    def vocabulary(start: str) -> str:
        return outputs.encoder(block, start).tokenizer.fingerprint()

    variants = {WHOLE: (start, settings)}
    for other, part in EARLIER.items():
        # With another vocabulary, a row would have two differences.
        if other != start and outputs.exists("encoder", block, other) and vocabulary(other) == vocabulary(start):
            variants[f"without {part}"] = other, settings
    for technique in TECHNIQUES:
        if (changed := without(technique, settings)) != settings:
            variants[f"without {technique}"] = start, changed
    if lacking:
        if (name := f"without {lacking}") not in variants:
            used = (each.removeprefix("without ") for each in variants if each != WHOLE)
            raise ConfigError(f"--lacking {lacking!r}: {block} has {', '.join(used)}")
        variants = {each: variants[each] for each in (WHOLE, name)}
    rows = data.compared(
        {name: data.job(outputs, block, *of) for name, of in variants.items()},
        seeds,
        lambda run: np.asarray([run.record["curve"][-1][run.record["score"]]]),
        base=WHOLE,
        columns=("fine-tuning", "change"),
    )
    yield f"{data.described}; means over {seeds} samples of the labels with their intervals."
    yield Sheet(rows, f"{data.facts.task}, {block}-{start}", {"change": "+.3f"}, "change", reference=0.0)


def transferability(
    outputs: Outputs,
    *,
    task: str = "",
    other: str = "",
    encoder: str = "",
    budget: int = 100,
    epochs: float = 10.0,
    seeds: int = 3,
) -> Parts:
    """Dev metric of BnB, BnB+, AnB and AnB+ for every n. The seeds are trained in parallel."""
    name, params = outputs.task(task), outputs.params
    others = [outputs.task(other)] if other else [*params.run.tasks, *params.data.tasks]
    if (second := next((each for each in others if each != name), None)) is None:
        raise ConfigError(f"--other: needs a task of data.tasks other than {name}")
    data = {base: Labelled.of(outputs, of, budget or ALL) for base, of in (("A", second), ("B", name))}
    block, start = outputs.chosen(encoder)[0]
    settings = for_start(outputs.finetuning(block), trained=False).model_copy(update={**COPIED, "epochs": epochs})
    # Nothing is kept of a network.
    cluster, made = params.cluster.model_copy(update={"checkpoint_seconds": math.inf}), []
    for of in data.values():
        job = of.job(outputs, block, start, settings).model_copy(update={"cluster": cluster})
        made.append(fits_of(job, settings, [(of.labels, seed) for seed in data["B"].facts.seeds[:seeds]]))
    fits = [dict(zip(data, pair, strict=True)) for pair in zip(*made, strict=True)]
    results = dict[int, list[list[float]]]()
    with Progress("study transferability", total=len(fits), unit="seed") as bar:
        for index, result in map_parallel(of_seed, fits, settings=params.cluster):
            results[index] = result
            bar.advance(1)
    # Series -> (n, seed)
    values = np.moveaxis(np.asarray([of for _, of in sorted(results.items())]), 0, -1)
    scores = dict(zip(SERIES, values, strict=True))
    rows = [{"n": n} | {series: over(of[n]) for series, of in scores.items()} for n in range(values.shape[1])]
    changes = [
        {"series": series, "n": n, "minus B": over(of[n] - of[0])}
        for series, of in scores.items()
        for n in range(1, len(of))
    ]
    yield f"{data['B'].described}, mean over {len(fits)} seeds, with its interval."
    yield Sheet(rows, f"A {second}, B {name}, {block}")
    yield Sheet(changes, "Change against base B, paired by seed", {"minus B": "+.3f"}, "minus B", "n", reference=0.0)


def learn(
    fit: Fit, *, source: TaskModel | None = None, copied: int = 0, learning: bool = True
) -> tuple[TaskModel, float]:
    """Train a network from random weights; returns it with its best metric on dev. All trained layers have the same
    learning rate from the first step: other rates and gradual unfreezing would favour the copied layers.

    Args:
        source: network whose lowest `copied` layer groups are copied; None for a base network.
        learning: whether these are trained.
    """
    # Other weights than those of the encoder are scored, on dev also if choices are made by cross-validation.
    run = Run((replace(fit, stop=fit.settings.evaluations),), None)
    (member,) = run.members
    member.judged = read_split(fit.job.examples, "dev")
    model, encoder = member.model, member.model.encoder
    # The two base networks start from different weights, and the random layers of a copy from others again.
    seed = counter_seed(fit.seed, *(("above",) if source else ("base", fit.job.task)))
    encoder.load_state_dict(fresh_encoder(load_encoder(fit.job.encoder), seed=seed).state_dict())
    lowest = [*chain(*encoder.layer_groups()[:copied])]
    for parameter, other in zip(lowest, chain(*(source or model).encoder.layer_groups()[:copied]), strict=True):
        parameter.data.copy_(other)
    member.trained = True
    member.fit_norm()
    if not learning:
        frozen = {id(parameter.requires_grad_(False)) for parameter in lowest}
        left = [[each for each in group.parameters if id(each) not in frozen] for group in run.state.groups]
        # The loop sets what learns within the groups only.
        run.state.groups = [replace(group, parameters=of) for group, of in zip(run.state.groups, left, strict=True)]
    run.train(fit.store)
    return model, best_score(member.record)


def of_seed(fits: Mapping[str, Fit]) -> list[list[float]]:
    """Train the base networks, then all copies; the scores of each of SERIES for n from 0."""
    bases = {name: learn(fit) for name, fit in fits.items()}
    cuts = range(1, len(bases["B"][0].encoder.layer_groups()) + 1)
    return [
        [bases["B"][1], *(learn(fits["B"], source=bases[name][0], copied=n, learning=plus)[1] for n in cuts)]
        for name, plus in SERIES.values()
    ]
