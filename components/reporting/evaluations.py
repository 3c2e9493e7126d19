"""Chapters of the report about one task: comparison of systems, benefits of transfer, details of the best system."""

from collections.abc import Mapping
from typing import Any

from components.data.tasks.budgets import budget_name
from components.reporting import figures
from components.reporting.figures import Line
from components.reporting.findings import Chapter, Drawing, Table

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
    budgets, main, unit = evaluation["budgets"], evaluation["main"], evaluation["unit"]
    title = evaluation["titles"][main]
    chapter = Chapter(f"{task}: comparison of the systems")
    chapter.text = [of["text"] for of in evaluation["statements"] if of["kind"] in ("missing", "few")]
    for count, text in RUNS.items():
        if runs := _runs(evaluation, count):
            chapter.text.append(f"{text}: {runs}.")
    if differences := _differences(evaluation):
        chapter.text.append(
            "In the tables of differences, row minus column, paired by seed and test row, * marks those whose "
            f"{evaluation['confidence']:.0%} interval, corrected for the number of pairs in the table, excludes 0."
        )
    chapter.tables += [_by_system(evaluation, champion), *differences]
    curves = label_curves(evaluation)
    chapter.figures.append(_comparison(evaluation, curves))
    if training := training_curves(evaluation):
        chosen = "by cross-validation" if evaluation["selection"]["by"] == "budget" else "on dev"
        svg = figures.lines(training, x_label="epochs of fine-tuning", y_label=f"{title}, {chosen}", among=list(curves))
        caption = (
            f"{title[0].upper()}{title[1:]} {chosen} during fine-tuning with {labels_at(budgets[-1], unit)}; at "
            "epoch 0 only the head is trained."
        )
        chapter.figures.append(Drawing(svg, caption))
    further = [_benefits(evaluation), _ways(evaluation), _languages(evaluation), _other_metrics(evaluation)]
    chapter.tables += [table for table in further if table is not None]
    return chapter


def labels_at(budget: int, unit: str) -> str:
    """A label budget as text: "20 labels a class", "all labels"."""
    return "all labels" if budget < 0 else f"{budget} {unit}"


def label_curves(evaluation: Mapping[str, Any]) -> dict[str, Line]:
    """System -> primary metric on test with its interval against labels; baselines are dashed."""
    curves = {}
    for system in evaluation["systems"]:
        labels = [cell["labels"] for cell in system["budgets"]]
        scores = [cell["scores"][evaluation["main"]] for cell in system["budgets"]]
        mean, low, high = ([score[key] for score in scores] for key in ("mean", "low", "high"))
        curves[system["system"]] = Line(labels, mean, low, high, dashed=system["family"] == "baseline")
    return curves


def training_curves(evaluation: Mapping[str, Any]) -> dict[str, Line]:
    """System -> primary metric on the rows of selection against epochs of fine-tuning."""
    points = {system["system"]: system["training_curve"] for system in evaluation["systems"]}
    return {
        name: Line([point["epoch"] for point in curve], [point[evaluation["main"]] for point in curve])
        for name, curve in points.items()
        if len(curve) > 1
    }


def _differences(evaluation: dict[str, Any]) -> list[Table]:
    """Matrices of the paired differences of the systems, row minus column, of each label budget."""
    tables = []
    for budget in evaluation["budgets"]:
        listed = evaluation.get("differences", {}).get(str(budget), {})
        cells: dict[tuple[str, str], str] = {}
        for name, others in listed.items():
            for other, of in others.items():
                mark = "*" if of["clear"] else ""
                cells |= {(name, other): f"{of['mean']:+.3f}{mark}", (other, name): f"{-of['mean']:+.3f}{mark}"}
        names = [each["system"] for each in evaluation["systems"] if any(each["system"] in pair for pair in cells)]
        if names:
            rows = [[name, *(cells.get((name, other), "") for other in names)] for name in names]
            labels = labels_at(budget, evaluation["unit"])
            title = f"Differences of {evaluation['titles'][evaluation['main']]}, {labels}"
            tables.append(Table(["system", *names], rows, title))
    return tables


