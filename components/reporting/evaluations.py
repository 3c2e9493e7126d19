"""Chapters of the report about one task: comparison of systems, benefits of transfer, details of the best system."""

from collections.abc import Mapping
from typing import Any

from components.data.scoring import title
from components.data.tasks.budgets import budget_name
from components.reporting import figures
from components.reporting.advice import best_cells
from components.reporting.figures import Line
from components.reporting.findings import Chapter, Drawing, Table, cell, interval_of
from components.settings.section import BASELINE

#: Maximum number of rows in the table of slices.
SLICES = 20
#: Count of runs in evaluation.json -> sentence.
RUNS = {
    "left_out": "Runs whose encoder is not fine-tuned, because selection preferred it as it was",
    "label_names": "Runs that also learned from the names of the labels",
}


def scores(task: str, evaluation: dict[str, Any], *, champion: str = "") -> Chapter:
    """Scores of all systems by label budget, their differences and the benefits of transfer: the first figure shows
    the scores, the first table lists them and marks `champion`, the system of the current model."""
    systems, metric = evaluation["systems"], title(evaluation["main"])
    largest = labels_at(evaluation["budgets"][-1], evaluation["unit"])
    chapter = Chapter(f"{task}: comparison of the systems", figures=[comparison(evaluation)])
    chapter.text = [of["text"] for of in evaluation["statements"] if of["kind"] in ("missing", "few")]
    for count, text in RUNS.items():
        counted = [
            f"{system['system']} at {labels_at(each['budget'], evaluation['unit'])}: {number} of {len(each['seeds'])}"
            for system in systems
            for each in system["budgets"]
            if (number := each.get("training", {}).get(count, 0))
        ]
        chapter.text += [f"{text}: {'; '.join(counted)}."] if counted else []
    if differences := _differences(evaluation):
        chapter.text.append(
            "In the tables of differences, row minus column, paired by seed and test row, * marks those whose "
            f"{evaluation['confidence']:.0%} interval, corrected for the number of pairs in the table, excludes 0."
        )
    curves = {of["system"]: Line.of(of["training_curve"], "epoch", evaluation["main"]) for of in systems}
    if training := {name: line for name, line in curves.items() if len(line.x) > 1}:
        chosen = "by cross-validation" if evaluation["selection"]["by"] == "budget" else "on dev"
        svg = figures.lines(
            training, x_label="epochs of fine-tuning", y_label=f"{metric}, {chosen}", among=list(curves)
        )
        caption = (
            f"{metric[0].upper()}{metric[1:]} {chosen} during fine-tuning with {largest}; at epoch 0 only the head is "
            "trained."
        )
        chapter.figures.append(Drawing(svg, caption))
    others = [name for name in evaluation["scores"] if name != evaluation["main"]]
    benefits = [{key: value for key, value in row.items() if key != "higher"} for row in evaluation["benefits"]]
    metrics = [
        {"system": system["system"]} | {title(name): system["budgets"][-1]["scores"][name] for name in others}
        for system in (systems if others else ())
    ]
    further = (
        Table.of(benefits, "Benefits of transfer"),
        _ways(evaluation),
        _languages(evaluation),
        Table.of(metrics, f"Other metrics at {largest}"),
    )
    chapter.tables = [
        _by_system(evaluation, champion),
        *differences,
        *(table for table in further if table and table.rows),
    ]
    return chapter


def labels_at(budget: int, unit: str) -> str:
    """A label budget as text: "20 labels a class", "all labels"."""
    return "all labels" if budget < 0 else f"{budget} {unit}"


