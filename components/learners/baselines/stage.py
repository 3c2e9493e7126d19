"""Stage `baseline`: systems without a language model, on the same rows and with the same output as fine-tuned ones."""

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from threadpoolctl import threadpool_limits

from components.core.artifacts import writing
from components.core.clock import OutOfTimeError, clock, until
from components.core.measurements import Curve
from components.core.progress import Progress
from components.data.tasks.budgets import budget_name
from components.data.tasks.examples import TaskFacts, read_facts
from components.data.tasks.kinds import scoring_for
from components.data.tasks.results import KIND, RunResult
from components.data.unlabelled_texts import read_unlabelled
from components.learners.abstention import save_classifier
from components.learners.base import Learner, Rows, write_runs
from components.learners.baselines import baselines_of
from components.learners.select import Predictions, choose_of, predict
from components.learners.words.classifier import Stored, WordsModel, WordsPart, write_words
from components.learners.words.systems import BESIDE, probable, suited
from components.settings.section import BASELINE, Section

#: System -> its result.
Runs = dict[str, Predictions]


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
    facts, runs = read_facts(job.examples), dict[bytes, Runs]()
    with writing(job.output, kind=KIND) as draft:
        results = _results(job, facts, runs, draft.path / BESIDE)
        draft.facts |= write_runs(draft.path, job.examples, results, system="baselines")
        stored = ({name: each for name, each in of.items() if isinstance(each.model, Stored)} for of in runs.values())
        # A limit of time may leave nothing of the last draw.
        if draws := list(filter(None, stored)):
            _write_best(draft.path / "classifier", facts, draws)
    return job.output


def _results(job: BaselineJob, facts: TaskFacts, drawn: dict[bytes, Runs], beside: Path) -> Iterator[RunResult]:
    """The results of all systems, budgets and seeds. Those of the largest budget are left in `drawn`, by the rows that
    were drawn; the words models that may be combined with an encoder are written below `beside`."""
    further = [] if job.unlabelled is None else read_unlabelled(job.unlabelled)
    rows_of = partial(Rows.of, job.examples, further=further)
    every = baselines_of(facts.kind, language=facts.language, which=facts.baselines)
    systems = suited(every, rows_of(facts.budgets[-1], facts.seeds[0]))
    total = len(facts.budgets) * len(facts.seeds) * len(systems)
    with Progress(f"baseline {facts.task}", total=total, unit="run") as bar:
        for budget in facts.budgets:
            drawn.clear()
            for seed in facts.seeds:
                rows = rows_of(budget, seed)
                key = rows.drawn.tobytes()
                pending, runs = () if key in drawn else systems, drawn.setdefault(key, {})
                bar.advance(len(runs))
                for name in pending:
                    try:
                        # Without a limit of time until there is a model of the largest budget.
                        limited = budget == facts.budgets[-1] and any(drawn.values())
                        with until(clock().end if limited else math.inf):
                            runs[name] = _run(systems[name], rows)
                    except OutOfTimeError:
                        clock().left_out.append(name)
                        continue
                    score = {f"dev_{rows.scoring.main}": runs[name].scores[rows.scoring.main]}
                    curve = Curve(f"{name} {budget_name(budget)} labels seed {seed}")
                    curve.add(0, **score, seconds=runs[name].record["seconds"])
                    bar.advance(1)
                for name, each in runs.items():
                    of_run = {"budget": budget, "seed": seed, **each.record}
                    yield RunResult(name, BASELINE, "none", of_run, each.answers)
                if models := {name: runs[name] for name in probable(facts.kind) if name in runs}:
                    model = models[_chosen(models)].model
                    assert isinstance(model, WordsModel)
                    folder = beside / f"{budget}.{seed}"
                    folder.mkdir(parents=True)
                    WordsPart("mean", model).write(folder)


def _run(system: Learner, rows: Rows) -> Predictions:
    """The result of a system, with a record but for the budget and seed."""
    began = time.perf_counter()
    # Matrix products of this size take less time than starting a second thread.
    with threadpool_limits(1, user_api="blas"):
        predictions = predict(system, rows)
    record = {
        **rows.record,
        **predictions.record,
        **({} if rows.folds is None else {"folds": len(rows.fold_numbers)}),
        "curve": [{"step": 0, "epoch": 0.0, "train_loss": None, **predictions.scores}],
        "best_step": 0,
        "best_epoch": 0.0,
        "steps": 0,
        "tokens": 0,
        "seconds": round(time.perf_counter() - began, 3),
    }
    return replace(predictions, record=record)


def _chosen(results: Runs) -> str:
    rows = next(iter(results.values())).rows
    return choose_of(rows, {name: each.answers[rows.judged[0]] for name, each in results.items()})[0][None]


def _write_best(directory: Path, facts: TaskFacts, draws: Sequence[Runs]) -> None:
    # Of a kind whose answers have no mean, the first seed stands for the system.
    averages = scoring_for(facts.kind, facts.labels).averages
    draws = draws[: None if averages else 1]
    # A limit of time may have passed in the last draw.
    systems = [name for name in draws[0] if all(name in results for results in draws)]
    chosen = Counter(_chosen({name: results[name] for name in systems}) for results in draws)
    # The simpler of systems that are chosen equally often.
    system = max(systems, key=chosen.__getitem__)
    runs = [results[system] for results in draws]
    models = [run.model for run in runs if isinstance(run.model, Stored)]
    save_classifier(
        directory,
        [partial(write_words, model, kind=facts.kind, labels=facts.labels) for model in models],
        kind=facts.kind,
        rows=runs[0].rows.whole,
        held_out=[run.held_out for run in runs],
        facts={
            "task": facts.task,
            "system": system,
            "budget": facts.budgets[-1],
            "seeds": list(facts.seeds if averages else facts.seeds[:1]),
            "systems": systems,
        },
    )
