"""Stage `evaluate`: every system at every label budget, scored by the same code on the same test rows.

The output directory holds

evaluation.json    all numbers (below); the report and the promotion read it
metrics.json       the scores as flat numbers, for `dvc metrics`
learning_curve.csv test scores against labels: system, budget, labels, macro_f1, low, high, accuracy
training_curve.csv dev scores against epochs, mean over seeds at the largest budget: system, epoch, macro_f1
confusion.csv      actual and predicted label of every test row, by the best system (best seed on dev)
calibration.csv    reliability of every system at the largest budget: system, confidence, accuracy, rows

evaluation.json
    schema, task, confidence, labels (names), rows {test}, digests {train, dev, test}, seeds, budgets (-1: all labels)
    systems: [{system, family, start,
        budgets: [{budget, labels (a class), seeds, scores: {name: {mean, low, high, seeds: [...]}},
                   per_class: {label: {precision, recall, f1, rows}}, slices: {name: {rows, accuracy, macro_f1}},
                   confusion: [[...]] (sum over seeds; rows are true labels), calibration: [{low, high, rows, ...}],
                   training: {seconds, tokens_per_second, best_epoch, dev_macro_f1}}],
        training_curve: [{epoch, macro_f1}]}]
    best: {budget: system}, by mean macro F1
    comparisons: [{better, worse, budget, difference: {mean, low, high}, apart}] for the pairs that matter
    benefits: {family: {start: {training: {start, slope, asymptote}, labels: {...}}}}
    label_efficiency: {family: {start: [{budget, score, against: {system: {labels, ratio}}}]}}
    statements: [{kind, holds, budget, text}]
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from components.artifacts import read_manifest, writing
from components.config import EvaluateSettings, Section, Start
from components.errors import ArtifactError
from components.evaluation.compare import (
    Cell,
    best_by_budget,
    comparisons,
    family_benefits,
    label_efficiency,
    make_cells,
    statements,
    training_curve,
)
from components.evaluation.ensembles import ensemble_runs
from components.evaluation.results import BASELINES, Run, TestSplit, read_dev, read_runs, read_test

KIND = "evaluation"
SCHEMA = 1


class EvaluateJob(Section):
    """What the stage is told.

    Attributes:
        examples: output directory of the stage `examples`.
        finetuned: the task's folder of output directories, `<family>-<start>` and `baselines`.
    """

    examples: Path
    finetuned: Path
    output: Path
    families: list[str]
    starts: list[Start]
    settings: EvaluateSettings = EvaluateSettings()


def evaluate(job: EvaluateJob) -> Path:
    """Score all systems of a task and write what the module's text describes.

    Raises:
        ArtifactError: a system is missing, incomplete, or was made from another version of the task's data.
    """
    test = read_test(job.examples)
    task = read_manifest(job.examples, kind="examples").facts["task"]
    names = [BASELINES, *(f"{family}-{start}" for family in job.families for start in job.starts)]
    runs = [run for name in names for run in read_runs(job.finetuned / name, test=test)]
    if not runs:
        raise ArtifactError(f"{job.finetuned}: holds no runs; fine-tune again")
    if job.settings.ensembles:
        dev = {system: split for name in names[1:] for system, split in read_dev(job.finetuned / name).items()}
        runs += ensemble_runs(list(runs), job.settings.ensembles, dev=dev)
    cells = make_cells(runs, test, job.settings)
    content = _content(task, test, runs, cells, job)
    with writing(job.output, kind=KIND) as draft:
        (draft.path / "evaluation.json").write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n")
        (draft.path / "metrics.json").write_text(json.dumps(_flat(content), indent=1, sort_keys=True) + "\n")
        _write_csv(draft.path / "learning_curve.csv", _learning_rows(content))
        _write_csv(draft.path / "training_curve.csv", _training_rows(content))
        _write_csv(draft.path / "calibration.csv", _calibration_rows(content))
        _write_csv(draft.path / "confusion.csv", _confusion_rows(content, runs, test))
        draft.facts |= {"task": task, "examples": test.digests, "runs": len(runs)}
    return job.output


def _content(
    task: str, test: TestSplit, runs: list[Run], cells: dict[tuple[str, int], Cell], job: EvaluateJob
) -> dict[str, Any]:
    systems = {run.system: (run.family, run.start) for run in runs}
    ensembles = job.settings.ensembles
    compared = comparisons(cells, systems, confidence=job.settings.confidence, ensembles=ensembles)
    efficiency = label_efficiency(cells, systems)
    trained = {system: found for system, found in systems.items() if found[0] not in ensembles}
    benefits = family_benefits(runs, cells, trained, confidence=job.settings.confidence)
    return {
        "schema": SCHEMA,
        "task": task,
        "confidence": job.settings.confidence,
        "labels": test.names,
        "rows": {"test": len(test.labels)},
        "digests": test.digests,
        "seeds": sorted({run.seed for run in runs}),
        "budgets": sorted({run.budget for run in runs}, key=lambda budget: (budget < 0, budget)),
        "systems": [
            {
                "system": system,
                "family": family,
                "start": start,
                "budgets": [cell.as_dict(test) for (name, _), cell in cells.items() if name == system],
                "training_curve": training_curve([run for run in runs if run.system == system]),
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
            main = cell["scores"]["macro_f1"]
            flat[f"{name}.macro_f1_half_width"] = round((main["high"] - main["low"]) / 2, 6)
    return flat


def budget_name(budget: int) -> str:
    """`all` for the budget of all labels."""
    return "all" if budget < 0 else str(budget)


def _write_csv(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    rows = list(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _learning_rows(content: dict[str, Any]) -> Iterable[dict[str, Any]]:
    for system in content["systems"]:
        for cell in system["budgets"]:
            main = cell["scores"]["macro_f1"]
            yield {
                "system": system["system"],
                "budget": budget_name(cell["budget"]),
                "labels": round(cell["labels"], 3),
                "macro_f1": round(main["mean"], 6),
                "low": round(main["low"], 6),
                "high": round(main["high"], 6),
                "accuracy": round(cell["scores"]["accuracy"]["mean"], 6),
            }


def _training_rows(content: dict[str, Any]) -> Iterable[dict[str, Any]]:
    for system in content["systems"]:
        for point in system["training_curve"]:
            yield {"system": system["system"], "epoch": point["epoch"], "macro_f1": round(point["macro_f1"], 6)}


def _calibration_rows(content: dict[str, Any]) -> Iterable[dict[str, Any]]:
    for system in content["systems"]:
        for found in system["budgets"][-1]["calibration"]:
            yield {
                "system": system["system"],
                "confidence": round(found["confidence"], 6),
                "accuracy": round(found["accuracy"], 6),
                "rows": found["rows"],
            }


def _confusion_rows(content: dict[str, Any], runs: list[Run], test: TestSplit) -> Iterable[dict[str, Any]]:
    budget = content["budgets"][-1]
    best = content["best"][str(budget)]
    chosen = max(
        (run for run in runs if run.system == best and run.budget == budget),
        key=lambda run: max(point["macro_f1"] for point in run.record["curve"]),
    )
    for label, guess in zip(test.labels, chosen.probabilities.argmax(1), strict=True):
        yield {"actual": test.names[label], "predicted": test.names[guess]}
