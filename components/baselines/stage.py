"""Stage `baseline`: systems without a language model.

Every system of `components.baselines` is trained on the same rows as the fine-tuned systems, and writes the same output
format. The best one that can be served is written as a classifier, which is a candidate for promotion as any other.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from components.artifacts import writing
from components.baselines import baselines_of
from components.measurements import Curve
from components.progress import Progress
from components.settings.names import BASELINE
from components.settings.section import Section
from components.tasks.budgets import budget_name, sample_rows
from components.tasks.choice import choose
from components.tasks.data import Answer
from components.tasks.examples import TaskFacts, read_facts, read_split, run_folds, strata_of
from components.tasks.kinds import scoring_for
from components.tasks.results import KIND, RunResult, write_results
from components.tasks.selection import Data, Predictions, System, predict
from components.unlabelled.texts import read_unlabelled
from components.words.classifier import WordsModel, save_words


class BaselineJob(Section):
    """Inputs of the stage.

    Attributes:
        examples: output directory of the stage `examples`.
        output: directory to write.
        unlabelled: output directory of the stage `unlabelled`, whose texts are used beside those of the train split.
    """

    examples: Path
    output: Path
    unlabelled: Path | None = None


def baseline(job: BaselineJob) -> Path:
    """Train the baselines at every budget and seed; write the files of `components.tasks.results`.

    If the task has words models (`components.words`), those of the system that is chosen (`components.tasks.choice`)
    for most seeds at the largest budget are written to `classifier/`: the average of all seeds.

    Raises:
        ArtifactError: the examples are incomplete.
        ConfigError: a budget has too few rows for a cross-validation.
    """
    facts = read_facts(job.examples)
    train = read_split(job.examples, "train")
    strata = strata_of(train, facts.kind)
    scoring = scoring_for(facts.kind, facts.labels)
    splits = {name: read_split(job.examples, name) for name in ("dev", "test")}
    further = [] if job.unlabelled is None else read_unlabelled(job.unlabelled)
    systems = baselines_of(facts.kind, language=facts.language, which=facts.baselines)
    total = len(facts.budgets) * len(facts.seeds) * len(systems)
    best = BestModels(facts)

    def results() -> Iterator[RunResult]:
        with Progress(f"baseline {facts.task}", total=total, unit="run") as bar:
            for budget in facts.budgets:
                for seed in facts.seeds:
                    rows, short = sample_rows(strata, budget, seed=seed)
                    folds = run_folds(facts, train, rows, seed=seed) if facts.selection == "budget" else None
                    dev, test = splits["dev"], splits["test"]
                    data = Data(train, rows, dev, test, facts.labels, scoring, folds, further)
                    record = {
                        "budget": budget,
                        "seed": seed,
                        "rows": len(rows),
                        "short": {str(stratum): count for stratum, count in short.items()},
                    }
                    for name, system in systems.items():
                        result, model = _run(name, system, data, record)
                        best.offer(result, model, data)
                        score = result.record["curve"][-1][scoring.main]
                        Curve(f"{name} {budget_name(budget)} labels seed {seed}").add(
                            0, **{f"dev_{scoring.main}": score}, seconds=result.record["seconds"]
                        )
                        yield result
                        bar.advance(1)

    with writing(job.output, kind=KIND) as draft:
        records = write_results(draft.path, results(), splits=splits, labels=facts.labels)
        best.write(draft.path / "classifier")
        draft.facts |= {
            "task": facts.task,
            "system": "baselines",
            "selection": facts.selection,
            "examples": facts.digests,
            "runs": len(records),
        }
    return job.output


def _run(name: str, system: System, data: Data, record: Mapping[str, Any]) -> tuple[RunResult, Predictions]:
    began = time.perf_counter()
    # Matrix products of this size take less time than starting a second thread.
    with threadpool_limits(1, user_api="blas"):
        predictions = predict(system, data)
    point = {"step": 0, "epoch": 0.0, "train_loss": None, **predictions.scores}
    found = {
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
    return RunResult(name, BASELINE, "none", found, predictions.answers), predictions


class BestModels:
    """The words models of the largest budget: system -> seed -> its model.

    Args:
        facts: of the task.
    """

    def __init__(self, facts: TaskFacts) -> None:
        self._facts = facts
        self._models: dict[str, dict[int, WordsModel]] = {}
        #: Seed -> what choices are made on, and system -> its answers to it.
        self._judged: dict[int, tuple[Data, dict[str, list[Answer]]]] = {}

    def offer(self, result: RunResult, predictions: Predictions, data: Data) -> None:
        """Keep the model of a run if it has the largest budget."""
        if result.record["budget"] != self._facts.budgets[-1] or not isinstance(predictions.model, WordsModel):
            return
        seed = int(result.record["seed"])
        self._judged.setdefault(seed, (data, {}))[1][result.system] = predictions.answers[data.judged[0]]
        self._models.setdefault(result.system, {})[seed] = predictions.model

    def write(self, directory: Path) -> None:
        """Write the models of the chosen system."""
        if not self._models:
            return
        facts, systems = self._facts, list(self._models)
        chosen = Counter(
            choose(data.scoring, data.judged[1], [answers[name] for name in systems], folds=data.folds).index
            for data, answers in self._judged.values()
        )
        system = systems[max(sorted(chosen), key=chosen.__getitem__)]
        models = dict(sorted(self._models[system].items()))
        save_words(
            directory,
            models=list(models.values()),
            kind=facts.kind,
            labels=facts.labels,
            facts={
                "task": facts.task,
                "system": system,
                "budget": facts.budgets[-1],
                "seeds": list(models),
                "systems": systems,
            },
        )
