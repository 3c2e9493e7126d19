"""Stage `baseline`: systems without a language model, on the same rows and with the same output as fine-tuned ones."""

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from components.core.artifacts import writing
from components.core.clock import OutOfTimeError, clock, until
from components.core.measurements import Curve
from components.core.progress import Progress
from components.data.tasks.budgets import budget_name
from components.data.tasks.data import Answer
from components.data.tasks.examples import TaskFacts, read_facts, read_split
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import KIND, RunResult, write_results
from components.data.unlabelled_texts import read_unlabelled
from components.learners.abstention import abstention_facts, write_domain
from components.learners.base import Learner, Rows
from components.learners.baselines import baselines_of
from components.learners.select import Predictions, choose_of, predict
from components.learners.task_models.words_part import WordsPart
from components.learners.words.classifier import Stored, WordsModel, save_words
from components.learners.words.systems import BESIDE, probable_systems, suited
from components.settings.section import BASELINE, Section

#: First seed of a draw of rows -> the rows, and system -> its model and its answers to the rows that choices are
#: made on.
Best = dict[int, tuple[Rows, dict[str, tuple[Stored, list[Answer]]]]]


class BaselineJob(Section):
    """Inputs of the stage; texts of the directory `unlabelled` are used beside the train split."""

    examples: Path
    output: Path
    unlabelled: Path | None = None


def baseline(job: BaselineJob) -> Path:
    """Train the baselines at every budget and seed; write the files of `components.data.tasks.results`.

    These systems are deterministic: seeds with the same training rows, as with the budget `all`, have the
    result of the first of them. The words model that is chosen (`components.learners.select`) for most draws of rows
    at the largest budget is written to `classifier/`: the average over the draws, or the first one if answers of the
    kind have no mean.

    Raises:
        ArtifactError: the examples are incomplete.
        ConfigError: a budget has too few rows for a cross-validation.
    """
    with writing(job.output, kind=KIND) as draft:
        baselines = _Baselines(job, draft.path / BESIDE)
        facts = baselines.facts
        records = write_results(draft.path, baselines.results(), splits=baselines.splits, labels=facts.labels)
        _write_best(draft.path / "classifier", facts, baselines.best)
        draft.facts |= {
            "task": facts.task,
            "system": "baselines",
            "selection": facts.selection,
            "examples": facts.digests,
            "runs": len(records),
        }
    return job.output


class _Baselines:
    def __init__(self, job: BaselineJob, beside: Path) -> None:
        self.job, self.facts, self.beside = job, read_facts(job.examples), beside
        self.splits = {name: read_split(job.examples, name) for name in ("dev", "test")}
        self.further = [] if job.unlabelled is None else read_unlabelled(job.unlabelled)
        facts = self.facts
        every = baselines_of(facts.kind, language=facts.language, which=facts.baselines)
        #: The systems that may be combined with an encoder.
        self.probable = probable_systems(facts.kind, language=facts.language, which=facts.baselines)
        self.systems = suited(every, self._rows(facts.budgets[-1], facts.seeds[0]))
        #: Of the largest budget, by seed: what choices are made on; and by system: its model, and the answers to that.
        self.best: Best = {}

    def _rows(self, budget: int, seed: int) -> Rows:
        return Rows.of(self.job.examples, budget, seed, further=self.further)

    def results(self) -> Iterator[RunResult]:
        facts = self.facts
        total = len(facts.budgets) * len(facts.seeds) * len(self.systems)
        with Progress(f"baseline {facts.task}", total=total, unit="run") as bar:
            for budget in facts.budgets:
                drawn: dict[bytes, tuple[list[RunResult], WordsModel | None]] = {}
                for seed in facts.seeds:
                    rows = self._rows(budget, seed)
                    key = rows.drawn.tobytes()
                    if key in drawn:
                        bar.advance(len(drawn[key][0]))
                    else:
                        drawn[key] = self._of_draw(rows, budget, seed, bar)
                    results, beside = drawn[key]
                    yield from (replace(each, record=each.record | {"seed": seed}) for each in results)
                    if beside is not None:
                        folder = self.beside / f"{budget}.{seed}"
                        folder.mkdir(parents=True)
                        WordsPart("mean", beside).write(folder)

    def _of_draw(self, rows: Rows, budget: int, seed: int, bar: Progress) -> tuple[list[RunResult], WordsModel | None]:
        """The results of the systems on one draw of rows, and the words model for encoders; of the largest budget, the
        models are kept in `best`."""
        counts = {str(stratum): count for stratum, count in rows.short.items()}
        record = {"budget": budget, "seed": seed, "rows": len(rows.drawn), "short": counts}
        results: list[RunResult] = []
        probable: dict[str, Predictions] = {}
        for name, system in self.systems.items():
            try:
                # Without a limit of time until there is a model.
                with until(clock().end if self.best else math.inf):
                    result, predictions = _run(name, system, rows, record)
            except OutOfTimeError:
                clock().left_out.append(name)
                continue
            if budget == self.facts.budgets[-1] and isinstance(predictions.model, Stored):
                answers = predictions.answers[rows.judged[0]]
                self.best.setdefault(seed, (rows, {}))[1][name] = predictions.model, answers
            if name in self.probable:
                probable[name] = predictions
            score = result.record["curve"][-1][rows.scoring.main]
            Curve(f"{name} {budget_name(budget)} labels seed {seed}").add(
                0, **{f"dev_{rows.scoring.main}": score}, seconds=result.record["seconds"]
            )
            results.append(result)
            bar.advance(1)
        if not probable:
            return results, None
        models = list(probable.values())
        model = models[choose_of(rows, [each.answers[rows.judged[0]] for each in models]).index].model
        assert isinstance(model, WordsModel)
        return results, model


def _run(name: str, system: Learner, rows: Rows, record: Mapping[str, Any]) -> tuple[RunResult, Predictions]:
    began = time.perf_counter()
    # Matrix products of this size take less time than starting a second thread.
    with threadpool_limits(1, user_api="blas"):
        predictions = predict(system, rows)
    point = {"step": 0, "epoch": 0.0, "train_loss": None, **predictions.scores}
    result = {
        **record,
        **predictions.details,
        **({} if rows.folds is None else {"folds": len(rows.fold_numbers)}),
        "score": rows.scoring.main,
        "curve": [point],
        "best_step": 0,
        "best_epoch": 0.0,
        "steps": 0,
        "tokens": 0,
        "seconds": round(time.perf_counter() - began, 3),
    }
    return RunResult(name, BASELINE, "none", result, predictions.answers), predictions


def _write_best(directory: Path, facts: TaskFacts, best: Best) -> None:
    if not best:
        return
    # Of a kind whose answers have no mean, the first seed stands for the system.
    averages = scoring_for(facts.kind, facts.labels).averages
    best = best if averages else dict([*best.items()][:1])
    systems = list(next(iter(best.values()))[1])
    chosen = Counter(choose_of(rows, [result[name][1] for name in systems]).index for rows, result in best.values())
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
                facts.kind, [(rows.judged[1].targets, result[system][1]) for rows, result in best.values()]
            ),
        },
        beside=partial(write_domain, kind=facts.kind, rows=next(iter(best.values()))[0].whole),
    )