def comparison(evaluation: Mapping[str, Any]) -> Drawing:
    """The primary metric of the systems on test against the number of labels, baselines dashed; with one label budget
    side by side."""
    unit, main, curves = evaluation["unit"], evaluation["main"], dict[str, Line]()
    for system in evaluation["systems"]:
        points = [{"labels": each["labels"]} | each["scores"][main] for each in system["budgets"]]
        curves[system["system"]] = Line.of(points, "labels", dashed=system["family"] == BASELINE)
    if len(evaluation["budgets"]) > 1:
        svg = figures.lines(curves, x_label=unit, y_label=title(main), logarithmic=True, ticks=True)
        return Drawing(svg, "Score against number of labels; the bands are confidence intervals.")
    entries = {of["system"]: interval_of(of["budgets"][0]["scores"][main]) for of in evaluation["systems"]}
    svg = figures.ranges(entries, x_label=f"{title(main)}, {labels_at(evaluation['budgets'][0], unit)}")
    return Drawing(svg, "Scores of the systems with confidence intervals.")


def differences_of(evaluation: Mapping[str, Any], budget: int) -> dict[tuple[str, str], dict[str, Any]]:
    """(system, other) -> the paired difference at a label budget, {mean, low, high, clear}, in both orders."""
    pairs = dict[tuple[str, str], dict[str, Any]]()
    for name, others in evaluation.get("differences", {}).get(str(budget), {}).items():
        for other, of in others.items():
            turned = {"mean": -of["mean"], "low": -of["high"], "high": -of["low"]}
            pairs |= {(name, other): of, (other, name): of | turned}
    return pairs


def _differences(evaluation: dict[str, Any]) -> list[Table]:
    """Matrices of the paired differences of the systems, row minus column, of each label budget."""
    tables = []
    for budget in evaluation["budgets"]:
        pairs = differences_of(evaluation, budget)
        cells = {pair: f"{of['mean']:+.3f}{'*' * of['clear']}" for pair, of in pairs.items()}
        names = [of["system"] for of in evaluation["systems"] if any(of["system"] == name for name, _ in pairs)]
        if names:
            rows = [{"system": name} | {other: cells.get((name, other)) for other in names} for name in names]
            labels = labels_at(budget, evaluation["unit"])
            tables.append(Table.of(rows, f"Differences of {title(evaluation['main'])}, {labels}"))
    return tables


def _by_system(evaluation: dict[str, Any], champion: str) -> Table:
    main, unit, selection = evaluation["main"], evaluation["unit"], evaluation["selection"]
    counted = unit.removeprefix("labelled ").removesuffix(" a class")
    columns = {budget: f"{budget_name(budget)} {counted}" for budget in evaluation["budgets"]}
    rows = []
    for system in evaluation["systems"]:
        cells = {each["budget"]: cell(each["scores"][main]) for each in system["budgets"]}
        name = f"{system['system']} (current model)" if system["system"] == champion else system["system"]
        # Ensembles are not stored.
        stored = system.get("artifact") or {"scores": {main: None}, "labels": None}
        registered = {"registered": cell(stored["scores"][main]), "its labels": cell(stored["labels"])}
        rows.append({"system": name} | {column: cells[of] for of, column in columns.items()} | registered)
    how = f"choices on {selection['rows']:,} labels of dev, in addition to each budget"
    if selection["by"] == "budget":
        how = f"choices by {selection['folds']}-fold cross-validation within each label budget, without other labels"
    metric = title(main)
    about = (
        f"{metric[0].upper()}{metric[1:]} by {unit} ({evaluation['confidence']:.0%} intervals, mean over "
        f"{len(evaluation['seeds'])} seeds, {evaluation['rows']['test']:,} test rows; {how})"
    )
    counts = {row["its labels"] for row in rows} - {""}
    # With all labels, a seed may change nothing: the registered model is that of the row.
    last, without = columns[evaluation["budgets"][-1]], {"its labels"}
    if all(row["registered"] in ("", row[last]) for row in rows):
        without.add("registered")
    else:
        about += (
            ". Registered: the average of all seeds of the largest budget, with the rows that any of them has learned "
            "from"
        )
        about, without = (f"{about} ({counts.pop()})", without) if len(counts) == 1 else (about, set())
    rows = [{name: of for name, of in row.items() if name not in without} for row in rows]
    return Table.of(rows, about)


