"""Stage `evaluate`: every system at every label budget, scored by the same code on the same test rows.

The kind of the task determines the metrics and the primary metric, `main` below (`components.data.scoring`). Files of
the output directory:

evaluation.json    all results (schema below), read by the report, the studies and the promotion
metrics.json       the metrics as a flat mapping, for `dvc metrics`
learning_curve.csv test metric against labels: system, budget, labels, score (primary metric), low, high, second metric

evaluation.json
    schema, task, kind, confidence, labels (names), rows {test}, digests {train, dev, test}, seeds, budgets (-1: all)
    selection: {by: budget or dev, folds, rows (dev: labelled rows that choices have used beside the budgets)}
    main: primary metric; scores: names of all metrics, the primary first; titles: name -> title for text
    unit: unit of the budgets
    systems: [{system, family, start,
        budgets: [{budget, labels (in `unit`), seeds, scores: {name: {mean, low, high, seeds: [...]}},
                   per_class: {label: {f1, rows, precision, recall ...}} (null for a class without rows in test),
                   slices: {name: {rows, every score}},
                   confusion: [[...]] (sum over seeds; rows are true labels), calibration: [{low, high, rows, ...}],
                   training: {seconds: {mean, low, high} (a run), tokens_per_second, best_epoch, selection_<main>,
                   left_out (number of seeds whose encoder stays as it was, because training it did not help)},
                   ways (with method auto): [{way, score (of selection), tried, kept (numbers of seeds), share (of its
                   steps), seconds}]}],
        training_curve: [{epoch, <main>}],
        artifact: {budget, seeds, labels (rows that any seed has learned from), selection, scores: {name: {mean, low,
            high}}}}]: the stored model, which ensembles have not. per_class,
        confusion and calibration are empty if the kind has none
    best: {budget: system}, by the mean of the primary metric
    challenger: {system, against, gain: {mean, low, high}, text}: the stored model with the best score of selection
        against the best baseline; null without a baseline or a language model
    noise: {budget: {std, freedom, pair_std, pair_freedom, systems, seeds}}: training noise of the primary metric,
        pooled over the systems of a budget (`components.data.scoring.intervals`)
    differences: paired differences of all systems at each budget (`compare.differences`)
    benefits: start, slope and asymptote of transferred systems and of scratch (rows of `compare.benefits`)
    label_efficiency: number of labels with which others reach the same score (rows of `compare.label_efficiency`)
    mistakes: the most certain wrong answers at the largest budget, of the best system's best run: {system, seed, wrong
        (number), rows: [{row, fields, slice, true, predicted, size}]} (`components.data.tasks.mistakes`)
    headline: a sentence about `label_efficiency` at the smallest budget, for the system that is best on dev
    learned_languages: languages of train, if the slices are languages; otherwise empty
    transfer: scratch, pretrained and adapted by class and slice (`evaluation.compare`)
    statements: [{kind, text}]: classes without rows in test (`missing`), and with few (`few`)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas

from components.core.artifacts import read_manifest, write_json, writing
from components.core.errors import ArtifactError
from components.data.scoring import Scoring, title
from components.data.scoring.base import Vectors
from components.data.scoring.intervals import CONFIDENCE
from components.data.tasks.budgets import budget_name, sample_rows
from components.data.tasks.data import Split, mean_answers
from components.data.tasks.examples import read_facts, read_split, strata_of
from components.data.tasks.kinds import scoring_for
from components.data.tasks.mistakes import mistakes
from components.data.tasks.results import Average, best_score, read_answers, read_averages
from components.evaluation.aggregates import (
    SELECTION,
    Cell,
    Json,
    Run,
    TestSplit,
    budgets_of,
    curve_of,
    make_cells,
    read_runs,
    rows_of_selection,
    unit,
)
from components.evaluation.compare import (
    benefits,
    best_by_budget,
    differences,
    headline,
    label_efficiency,
    training_curve,
    transfer,
)
from components.settings.evaluate import EvaluateSettings
from components.settings.section import BASELINE, BASELINES, Section

KIND = "evaluation"
SCHEMA = 2
#: Number of wrong answers that are kept.
MISTAKES = 10
#: Rows of test of a class below which a statement names it.
FEW = 5


class EvaluateJob(Section):
    """Inputs of the stage.

    Attributes:
        finetuned: folder of the task with the output directories `<family>-<start>` and `baselines`.
        systems: names of the systems with a language model.
    """

    examples: Path
    finetuned: Path
    output: Path
    systems: list[str]
    settings: EvaluateSettings = EvaluateSettings()


def _runs(job: EvaluateJob, folders: Sequence[Path], test: TestSplit, scoring: Scoring) -> list[Run]:
    """The runs of all systems, and of the ensembles."""
    facts, ensembles = test.facts, job.settings.ensembles
    runs = [run for folder in folders for run in read_runs(folder, test=test)]
    if not runs:
        raise ArtifactError(f"{job.finetuned}: contains no runs; run the stage finetune again")
    if ensembles and not scoring.averages:
        print(f"{facts.task}: no ensembles, because predictions of the kind {facts.kind} cannot be averaged")
    elif ensembles:
        every = [read_answers(folder, SELECTION[facts.selection]) for folder in folders]
        chosen = {run: answers for of_folder in every for run, answers in of_folder.items()}
        rows = rows_of_selection(job.examples, facts)
        runs += ensemble_runs(list(runs), ensembles, chosen=chosen, rows=rows, scoring=scoring)
    return runs


def evaluate(job: EvaluateJob) -> Path:
    """Score all systems of a task and write the output directory described above."""
    test = TestSplit(read_facts(job.examples), read_split(job.examples, "test"))
    facts, scoring = test.facts, scoring_for(test.facts.kind, test.facts.labels).fitting(test.rows.targets)
    folders = [job.finetuned / name for name in (BASELINES, *job.systems)]
    runs = _runs(job, folders, test, scoring)
    named = {run.system: (run.family, run.start) for run in runs}
    cells = make_cells(runs, test, job.settings, scoring=scoring)
    train, averages = read_split(job.examples, "train"), dict[str, Average]()
    for folder in folders:
        averages |= read_averages(folder, averages=scoring.averages)
    artifacts = artifacts_of(averages, cells, test, train, job.settings, scoring=scoring)
    efficiency, best = label_efficiency(cells, named), best_by_budget(cells)
    *_, (budget, top) = best.items()
    dev = len(read_split(job.examples, "dev")) if facts.selection == "dev" else 0
    content: Json = {
        "schema": SCHEMA,
        "task": facts.task,
        "kind": facts.kind,
        "confidence": CONFIDENCE,
        **{key: getattr(facts, key) for key in ("labels", "digests", "learned_languages")},
        "main": scoring.main,
        "scores": scoring.names,
        "titles": {name: title(name) for name in scoring.names},
        "unit": unit(scoring),
        "seeds": sorted({run.seed for run in runs}),
        "budgets": budgets_of(cells),
        "systems": [
            {
                "system": system,
                "family": family,
                "start": start,
                "budgets": [cell.as_dict(test) for (name, _), cell in cells.items() if name == system],
                "training_curve": training_curve(curve_of(cells, system)[-1]),
                **({"artifact": artifacts[system][1]} if system in artifacts else {}),
            }
            for system, (family, start) in named.items()
        ],
        "best": {str(budget): system for budget, system in best.items()},
        "challenger": against_baseline(artifacts),
        "noise": {str(cell.budget): of.as_dict() for cell in cells.values() if (of := cell.scores.noise) is not None},
        "differences": differences(cells),
        "benefits": benefits(cells, {name: of for name, of in named.items() if of[0] not in job.settings.ensembles}),
        "label_efficiency": efficiency,
        "mistakes": _mistakes(cells[top, budget], test),
        "headline": headline(cells, named, efficiency),
        "transfer": transfer(cells, named, test),
        "statements": _missing(cells[top, budget]),
        "rows": {"train": len(train), "test": len(test.rows)},
        "selection": {"by": facts.selection, "folds": facts.folds, "rows": dev},
        "cut": {folder.name: cut for folder in folders if (cut := read_manifest(folder).facts.get("cut"))},
    }
    with writing(job.output, kind=KIND) as draft:
        write_json(draft.path / "evaluation.json", content, sort_keys=False, ensure_ascii=False)
        metrics, curve = _tables(content)
        write_json(draft.path / "metrics.json", metrics)
        pandas.DataFrame(curve).to_csv(draft.path / "learning_curve.csv", index=False, lineterminator="\n")
        draft.facts |= {"task": facts.task, "examples": facts.digests, "runs": len(runs)}
    return job.output


def _missing(cell: Cell) -> list[Json]:
    """Statements of the kinds `missing` and `few`, which name the classes without rows in test, and those with fewer
    than `FEW`, with the score without them. Such a class enters the score when rows are added; the score without it
    compares with that of a run before."""
    scoring = cell.scoring
    classes = scoring.classes(cell.sums[0])
    texts, names = {}, [name for name, counted in classes.items() if not counted["rows"]]
    if names:
        texts["missing"] = (
            f"Without rows in test, and not in macro F1: {', '.join(names)} ({len(names)} of {len(classes)} classes)."
        )
    rows = {name: counted["rows"] or 0 for name, counted in classes.items()}
    few = {name: count for name, count in rows.items() if 0 < count < FEW}
    if few and len(few) + len(names) < len(classes) and scoring.main == "macro_f1":
        of_seeds = map(scoring.classes, cell.sums)
        others = [counted["f1"] or 0 for each in of_seeds for name, counted in each.items() if rows[name] >= FEW]
        listed = ", ".join(f"{name} ({count:.0f})" for name, count in few.items())
        texts["few"] = (
            f"Few rows of test decide the score of {listed}: without {'it' if len(few) == 1 else 'them'}, macro F1 of "
            f"{cell.system} is {sum(others) / len(others):.3f}."
        )
    return [{"kind": kind, "text": text} for kind, text in texts.items()]


def _mistakes(cell: Cell, test: TestSplit) -> Json:
    """The most certain wrong answers of the best run."""
    chosen = max(cell.runs, key=lambda run: best_score(run.record))
    wrong = mistakes(test.rows, chosen.answers, scoring_for(test.facts.kind, test.facts.labels))
    rows = [mistake.as_dict() for mistake in wrong[:MISTAKES]]
    return {"system": chosen.system, "seed": chosen.seed, "wrong": len(wrong), "rows": rows}


def _tables(content: Json) -> tuple[dict[str, float], list[Json]]:
    """The metrics as a flat mapping, and the rows of the label curve."""
    flat, rows = dict[str, float](), list[Json]()
    main, second = content["main"], content["scores"][1:2]
    for system, cell in ((of["system"], cell) for of in content["systems"] for cell in of["budgets"]):
        budget, scores = budget_name(cell["budget"]), cell["scores"]
        means = {score: round(of["mean"], 6) for score, of in scores.items()}
        flat |= {f"{system}.{budget}.{score}": mean for score, mean in means.items()}
        bounds = {key: round(scores[main][key], 6) for key in ("low", "high")}
        flat[f"{system}.{budget}.{main}_half_width"] = round((scores[main]["high"] - scores[main]["low"]) / 2, 6)
        row = {"system": system, "budget": budget, "labels": round(cell["labels"], 3), "score": means[main]}
        rows.append(row | bounds | {name: means[name] for name in second})
    return flat, rows


#: The stored model of a system: as a cell, and as in evaluation.json.
Artifact = tuple[Cell, Json]


def artifacts_of(
    averages: Mapping[str, Average],
    cells: Mapping[tuple[str, int], Cell],
    test: TestSplit,
    train: Split,
    settings: EvaluateSettings,
    *,
    scoring: Scoring,
) -> dict[str, Artifact]:
    """System -> its stored model. `averages`: system -> what the stored model answers to the test rows."""
    strata = strata_of(train, test.facts.kind)
    first = {system: cells[system, average.budget].runs[0] for system, average in averages.items()}
    runs = [replace(run, seed=0, answers=averages[system].answers) for system, run in first.items()]
    made = make_cells(runs, test, settings, scoring=scoring)
    artifacts = {}
    for (system, budget), cell in made.items():
        seeds = averages[system].seeds
        content = {
            "budget": budget,
            "seeds": list(seeds),
            "labels": len(np.unique(np.concatenate([sample_rows(strata, budget, seed=seed)[0] for seed in seeds]))),
            "selection": cells[system, budget].selection,
            "scores": {name: interval.as_dict() for name, interval in cell.intervals.items()},
        }
        artifacts[system] = cell, content
    return artifacts


def against_baseline(artifacts: Mapping[str, Artifact]) -> Json | None:
    """The model with the best score of selection against the baseline with the best score on test, which is what the
    promotion compares without a champion; None without such a pair.

    Returns:
        {system, against, gain: {mean, low, high}, text}.
    """
    learned, fixed = (
        [of for of in artifacts.values() if (of[0].runs[0].family == BASELINE) is fixed] for fixed in (False, True)
    )
    if not learned or not fixed:
        return None
    ours, _ = max(learned, key=lambda of: of[1]["selection"])
    theirs = max((cell for cell, _ in fixed), key=lambda cell: cell.main.mean)
    gain = ours.scores.minus(theirs.scores).interval()
    verdict = "better" if gain.low > 0 else "worse" if gain.high <= 0 else "not shown to be better"
    text = (
        f"Of the models that can be registered, {ours.system} has {title(ours.scoring.main)} {ours.main.mean:.4f} "
        f"against {theirs.main.mean:.4f} of {theirs.system}: gain {gain.mean:+.4f}, between {gain.low:+.4f} and "
        f"{gain.high:+.4f}; it is {verdict}."
    )
    return {"system": ours.system, "against": theirs.system, "gain": gain.as_dict(), "text": text}


#: Start of baselines in results.
NO_START = "none"


def ensemble_runs(
    runs: Sequence[Run],
    ensembles: Mapping[str, Sequence[str]],
    *,
    chosen: Mapping[tuple[str, int, int], Vectors],
    rows: Callable[[int, int], Split],
    scoring: Scoring,
) -> Iterator[Run]:
    """The runs of every ensemble, with the mean of its members' predictions and the sum of their costs: one for each
    start, budget and seed that all members have. `ensembles`: name -> members: families, and baselines, which suit each
    start."""
    grouped = defaultdict[tuple[str, int, int], dict[str, Run]](dict)
    for run in runs:
        # The names by which an ensemble names its members.
        grouped[run.start, run.budget, run.seed][run.system if run.family == BASELINE else run.family] = run
    for (name, members), ((start, budget, seed), alone) in product(ensembles.items(), list(grouped.items())):
        together = grouped.get((NO_START, budget, seed), {}) | alone
        if start != NO_START and together.keys() >= {*members}:
            held, group = rows(budget, seed), [together[member] for member in dict.fromkeys(members)]
            predicted = mean_answers([chosen[run.system, run.budget, run.seed] for run in group])
            records = [run.record for run in group]
            kept = {key: value for key, value in records[0].items() if key in ("rows", "folds")}
            point = {"step": 0, "epoch": 0.0, **scoring.score(held.fields, held.targets, predicted)}
            record = kept | {"score": scoring.main, "curve": [point], "best_step": 0, "best_epoch": 0.0}
            record |= {key: sum(of[key] for of in records) for key in ("tokens", "seconds")}
            answers = mean_answers([run.answers for run in group])
            yield Run(f"{name}-{start}", name, start, budget, seed, record, answers)
