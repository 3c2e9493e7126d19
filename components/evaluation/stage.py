"""Stage `evaluate`: every system at every label budget, scored by the same code on the same test rows.

What is scored, and which score decides (`main` below), is a matter of the task's kind (`components.scoring`). The
output directory holds

evaluation.json    all numbers (below); the report, the studies and the promotion read it
metrics.json       the scores as flat numbers, for `dvc metrics`
learning_curve.csv test scores against labels: system, budget, labels, score (the deciding one), low, high, and the
                   second score by its name
training_curve.csv dev scores against epochs, mean over seeds at the largest budget: system, epoch, the deciding score
confusion.csv      actual and predicted label of every test row, by the best system (best seed on dev); its header
                   alone where a row has not exactly one label
calibration.csv    reliability of every system at the largest budget: system, confidence, accuracy, rows; likewise

evaluation.json
    schema, task, kind, confidence, labels (names), rows {test}, digests {train, dev, test}, seeds, budgets (-1: all)
    main: the deciding score; scores: the names of all, that one first; titles: name -> the score as text shows it
    unit: what budgets count
    systems: [{system, family, start,
        budgets: [{budget, labels (in `unit`), seeds, scores: {name: {mean, low, high, seeds: [...]}},
                   per_class: {label: {f1, rows, precision, recall ...}}, slices: {name: {rows, every score}},
                   confusion: [[...]] (sum over seeds; rows are true labels), calibration: [{low, high, rows, ...}],
                   training: {seconds, tokens_per_second, best_epoch, dev_<main>}}],
        training_curve: [{epoch, <main>}]}]; per_class, confusion and calibration are empty where the kind has none
    best: {budget: system}, by the mean of the deciding score
    comparisons: [{better, worse, budget, difference: {mean, low, high}, apart}] for the pairs that matter
    benefits: {family: {start: {training: {start, slope, asymptote}, labels: {...}}}}; labels where there are several
    label_efficiency: {family: {start: [{budget, score, against: {system: {labels, ratio}}}]}}
    worth: labels that scratch needs for the same score, with intervals (`components.evaluation.worth`)
    headline: the same in a sentence, of the system that does best on dev with the fewest labels
    transfer: scratch, pretrained and adapted by class and slice (`components.evaluation.transfer`)
    statements: [{kind, holds, budget, text}]
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from components.artifacts import writing
from components.errors import ArtifactError
from components.evaluation.aggregates import Cell, make_cells, unit
from components.evaluation.compare import (
    best_by_budget,
    comparisons,
    family_benefits,
    label_efficiency,
    statements,
    training_curve,
)
from components.evaluation.ensembles import ensemble_runs
from components.evaluation.results import BASELINES, Run, TestSplit, read_dev, read_runs, read_test
from components.evaluation.transfer import transfer
from components.evaluation.worth import headline, worth
from components.scoring import Scoring, title
from components.settings.evaluate import EvaluateSettings
from components.settings.section import Section
from components.tasks.examples import read_split
from components.tasks.kinds import scoring_for
from components.tasks.results import best_score

KIND = "evaluation"
SCHEMA = 1


class EvaluateJob(Section):
    """What the stage is told.

    Attributes:
        examples: output directory of the stage `examples`.
        finetuned: the task's folder of output directories, `<family>-<start>` and `baselines`.
        starts: of this task: those of `run.starts`, and what `adapt_task` and `together` add.
    """

    examples: Path
    finetuned: Path
    output: Path
    families: list[str]
    starts: list[str]
    settings: EvaluateSettings = EvaluateSettings()


def evaluate(job: EvaluateJob) -> Path:
    """Score all systems of a task and write what the module's text describes.

    Raises:
        ArtifactError: a system is missing, incomplete, or was made from another version of the task's data.
    """
    test = read_test(job.examples)
    facts = test.facts
    scoring = scoring_for(facts.kind, facts.labels, bins=job.settings.calibration_bins).fitting(test.rows.targets)
    names = [BASELINES, *(f"{family}-{start}" for family in job.families for start in job.starts)]
    runs = [run for name in names for run in read_runs(job.finetuned / name, test=test)]
    if not runs:
        raise ArtifactError(f"{job.finetuned}: holds no runs; fine-tune again")
    if job.settings.ensembles and scoring.averages:
        dev = {system: split for name in names[1:] for system, split in read_dev(job.finetuned / name).items()}
        rows = read_split(job.examples, "dev")
        runs += ensemble_runs(list(runs), job.settings.ensembles, dev=dev, rows=rows, scoring=scoring)
    elif job.settings.ensembles:
        print(f"{facts.task}: no ensembles, for answers of the kind {facts.kind} have no mean")
    cells = make_cells(runs, test, job.settings, scoring=scoring)
    content = _content(test, runs, cells, job, scoring)
    with writing(job.output, kind=KIND) as draft:
        (draft.path / "evaluation.json").write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n")
        (draft.path / "metrics.json").write_text(json.dumps(_flat(content), indent=1, sort_keys=True) + "\n")
        learning = ["system", "budget", "labels", "score", "low", "high", *scoring.names[1:2]]
        _write_csv(draft.path / "learning_curve.csv", learning, _learning_rows(content))
        _write_csv(draft.path / "training_curve.csv", ["system", "epoch", scoring.main], _training_rows(content))
        calibrated = ["system", "confidence", "accuracy", "rows"]
        _write_csv(draft.path / "calibration.csv", calibrated, _calibration_rows(content))
        confusion = _confusion_rows(content, runs, test, scoring)
        _write_csv(draft.path / "confusion.csv", ["actual", "predicted"], confusion)
        draft.facts |= {"task": facts.task, "examples": facts.digests, "runs": len(runs)}
    return job.output


def _content(
    test: TestSplit, runs: list[Run], cells: dict[tuple[str, int], Cell], job: EvaluateJob, scoring: Scoring
) -> dict[str, Any]:
    systems = {run.system: (run.family, run.start) for run in runs}
    ensembles, confidence = job.settings.ensembles, job.settings.confidence
    compared = comparisons(cells, systems, confidence=confidence, ensembles=ensembles)
    efficiency = label_efficiency(cells, systems)
    trained = {system: found for system, found in systems.items() if found[0] not in ensembles}
    benefits = family_benefits(runs, cells, trained, confidence=confidence)
    labels_worth = worth(cells, systems, confidence=confidence)
    return {
        "schema": SCHEMA,
        "task": test.facts.task,
        "kind": test.facts.kind,
        "confidence": confidence,
        "labels": test.facts.labels,
        "rows": {"test": len(test.rows)},
        "digests": test.facts.digests,
        "main": scoring.main,
        "scores": scoring.names,
        "titles": {name: title(name) for name in scoring.names},
        "unit": unit(scoring),
        "seeds": sorted({run.seed for run in runs}),
        "budgets": sorted({run.budget for run in runs}, key=lambda budget: (budget < 0, budget)),
        "systems": [
            {
                "system": system,
                "family": family,
                "start": start,
                "budgets": [cell.as_dict(test) for (name, _), cell in cells.items() if name == system],
                "training_curve": training_curve([run for run in runs if run.system == system], main=scoring.main),
            }
            for system, (family, start) in systems.items()
        ],
        "best": {str(budget): system for budget, system in best_by_budget(cells).items()},
        "comparisons": [comparison.as_dict() for comparison in compared],
        "benefits": {
            family: {
                start: {
                    axis: {name: benefit.as_dict() for name, benefit in found.items()} for axis, found in axes.items()
                }
                for start, axes in starts.items()
            }
            for family, starts in benefits.items()
        },
        "label_efficiency": efficiency,
        "worth": labels_worth,
        "headline": headline(cells, labels_worth),
        "transfer": transfer(cells, systems, test, job.settings),
        "statements": statements(cells, systems, compared, ensembles=ensembles),
    }


def _flat(content: dict[str, Any]) -> dict[str, float]:
    """`<system>.<budget>.<score>` for every mean, and the width of the main score's interval."""
    flat = {}
    for system in content["systems"]:
        for cell in system["budgets"]:
            name = f"{system['system']}.{budget_name(cell['budget'])}"
            for score, found in cell["scores"].items():
                flat[f"{name}.{score}"] = round(found["mean"], 6)
            main = cell["scores"][content["main"]]
            flat[f"{name}.{content['main']}_half_width"] = round((main["high"] - main["low"]) / 2, 6)
    return flat


