"""Chapters of the report about one task: comparison of systems, benefits of transfer, details of the best system."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.figures import Line
from components.scoring.label_curves import best_system, in_words, of_system
from components.tasks.budgets import budget_name

#: Maximum number of rows in the table of slices.
SLICES = 20


def scores(task: str, evaluation: dict[str, Any]) -> Chapter:
    """Scores of all systems by label budget, learning curves and the benefits of transfer."""
    budgets, main, unit = evaluation["budgets"], evaluation["main"], evaluation["unit"]
    title = evaluation["titles"][main]
    selection = evaluation["selection"]
    chosen = "by cross-validation" if selection["by"] == "budget" else "on dev"
    chapter = Chapter(f"{task}: scores" + (" by label budget" if len(budgets) > 1 else ""))
    important = [found for found in evaluation["statements"] if found["kind"] != "adaptation"]
    chapter.lead = [found["text"] for found in important if found["budget"] == budgets[0]]
    chapter.text = [found["text"] for found in evaluation["statements"] if found["text"] not in chapter.lead]
    if evaluation.get("challenger"):
        chapter.text.append(evaluation["challenger"]["text"])
    if left_out := _runs(evaluation, "left_out"):
        chapter.text.append(
            f"Runs whose encoder is not fine-tuned, because selection preferred it as it was: {left_out}."
        )
    if names := _runs(evaluation, "label_names"):
        chapter.text.append(f"Runs that also learned from the names of the labels: {names}.")
    chapter.tables.append(
        Table(
            ["system", *(f"{budget_name(budget)} {unit.split()[0]}" for budget in budgets), "registered", "its labels"],
            [
                [
                    system["system"],
                    *(_interval(cell["scores"][main]) for cell in _by_budget(system, budgets)),
                    *_artifact(system, main),
                ]
                for system in evaluation["systems"]
            ],
            f"{title[0].upper()}{title[1:]} by {unit} ({evaluation['confidence']:.0%} intervals, "
            f"mean over {len(evaluation['seeds'])} seeds, {evaluation['rows']['test']:,} test rows; "
            f"{_labels_of_selection(selection)}). Registered: the average of all seeds of the largest budget, with the "
            "rows that any of them has learned from",
        )
    )
    curves = {
        system["system"]: Line(
            x=[cell["labels"] for cell in system["budgets"]],
            y=[cell["scores"][main]["mean"] for cell in system["budgets"]],
            low=[cell["scores"][main]["low"] for cell in system["budgets"]],
            high=[cell["scores"][main]["high"] for cell in system["budgets"]],
            dashed=system["family"] == "baseline",
        )
        for system in evaluation["systems"]
    }
    chapter.figures.append(_comparison(evaluation, curves))
    training = {
        system["system"]: Line(
            x=[point["epoch"] for point in system["training_curve"]],
            y=[point[main] for point in system["training_curve"]],
        )
        for system in evaluation["systems"]
        if len(system["training_curve"]) > 1
    }
    if training:
        svg = figures.lines(training, x_label="epochs of fine-tuning", y_label=f"{title}, {chosen}", among=list(curves))
        caption = (
            f"{title[0].upper()}{title[1:]} {chosen} during fine-tuning with {budget_name(budgets[-1])} {unit}; at "
            "epoch 0 only the head is trained."
        )
        chapter.figures.append(Drawing(svg, caption))
    rows = [
        [
            f"{family}-{start}",
            axis,
            name,
            *(_interval(found[part]) for part in ("transferred", "scratch", "difference")),
        ]
        for family, starts in evaluation["benefits"].items()
        for start, axes in starts.items()
        for axis, benefits in axes.items()
        for name, found in benefits.items()
    ]
    if rows:
        columns = ["system", "curve", "benefit", "transferred", "scratch", "difference"]
        chapter.tables.append(Table(columns, rows, "Benefits of transfer"))
    if ways := _ways(evaluation):
        columns = ["system", unit, "way to learn", f"{title} in selection", "tried", "kept", "seconds"]
        chapter.tables.append(
            Table(columns, ways, "Ways to learn that were tried: score of selection, numbers of seeds")
        )
    if languages := _languages(evaluation):
        chapter.tables.append(languages)
    others = [name for name in evaluation["scores"] if name != main]
    if others:
        rows = [
            [system["system"], *(_interval(system["budgets"][-1]["scores"][name]) for name in others)]
            for system in evaluation["systems"]
        ]
        columns = ["system", *(evaluation["titles"][name] for name in others)]
        chapter.tables.append(Table(columns, rows, f"Other metrics at {budget_name(budgets[-1])} {unit}"))
    return chapter


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
        labels = "all labels" if budget < 0 else f"{budget} {unit}"
        svg = figures.ranges(entries, x_label=f"{title}, {labels}", reference=None)
        return Drawing(svg, "Scores of the systems with confidence intervals.")
    best = best_system(evaluation)
    gain = in_words(of_system(evaluation, best), unit=unit, title=title, system=best)
    svg = figures.lines(curves, x_label=unit, y_label=title, logarithmic=True, ticks=True)
    return Drawing(svg, f"Score against number of labels; the bands are confidence intervals. {gain}")


def _languages(evaluation: dict[str, Any]) -> Table | None:
    """Scores of all systems by language of test, at the largest label budget."""
    learned, main = evaluation.get("learned_languages", []), evaluation["main"]
    if not learned:
        return None
    cells = {system["system"]: system["budgets"][-1]["slices"] for system in evaluation["systems"]}
    rows = {language: found["rows"] for slices in cells.values() for language, found in slices.items()}
    # The learned languages first, the others by their number of rows.
    languages = sorted(rows, key=lambda name: (name not in learned, -rows[name], name))
    tested = ", ".join(f"{rows[name]:.0f} rows of {name}" for name in languages)
    return Table(
        ["system", *(f"{name} ({'learned' if name in learned else 'transfer'})" for name in languages)],
        [
            [system, *(f"{slices[name][main]:.3f}" if name in slices else "" for name in languages)]
            for system, slices in cells.items()
        ],
        f"{evaluation['titles'][main]} by language at {budget_name(evaluation['budgets'][-1])} {evaluation['unit']}: "
        f"trained on {', '.join(learned)}, tested on {tested}",
    )


def _runs(evaluation: dict[str, Any], count: str) -> str:
    """Systems with a count of their runs, by label budget: `left_out`, whose encoder stays as it was, or `label_names`,
    which learned from the names of the labels."""
    return "; ".join(
        f"{system['system']} at {budget_name(cell['budget'])} {evaluation['unit']}: {counted} of {len(cell['seeds'])}"
        for system in evaluation["systems"]
        for cell in system["budgets"]
        if (counted := cell.get("training", {}).get(count, 0))
    )


def _ways(evaluation: dict[str, Any]) -> list[Sequence[str]]:
    """What `method: auto` has tried, by system and label budget."""
    return [
        [
            system["system"],
            budget_name(cell["budget"]),
            found["way"] + (f" ({found['share']:.0%} of the steps)" if 0 < found["share"] < 1 else ""),
            "left out" if found["score"] is None else f"{found['score']:.3f}",
            str(found["tried"]),
            str(found["kept"]),
            f"{found['seconds']:.1f}",
        ]
        for system in evaluation["systems"]
        for cell in system["budgets"]
        for found in cell.get("ways", [])
    ]


def _labels_of_selection(selection: dict[str, Any]) -> str:
    """Where hyper-parameters, epochs and systems were chosen, and how many labels that took."""
    if selection["by"] == "budget":
        return f"choices by {selection['folds']}-fold cross-validation within each label budget, without other labels"
    return f"choices on {selection['rows']:,} labels of dev, in addition to each budget"


def details(task: str, evaluation: dict[str, Any]) -> Chapter:
    """Classes, slices, confusion and calibration of the best system at the largest budget."""
    budget = evaluation["budgets"][-1]
    name = evaluation["best"][str(budget)]
    system = next(found for found in evaluation["systems"] if found["system"] == name)
    cell = next(found for found in system["budgets"] if found["budget"] == budget)
    chapter = Chapter(f"{task}: {name} at {budget_name(budget)} {evaluation['unit']}, the best system")
    if cell["confusion"]:
        svg = figures.confusion(cell["confusion"], evaluation["labels"])
        chapter.figures.append(Drawing(svg, "Confusion matrix, sum over all seeds."))
    calibrated = {
        found["system"]: Line(
            [point["confidence"] for point in found["budgets"][-1]["calibration"]],
            [point["accuracy"] for point in found["budgets"][-1]["calibration"]],
        )
        for found in evaluation["systems"]
        if found["budgets"][-1]["calibration"]
    }
    if calibrated:
        systems = [found["system"] for found in evaluation["systems"]]
        svg = figures.calibration(calibrated, among=systems)
        chapter.figures.append(Drawing(svg, "Calibration at the largest label budget."))
    # Classes without rows in test have no scores; they come last.
    classes = sorted(cell["per_class"].items(), key=lambda entry: (not entry[1]["rows"], entry[1]["f1"] or 0))
    if classes:
        columns = [column for column in classes[0][1] if column != "rows"]
        rows = [
            [label, *("" if found[key] is None else f"{found[key]:.3f}" for key in columns), f"{found['rows']:.0f}"]
            for label, found in classes
        ]
        titles = [{"f1": "F1"}.get(column, column.replace("_", " ")) for column in columns]
        chapter.tables.append(Table(["class", *titles, "rows"], rows, "Classes, in ascending order of F1"))
    slices = sorted(cell["slices"].items(), key=lambda entry: -entry[1]["rows"])[:SLICES]
    if slices:
        shown = evaluation["scores"][:2]
        rows = [[part, f"{found['rows']:.0f}", *(f"{found[score]:.3f}" for score in shown)] for part, found in slices]
        columns = ["slice", "rows", *(evaluation["titles"][score] for score in shown)]
        chapter.tables.append(Table(columns, rows, f"Largest {len(slices)} of {len(cell['slices'])} slices"))
    return chapter


def _by_budget(system: dict[str, Any], budgets: Sequence[int]) -> Iterable[dict[str, Any]]:
    cells = {cell["budget"]: cell for cell in system["budgets"]}
    return [cells[budget] for budget in budgets]


def _artifact(system: dict[str, Any], main: str) -> tuple[str, str]:
    """Score and number of labels of the stored model; empty for ensembles, which are not stored."""
    artifact = system.get("artifact")
    return (_interval(artifact["scores"][main]), f"{artifact['labels']:,}") if artifact else ("", "")


def _interval(found: dict[str, float]) -> str:
    return f"{found['mean']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"
