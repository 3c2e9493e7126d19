"""Tables and figures of the evaluation of one task, for its chapters of the report (report.html.j2)."""

from typing import Any

from components.data.scoring import title
from components.data.tasks.budgets import budget_name
from components.reporting import figures
from components.reporting.advice import Evaluation, best_cells
from components.reporting.figures import Line
from components.reporting.findings import Drawing, Table, cell, interval_of
from components.settings.section import BASELINE


def first_screen(evaluation: Evaluation, *, champion: str = "") -> tuple[Drawing, Table]:
    """The scores of all systems by label budget, as a figure and as a table that marks `champion`, the system of the
    current model."""
    return comparison(evaluation), by_system(evaluation, champion)


def training(evaluation: Evaluation) -> list[Drawing]:
    """The scores of selection during fine-tuning with the largest budget."""
    metric, systems = title(evaluation["main"]), evaluation["systems"]
    curves = {of["system"]: Line.of(of["training_curve"], "epoch", evaluation["main"]) for of in systems}
    if not (several := {name: line for name, line in curves.items() if len(line.x) > 1}):
        return []
    chosen = "by cross-validation" if evaluation["selection"]["by"] == "budget" else "on dev"
    svg = figures.lines(several, x_label="epochs of fine-tuning", y_label=f"{metric}, {chosen}", among=list(curves))
    caption = (
        f"{metric[0].upper()}{metric[1:]} {chosen} during fine-tuning with "
        f"{labels_at(evaluation['budgets'][-1], evaluation['unit'])}; at epoch 0 only the head is trained."
    )
    return [Drawing(svg, caption)]


def labels_at(budget: int, unit: str) -> str:
    """A label budget as text: "20 labels a class", "all labels"."""
    return "all labels" if budget < 0 else f"{budget} {unit}"


def comparison(evaluation: Evaluation) -> Drawing:
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


def differences_of(evaluation: Evaluation, budget: int) -> dict[tuple[str, str], dict[str, Any]]:
    """(system, other) -> the paired difference at a label budget, {mean, low, high, clear}, in both orders."""
    pairs = dict[tuple[str, str], dict[str, Any]]()
    for name, others in evaluation.get("differences", {}).get(str(budget), {}).items():
        for other, of in others.items():
            turned = {"mean": -of["mean"], "low": -of["high"], "high": -of["low"]}
            pairs |= {(name, other): of, (other, name): of | turned}
    return pairs


def by_system(evaluation: Evaluation, champion: str = "") -> Table:
    """The primary metric on test of every system by label budget, and of its stored model."""
    main, unit, selection, budgets = (evaluation[key] for key in ("main", "unit", "selection", "budgets"))
    counted, metric = unit.removeprefix("labelled ").removesuffix(" a class"), title(main)
    how = f"choices on {selection['rows']:,} labels of dev, in addition to each budget"
    if selection["by"] == "budget":
        how = f"choices by {selection['folds']}-fold cross-validation within each label budget, without other labels"
    about = (
        f"{metric[0].upper()}{metric[1:]} by {unit} ({evaluation['confidence']:.0%} intervals, mean over "
        f"{len(evaluation['seeds'])} seeds, {evaluation['rows']['test']:,} test rows; {how})"
    )
    scores, stored = dict[str, dict[int, str]](), dict[str, dict[str, str]]()
    for system in evaluation["systems"]:
        name = f"{system['system']} (current model)" if system["system"] == champion else system["system"]
        scores[name] = {each["budget"]: cell(each["scores"][main]) for each in system["budgets"]}
        if of := system.get("artifact"):  # ensembles are not stored
            stored[name] = {"registered": cell(of["scores"][main]), "its labels": cell(of["labels"])}
    further, counts = list[str](), {of["its labels"] for of in stored.values()}
    # With all labels, a seed may change nothing: the registered model is that of the row.
    if any(of["registered"] != scores[name][budgets[-1]] for name, of in stored.items()):
        further = ["registered"] if len(counts) == 1 else ["registered", "its labels"]
        about += (
            ". Registered: the average of all seeds of the largest budget, with the rows that any of them has learned "
            f"from{f' ({counts.pop()})' if len(counts) == 1 else ''}"
        )
    rows = [
        {"system": name}
        | {f"{budget_name(budget)} {counted}": of[budget] for budget in budgets}
        | {column: stored.get(name, {}).get(column, "") for column in further}
        for name, of in scores.items()
    ]
    return Table.of(rows, about)


def languages(evaluation: Evaluation) -> Table | None:
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


def details(evaluation: Evaluation) -> dict[str, Any]:
    """The best system at the largest budget: (name, scores) of its `classes`, in ascending order of F1, and of its
    `slices`, the largest first; and `figures` of confusion and calibration."""
    best, drawings = best_cells(evaluation)[-1], []
    if best["confusion"]:
        svg = figures.confusion(best["confusion"], evaluation["labels"])
        drawings.append(Drawing(svg, "Confusion matrix, sum over all seeds."))
    systems = {of["system"]: of["budgets"][-1]["calibration"] for of in evaluation["systems"]}
    calibrated = {name: Line.of(points, "confidence", "accuracy") for name, points in systems.items() if points}
    if calibrated:
        calibrated["perfect"] = Line(x=[0, 1], y=[0, 1], dashed=True)
        svg = figures.lines(calibrated, x_label="confidence", y_label="accuracy", among=list(systems))
        drawings.append(Drawing(svg, "Calibration at the largest label budget."))
    # Classes without rows in test have no scores; they come last.
    classes = sorted(best["per_class"].items(), key=lambda entry: (not entry[1]["rows"], entry[1]["f1"] or 0))
    slices = sorted(best["slices"].items(), key=lambda entry: -entry[1]["rows"])
    return {"figures": drawings, "classes": classes, "slices": slices}
