"""Stage `baseline`: systems without a language model, on the same rows and with the same output as fine-tuned ones."""

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from components.core.artifacts import writing
from components.core.clock import OutOfTimeError, clock, until
from components.core.measurements import Curve
from components.core.progress import Progress
from components.data.tasks.budgets import budget_name, sample_rows
from components.data.tasks.choice import choose
from components.data.tasks.data import Answer, Labels, Split
from components.data.tasks.examples import TaskFacts, largest_draw, read_facts, read_split, run_folds, strata_of
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import KIND, RunResult, write_results
from components.data.tasks.selection import Data, Free, Predictions, System, predict
from components.data.unlabelled_texts import read_unlabelled
from components.learners.abstention import abstention_facts, write_domain
from components.learners.baselines import baselines_of
from components.learners.words import transductive
from components.learners.words.classifier import Stored, save_words
from components.learners.words.systems import LATENT, LATENT_FOLDER, suited
from components.settings.section import BASELINE, Section

#: First seed of a draw of rows -> data of the run, and system -> its model and its answers to the rows that choices are
#: made on.
Best = dict[int, tuple[Data, dict[str, tuple[Stored, list[Answer]]]]]


class BaselineJob(Section):
    """Inputs of the stage; texts of the directory `unlabelled` are used beside the train split."""

    examples: Path
    output: Path
    unlabelled: Path | None = None


def baseline(job: BaselineJob) -> Path:
    """Train the baselines at every budget and seed; write the files of `components.data.tasks.results`.

    These systems are deterministic: seeds with the same training rows, as with the budget `all`, have the
    result of the first of them. The words model that is chosen (`components.data.tasks.choice`) for most draws of rows
    at the largest budget is written to `classifier/`: the average over the draws, or the first one if answers of the
    kind have no mean.

    Raises:
        ArtifactError: the examples are incomplete.
        ConfigError: a budget has too few rows for a cross-validation.
    """
    baselines = _Baselines(job)
    facts = baselines.facts
    with writing(job.output, kind=KIND) as draft:
        records = write_results(draft.path, baselines.results(), splits=baselines.splits, labels=facts.labels)
        for free in baselines.read:
            transductive.store(draft.path / LATENT_FOLDER, free, labels=len(facts.labels))
        _write_best(draft.path / "classifier", facts, baselines.best, train=baselines.train)
        draft.facts |= {
            "task": facts.task,
            "system": "baselines",
            "selection": facts.selection,
            "examples": facts.digests,
            "runs": len(records),
        }
    return job.output