def _languages(evaluation: dict[str, Any]) -> Table | None:
    learned, main = evaluation.get("learned_languages"), evaluation["main"]
    if not learned:
        return None
    cells = {system["system"]: system["budgets"][-1]["slices"] for system in evaluation["systems"]}
    rows = {language: entry["rows"] for slices in cells.values() for language, entry in slices.items()}
    # The learned languages first, the others by their number of rows.
    languages = sorted(rows, key=lambda name: (name not in learned, -rows[name], name))
    columns = {name: f"{name} ({'learned' if name in learned else 'transfer'})" for name in languages}
    tested = ", ".join(f"{rows[name]:.0f} rows of {name}" for name in languages)
    return Table.of(
        [
            {"system": system} | {columns[name]: slices[name][main] if name in slices else None for name in languages}
            for system, slices in cells.items()
        ],
        f"{title(main)} by language at {labels_at(evaluation['budgets'][-1], evaluation['unit'])}: "
        f"trained on {', '.join(learned)}, tested on {tested}",
    )


def _ways(evaluation: dict[str, Any]) -> Table:
    rows = [
        {
            "system": system["system"],
            evaluation["unit"]: budget_name(each["budget"]),
            "way to learn": of["way"] + (f" ({of['share']:.0%} of the steps)" if 0 < of["share"] < 1 else ""),
            f"{title(evaluation['main'])} in selection": "left out" if of["score"] is None else of["score"],
            "tried": of["tried"],
            "kept": of["kept"],
            "seconds": of["seconds"],
        }
        for system in evaluation["systems"]
        for each in system["budgets"]
        for of in each.get("ways", [])
    ]
    return Table.of(rows, "Ways to learn that were tried: score of selection, numbers of seeds", {"seconds": ".1f"})


def details(task: str, evaluation: dict[str, Any]) -> Chapter:
    """Classes, slices, confusion and calibration of the best system at the largest budget."""
    budget = evaluation["budgets"][-1]
    best = best_cells(evaluation)[-1]
    chapter = Chapter(
        f"{task}: {evaluation['best'][str(budget)]} at {labels_at(budget, evaluation['unit'])}, the best system"
    )
    if best["confusion"]:
        svg = figures.confusion(best["confusion"], evaluation["labels"])
        chapter.figures.append(Drawing(svg, "Confusion matrix, sum over all seeds."))
    systems = {of["system"]: of["budgets"][-1]["calibration"] for of in evaluation["systems"]}
    calibrated = {name: Line.of(points, "confidence", "accuracy") for name, points in systems.items() if points}
    if calibrated:
        calibrated["perfect"] = Line(x=[0, 1], y=[0, 1], dashed=True)
        svg = figures.lines(calibrated, x_label="confidence", y_label="accuracy", among=list(systems))
        chapter.figures.append(Drawing(svg, "Calibration at the largest label budget."))
    # Classes without rows in test have no scores; they come last.
    classes = sorted(best["per_class"].items(), key=lambda entry: (not entry[1]["rows"], entry[1]["f1"] or 0))
    rows = [
        {"class": label}
        | {{"f1": "F1"}.get(key, key.replace("_", " ")): value for key, value in entry.items() if key != "rows"}
        | {"rows": f"{entry['rows']:.0f}"}
        for label, entry in classes
    ]
    slices = sorted(best["slices"].items(), key=lambda entry: -entry[1]["rows"])[:SLICES]
    shown = [
        {"slice": part, "rows": f"{entry['rows']:.0f}"}
        | {title(score): entry[score] for score in evaluation["scores"][:2]}
        for part, entry in slices
    ]
    tables = [
        Table.of(rows, "Classes, in ascending order of F1"),
        Table.of(shown, f"Largest {len(slices)} of {len(best['slices'])} slices"),
    ]
    chapter.tables += [table for table in tables if table.rows]
    return chapter