def budget_name(budget: int) -> str:
    """`all` for the budget of all labels."""
    return "all" if budget < 0 else str(budget)


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _learning_rows(content: dict[str, Any]) -> Iterable[dict[str, Any]]:
    for system in content["systems"]:
        for cell in system["budgets"]:
            main = cell["scores"][content["main"]]
            yield {
                "system": system["system"],
                "budget": budget_name(cell["budget"]),
                "labels": round(cell["labels"], 3),
                "score": round(main["mean"], 6),
                "low": round(main["low"], 6),
                "high": round(main["high"], 6),
                **{name: round(cell["scores"][name]["mean"], 6) for name in content["scores"][1:2]},
            }


def _training_rows(content: dict[str, Any]) -> Iterable[dict[str, Any]]:
    main = content["main"]
    for system in content["systems"]:
        for point in system["training_curve"]:
            yield {"system": system["system"], "epoch": point["epoch"], main: round(point[main], 6)}


def _calibration_rows(content: dict[str, Any]) -> Iterable[dict[str, Any]]:
    for system in content["systems"]:
        for found in system["budgets"][-1]["calibration"]:
            yield {
                "system": system["system"],
                "confidence": round(found["confidence"], 6),
                "accuracy": round(found["accuracy"], 6),
                "rows": found["rows"],
            }


def _confusion_rows(
    content: dict[str, Any], runs: list[Run], test: TestSplit, scoring: Scoring
) -> Iterable[dict[str, Any]]:
    budget, names = content["budgets"][-1], content["labels"]
    best = content["best"][str(budget)]
    chosen = max(
        (run for run in runs if run.system == best and run.budget == budget),
        key=lambda run: best_score(run.record),
    )
    if scoring.confusion(test.rows.targets, chosen.answers) is None:
        return
    for target, answer in zip(test.rows.targets, chosen.answers, strict=True):
        if target[0] >= 0:
            yield {"actual": names[int(target[0])], "predicted": names[int(answer.argmax())]}