def _by_system(evaluation: dict[str, Any], champion: str) -> Table:
    budgets, main, unit = evaluation["budgets"], evaluation["main"], evaluation["unit"]
    rows, registered = [], []
    for system in evaluation["systems"]:
        cells = {cell["budget"]: _interval(cell["scores"][main]) for cell in system["budgets"]}
        # Ensembles are not stored.
        stored = system.get("artifact")
        registered.append((_interval(stored["scores"][main]), f"{stored['labels']:,}") if stored else ("", ""))
        name = f"{system['system']} (current model)" if system["system"] == champion else system["system"]
        rows.append([name, *(cells[budget] for budget in budgets)])
    selection, title = evaluation["selection"], evaluation["titles"][main]
    how = f"choices on {selection['rows']:,} labels of dev, in addition to each budget"
    if selection["by"] == "budget":
        how = f"choices by {selection['folds']}-fold cross-validation within each label budget, without other labels"
    counted = unit.removeprefix("labelled ").removesuffix(" a class")
    columns = ["system", *(f"{budget_name(budget)} {counted}" for budget in budgets)]
    about = (
        f"{title[0].upper()}{title[1:]} by {unit} ({evaluation['confidence']:.0%} intervals, mean over "
        f"{len(evaluation['seeds'])} seeds, {evaluation['rows']['test']:,} test rows; {how})"
    )
    # With all labels, a seed may change nothing: the registered model is that of the row.
    if any(score not in ("", row[-1]) for row, (score, _) in zip(rows, registered, strict=True)):
        counts = {count for _, count in registered if count}
        about += (
            ". Registered: the average of all seeds of the largest budget, with the rows that any of them has learned"
        )
        about += f" from ({counts.pop()})" if len(counts) == 1 else " from"
        shown = 2 if counts else 1
        columns += ["registered", "its labels"][:shown]
        rows = [[*row, *further[:shown]] for row, further in zip(rows, registered, strict=True)]
    return Table(columns, rows, about)


def _benefits(evaluation: dict[str, Any]) -> Table | None:
    rows = [
        [f"{family}-{start}", axis, name, *(_interval(of[part]) for part in ("transferred", "scratch", "difference"))]
        for family, starts in evaluation["benefits"].items()
        for start, axes in starts.items()
        for axis, benefits in axes.items()
        for name, of in benefits.items()
    ]
    columns = ["system", "curve", "benefit", "transferred", "scratch", "difference"]
    return Table(columns, rows, "Benefits of transfer") if rows else None


def _other_metrics(evaluation: dict[str, Any]) -> Table | None:
    others = [name for name in evaluation["scores"] if name != evaluation["main"]]
    rows = [
        [system["system"], *(_interval(system["budgets"][-1]["scores"][name]) for name in others)]
        for system in evaluation["systems"]
    ]
    title = f"Other metrics at {labels_at(evaluation['budgets'][-1], evaluation['unit'])}"
    return Table(["system", *(evaluation["titles"][name] for name in others)], rows, title) if others else None


def _comparison(evaluation: dict[str, Any], curves: Mapping[str, Line]) -> Drawing:
    """The scores of the systems against the number of labels; of one label budget, side by side."""
    unit, title = evaluation["unit"], evaluation["titles"][evaluation["main"]]
    if len(evaluation["budgets"]) == 1:
        entries = {
            name: (line.y[0], line.low[0], line.high[0])
            for name, line in curves.items()
            if line.low is not None and line.high is not None
        }
        budget = evaluation["budgets"][0]
        labels = labels_at(budget, unit)
        svg = figures.ranges(entries, x_label=f"{title}, {labels}", reference=None)
        return Drawing(svg, "Scores of the systems with confidence intervals.")
    svg = figures.lines(curves, x_label=unit, y_label=title, logarithmic=True, ticks=True)
    return Drawing(svg, "Score against number of labels; the bands are confidence intervals.")


def _languages(evaluation: dict[str, Any]) -> Table | None:
    learned, main = evaluation.get("learned_languages", []), evaluation["main"]
    if not learned:
        return None
    cells = {system["system"]: system["budgets"][-1]["slices"] for system in evaluation["systems"]}
    rows = {language: entry["rows"] for slices in cells.values() for language, entry in slices.items()}
    # The learned languages first, the others by their number of rows.
    languages = sorted(rows, key=lambda name: (name not in learned, -rows[name], name))
    tested = ", ".join(f"{rows[name]:.0f} rows of {name}" for name in languages)
    return Table(
        ["system", *(f"{name} ({'learned' if name in learned else 'transfer'})" for name in languages)],
        [
            [system, *(f"{slices[name][main]:.3f}" if name in slices else "" for name in languages)]
            for system, slices in cells.items()
        ],
        f"{evaluation['titles'][main]} by language at {labels_at(evaluation['budgets'][-1], evaluation['unit'])}: "
        f"trained on {', '.join(learned)}, tested on {tested}",
    )


