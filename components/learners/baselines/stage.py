"""Stage `baseline`: systems without a language model, on the same rows and with the same output as fine-tuned ones."""

import math
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from components.core.artifacts import writing
from components.core.clock import OutOfTimeError, clock, until
from components.core.measurements import Curve
from components.core.progress import Progress
from components.data.tasks.budgets import budget_name
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

#: First seed of a draw of rows -> the rows, and system -> its result: at the largest budget, of what can be stored.
Best = dict[int, tuple[Rows, dict[str, Predictions]]]


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
    facts, best = read_facts(job.examples), Best()
    splits = {name: read_split(job.examples, name) for name in ("dev", "test")}
    with writing(job.output, kind=KIND) as draft:
        results = _results(job, facts, best, draft.path / BESIDE)
        records = write_results(draft.path, results, splits=splits, labels=facts.labels)
        if best:
            _write_best(draft.path / "classifier", facts, best)
        draft.facts |= {
            "task": facts.task,
            "system": "baselines",
            "selection": facts.selection,
            "examples": facts.digests,
            "runs": len(records),
        }
    return job.output


def _results(job: BaselineJob, facts: TaskFacts, best: Best, beside: Path) -> Iterator[RunResult]:
    """The results of all systems, budgets and seeds. `best` is filled; the words models that may be combined with an
    encoder are written below `beside`."""
    further = [] if job.unlabelled is None else read_unlabelled(job.unlabelled)
    rows_of = partial(Rows.of, job.examples, further=further)
    every = baselines_of(facts.kind, language=facts.language, which=facts.baselines)
    systems = suited(every, rows_of(facts.budgets[-1], facts.seeds[0]))
    probable = probable_systems(facts.kind, language=facts.language, which=facts.baselines)
    total = len(facts.budgets) * len(facts.seeds) * len(systems)
    with Progress(f"baseline {facts.task}", total=total, unit="run") as bar:
        for budget in facts.budgets:
            drawn: dict[bytes, dict[str, tuple[dict[str, Any], Predictions]]] = {}
            for seed in facts.seeds:
                rows = rows_of(budget, seed)
                key = rows.drawn.tobytes()
                pending, runs = () if key in drawn else systems, drawn.setdefault(key, {})
                bar.advance(len(runs))
                for name in pending:
                    try:
                        # Without a limit of time until there is a model.
                        with until(clock().end if best else math.inf):
                            runs[name] = record, predictions = _run(systems[name], rows)
                    except OutOfTimeError:
                        clock().left_out.append(name)
                        continue
                    if budget == facts.budgets[-1] and isinstance(predictions.model, Stored):
                        best.setdefault(seed, (rows, {}))[1][name] = predictions
                    score = {f"dev_{rows.scoring.main}": predictions.scores[rows.scoring.main]}
                    curve = Curve(f"{name} {budget_name(budget)} labels seed {seed}")
                    curve.add(0, **score, seconds=record["seconds"])
                    bar.advance(1)
                for name, (record, predictions) in runs.items():
                    of_run = {"budget": budget, "seed": seed, **record}
                    yield RunResult(name, BASELINE, "none", of_run, predictions.answers)
                if models := {name: predictions for name, (_, predictions) in runs.items() if name in probable}:
                    model = models[_chosen(rows, models)].model
                    assert isinstance(model, WordsModel)
                    folder = beside / f"{budget}.{seed}"
                    folder.mkdir(parents=True)
                    WordsPart("mean", model).write(folder)


def _run(system: Learner, rows: Rows) -> tuple[dict[str, Any], Predictions]:
    """The result of a system, and its record but for the budget and seed."""
    began = time.perf_counter()
    # Matrix products of this size take less time than starting a second thread.
    with threadpool_limits(1, user_api="blas"):
        predictions = predict(system, rows)
    return {
        "rows": len(rows.drawn),
        "short": {str(stratum): count for stratum, count in rows.short.items()},
        **predictions.details,
        **({} if rows.folds is None else {"folds": len(rows.fold_numbers)}),
        "score": rows.scoring.main,
        "curve": [{"step": 0, "epoch": 0.0, "train_loss": None, **predictions.scores}],
        "best_step": 0,
        "best_epoch": 0.0,
        "steps": 0,
        "tokens": 0,
        "seconds": round(time.perf_counter() - began, 3),
    }, predictions


def _chosen(rows: Rows, results: dict[str, Predictions]) -> str:
    return list(results)[choose_of(rows, [each.answers[rows.judged[0]] for each in results.values()]).index]


def _write_best(directory: Path, facts: TaskFacts, best: Best) -> None:
    # Of a kind whose answers have no mean, the first seed stands for the system.
    averages = scoring_for(facts.kind, facts.labels).averages
    draws = list(best.values())[: None if averages else 1]
    rows, first = draws[0]
    # A limit of time may have passed in the last draw.
    systems = [name for name in first if all(name in results for _, results in draws)]
    chosen = Counter(_chosen(rows, {name: results[name] for name in systems}) for rows, results in draws)
    # The simpler of systems that are chosen equally often.
    system = max(systems, key=chosen.__getitem__)
    judged = [(rows.judged[1].targets, each[system].answers[rows.judged[0]]) for rows, each in draws]
    save_words(
        directory,
        models=[model for _, each in draws if isinstance(model := each[system].model, Stored)],
        kind=facts.kind,
        labels=facts.labels,
        facts={
            "task": facts.task,
            "system": system,
            "budget": facts.budgets[-1],
            "seeds": list(facts.seeds if averages else facts.seeds[:1]),
            "systems": systems,
            **abstention_facts(facts.kind, judged),
        },
        beside=partial(write_domain, kind=facts.kind, rows=rows.whole),
    )