class _Baselines:
    def __init__(self, job: BaselineJob) -> None:
        self.facts = facts = read_facts(job.examples)
        self.train = read_split(job.examples, "train")
        self.strata = strata_of(self.train, facts.kind)
        self.scoring = scoring_for(facts.kind, facts.labels)
        self.splits = {name: read_split(job.examples, name) for name in ("dev", "test")}
        self.further = [] if job.unlabelled is None else read_unlabelled(job.unlabelled)
        every = baselines_of(facts.kind, language=facts.language, which=facts.baselines)
        seed = facts.seeds[0]
        self.systems = suited(every, self._data(largest_draw(facts, self.train, seed=seed), seed, folds=None))
        #: Of the largest budget, by seed: what choices are made on; and by system: its model, and the answers to that.
        self.best: Best = {}
        #: What the features of `LATENT` were fitted on.
        self.read: set[Free] = set()

    def _data(self, rows: Labels, seed: int, *, folds: Labels | None) -> Data:
        dev, test = self.splits["dev"], self.splits["test"]
        labels, largest = self.facts.labels, largest_draw(self.facts, self.train, seed=seed)
        return Data(self.train, rows, dev, test, labels, self.scoring, folds, self.further, largest)

    def results(self) -> Iterator[RunResult]:
        facts = self.facts
        total = len(facts.budgets) * len(facts.seeds) * len(self.systems)
        with Progress(f"baseline {facts.task}", total=total, unit="run") as bar:
            for budget in facts.budgets:
                drawn: dict[bytes, list[RunResult]] = {}
                for seed in facts.seeds:
                    rows, short = sample_rows(self.strata, budget, seed=seed)
                    if (same := drawn.get(rows.tobytes())) is not None:
                        yield from (replace(each, record=each.record | {"seed": seed}) for each in same)
                        bar.advance(len(same))
                        continue
                    of_draw = drawn[rows.tobytes()] = []
                    counts = {str(stratum): count for stratum, count in short.items()}
                    record = {"budget": budget, "seed": seed, "rows": len(rows), "short": counts}
                    for result in self._of_draw(rows, record):
                        of_draw.append(result)
                        yield result
                        bar.advance(1)

    def _of_draw(self, rows: Labels, record: Mapping[str, Any]) -> Iterator[RunResult]:
        """The results of the systems on one draw of rows; of the largest budget, their models are kept in `best`."""
        facts, budget, seed = self.facts, record["budget"], record["seed"]
        folds = run_folds(facts, self.train, rows, seed=seed) if facts.selection == "budget" else None
        data = self._data(rows, seed, folds=folds)
        for name, system in self.systems.items():
            try:
                # Without a limit of time until there is a model.
                with until(clock().end if self.best else math.inf):
                    result, predictions = _run(name, system, data, record)
            except OutOfTimeError:
                clock().left_out.append(name)
                continue
            if budget == facts.budgets[-1] and isinstance(predictions.model, Stored):
                answers = predictions.answers[data.judged[0]]
                self.best.setdefault(seed, (data, {}))[1][name] = predictions.model, answers
            if name == LATENT:
                self.read.add(data.free)
            score = result.record["curve"][-1][self.scoring.main]
            Curve(f"{name} {budget_name(budget)} labels seed {seed}").add(
                0, **{f"dev_{self.scoring.main}": score}, seconds=result.record["seconds"]
            )
            yield result


def _run(name: str, system: System, data: Data, record: Mapping[str, Any]) -> tuple[RunResult, Predictions]:
    began = time.perf_counter()
    # Matrix products of this size take less time than starting a second thread.
    with threadpool_limits(1, user_api="blas"):
        predictions = predict(system, data)
    point = {"step": 0, "epoch": 0.0, "train_loss": None, **predictions.scores}
    result = {
        **record,
        **predictions.details,
        **({} if data.folds is None else {"folds": len(np.unique(data.folds))}),
        "score": data.scoring.main,
        "curve": [point],
        "best_step": 0,
        "best_epoch": 0.0,
        "steps": 0,
        "tokens": 0,
        "seconds": round(time.perf_counter() - began, 3),
    }
    return RunResult(name, BASELINE, "none", result, predictions.answers), predictions


def _write_best(directory: Path, facts: TaskFacts, best: Best, *, train: Split) -> None:
    if not best:
        return
    # Of a kind whose answers have no mean, the first seed stands for the system.
    averages = scoring_for(facts.kind, facts.labels).averages
    best = best if averages else dict([*best.items()][:1])
    systems = list(next(iter(best.values()))[1])
    chosen = Counter(
        choose(data.scoring, data.judged[1], [result[name][1] for name in systems], folds=data.folds).index
        for data, result in best.values()
    )
    system = systems[max(sorted(chosen), key=chosen.__getitem__)]
    save_words(
        directory,
        models=[models[system][0] for _, models in best.values()],
        kind=facts.kind,
        labels=facts.labels,
        facts={
            "task": facts.task,
            "system": system,
            "budget": facts.budgets[-1],
            "seeds": list(facts.seeds if averages else facts.seeds[:1]),
            "systems": systems,
            **abstention_facts(
                facts.kind, [(data.judged[1].targets, result[system][1]) for data, result in best.values()]
            ),
        },
        beside=partial(write_domain, kind=facts.kind, rows=train),
    )