def _runs(evaluation: dict[str, Any], count: str) -> str:
    return "; ".join(
        f"{system['system']} at {labels_at(cell['budget'], evaluation['unit'])}: {counted} of {len(cell['seeds'])}"
        for system in evaluation["systems"]
        for cell in system["budgets"]
        if (counted := cell.get("training", {}).get(count, 0))
    )


def _ways(evaluation: dict[str, Any]) -> Table | None:
    rows = [
        [
            system["system"],
            budget_name(cell["budget"]),
            of["way"] + (f" ({of['share']:.0%} of the steps)" if 0 < of["share"] < 1 else ""),
            "left out" if of["score"] is None else f"{of['score']:.3f}",
            str(of["tried"]),
            str(of["kept"]),
            f"{of['seconds']:.1f}",
        ]
        for system in evaluation["systems"]
        for cell in system["budgets"]
        for of in cell.get("ways", [])
    ]
    title = f"{evaluation['titles'][evaluation['main']]} in selection"
    columns = ["system", evaluation["unit"], "way to learn", title, "tried", "kept", "seconds"]
    heading = "Ways to learn that were tried: score of selection, numbers of seeds"
    return Table(columns, rows, heading) if rows else None


def details(task: str, evaluation: dict[str, Any]) -> Chapter:
    """Classes, slices, confusion and calibration of the best system at the largest budget."""
    budget = evaluation["budgets"][-1]
    name = evaluation["best"][str(budget)]
    system = next(entry for entry in evaluation["systems"] if entry["system"] == name)
    cell = next(entry for entry in system["budgets"] if entry["budget"] == budget)
    chapter = Chapter(f"{task}: {name} at {labels_at(budget, evaluation['unit'])}, the best system")
    if cell["confusion"]:
        svg = figures.confusion(cell["confusion"], evaluation["labels"])
        chapter.figures.append(Drawing(svg, "Confusion matrix, sum over all seeds."))
    calibrated = {
        entry["system"]: Line(
            [point["confidence"] for point in entry["budgets"][-1]["calibration"]],
            [point["accuracy"] for point in entry["budgets"][-1]["calibration"]],
        )
        for entry in evaluation["systems"]
        if entry["budgets"][-1]["calibration"]
    }
    if calibrated:
        systems = [entry["system"] for entry in evaluation["systems"]]
        svg = figures.calibration(calibrated, among=systems)
        chapter.figures.append(Drawing(svg, "Calibration at the largest label budget."))
    # Classes without rows in test have no scores; they come last.
    classes = sorted(cell["per_class"].items(), key=lambda entry: (not entry[1]["rows"], entry[1]["f1"] or 0))
    if classes:
        columns = [column for column in classes[0][1] if column != "rows"]
        rows = [
            [label, *("" if entry[key] is None else f"{entry[key]:.3f}" for key in columns), f"{entry['rows']:.0f}"]
            for label, entry in classes
        ]
        titles = [{"f1": "F1"}.get(column, column.replace("_", " ")) for column in columns]
        chapter.tables.append(Table(["class", *titles, "rows"], rows, "Classes, in ascending order of F1"))
    slices = sorted(cell["slices"].items(), key=lambda entry: -entry[1]["rows"])[:SLICES]
    if slices:
        shown = evaluation["scores"][:2]
        rows = [[part, f"{entry['rows']:.0f}", *(f"{entry[score]:.3f}" for score in shown)] for part, entry in slices]
        columns = ["slice", "rows", *(evaluation["titles"][score] for score in shown)]
        chapter.tables.append(Table(columns, rows, f"Largest {len(slices)} of {len(cell['slices'])} slices"))
    return chapter


def _interval(entry: dict[str, float]) -> str:
    return f"{entry['mean']:.3f} [{entry['low']:.3f}, {entry['high']:.3f}]"
