"""Studies of evaluation.json: all systems side by side, by their number of parameters too (Turc et al. 2019; Kaplan et
al. 2020); the three benefits of transfer (Torrey and Shavlik 2010, figure 2); where it hurts, and what adaptation
forgets; and how many labels it saves (Howard and Ruder 2018, section 5 and figure 3: 10 to 100 times as many)."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from components.core.artifacts import read_json
from components.core.errors import ConfigError, nearest
from components.data.scoring import title
from components.data.scoring.intervals import Interval
from components.reporting import figures
from components.reporting.evaluations import label_curves, labels_at, training_curves
from components.reporting.findings import Drawing
from components.settings.systems import System
from components.studies.frame import STAGE_OF, EveryTask, Measured, Outputs, Sheet, bounds, curves, interval_of, spread

#: Axis of a curve -> its name in tables.
AXES = {"training": "epochs", "labels": "labels"}
PAIR = (
    "no family has both a transferred system and one from scratch; run.starts must name scratch and pretrained or "
    "adapted"
)
#: Measures of a language model, in order of preference.
PERPLEXITIES = {"perplexity_per_word": "perplexity per word", "bits_per_character": "bits per character"}
#: Maximum number of parts in a figure; the table contains all.
PLOTTED = 24


def systems(
    outputs: Outputs,
    *,
    task: EveryTask = "",
    family: Annotated[str, typer.Option(help="Family whose sizes are compared; all systems by default.")] = "",
    system: Annotated[str, typer.Option(help="System that others are compared with; the best by default.")] = "",
) -> Measured:
    """Size, perplexity and scores on test of every system, and the paired difference of `system` to each other one."""
    measured = Measured([])
    for name, evaluation in outputs.evaluations(task, "systems", needs="no system was evaluated").items():
        unit, main, largest = evaluation["unit"], evaluation["main"], evaluation["budgets"][-1]
        labels = {budget: labels_at(budget, unit) for budget in evaluation["budgets"]}
        listed = [entry for entry in evaluation["systems"] if not family or _is_of(outputs, entry["family"], family)]
        scores = {
            entry["system"]: {cell["budget"]: interval_of(cell["scores"][main]) for cell in entry["budgets"]}
            for entry in listed
        }
        at_largest = {of: cells[largest] for of, cells in scores.items() if largest in cells}
        first = system or max(at_largest, key=lambda of: at_largest[of].mean)
        if first not in scores:
            raise ConfigError(f"--system: unknown system {first!r}{nearest(first, scores)}")
        against = f"{first} minus it, {labels[largest]}"
        differences = {of: _difference(evaluation, largest, first, of) for of in scores}
        rows = []
        for entry in listed:
            of = entry["system"]
            row = {"system": of, **_sizes(outputs, entry)}
            row |= {label: scores[of].get(budget) for budget, label in labels.items()}
            rows.append(row | {against: differences[of]})
        measured.sheets.append(Sheet(rows, f"{name} ({title(main)})", {"perplexity per word": ",.1f"}))
        if not system:
            ties = [of for of, difference in differences.items() if difference is not None and not difference.clear]
            level = f"; not shown to be worse: {', '.join(ties)}" if ties else ""
            best = bounds(at_largest[first])
            measured.lead.append(f"{name}: with {labels[largest]}, {first} is best: {best}{level}.")
        last, sized = labels[largest], [row for row in rows if row["parameters"]]
        if family and sized:
            by_start = {entry["system"]: entry["start"] for entry in listed}
            points = [
                row | {"start": by_start[row["system"]]} for row in sorted(sized, key=lambda of: of["parameters"])
            ]
            for y, about in ((last, "score"), ("perplexity per word", "perplexity of the language model")):
                caption = f"{name}: {about} against the size."
                measured.figures.append(curves(points, caption, x="parameters", y=y, by="start", logarithmic=True))
        elif not family:
            measured.figures.append(spread(rows, f"{name}: the systems with {last}.", by="system", value=last))
    measured.text.append(
        "Scores are on test, with intervals over seeds and test rows; differences are paired by both. The perplexity "
        "is on held-out text of the corpus of the last language model training."
    )
    return measured


def _difference(evaluation: Mapping[str, Any], budget: int, first: str, other: str) -> Interval | None:
    listed = evaluation["differences"].get(str(budget), {})
    if entry := listed.get(first, {}).get(other):
        return interval_of(entry)
    entry = listed.get(other, {}).get(first)
    return Interval(-entry["mean"], -entry["high"], -entry["low"]) if entry else None


def _is_of(outputs: Outputs, name: str, family: str) -> bool:
    block = outputs.params.pretrain.get(name)
    return block is not None and (block.family or name) == family


def _sizes(outputs: Outputs, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters and perplexity of a system's encoder; None for systems without one."""
    system, metrics = System.of(entry["family"], entry["start"]), dict[str, Any]()
    if system.family in outputs.params.pretrain and system.start in STAGE_OF:
        directory = outputs.encoder_directory(system.family, system.start)
        metrics = read_json(directory / "metrics.json", made_by="the stage pretrain", missing_ok=True)
    return {name: metrics.get(name.replace(" ", "_")) for name in ("parameters", "perplexity per word")}


def benefits(outputs: Outputs, *, task: EveryTask = "") -> Measured:
    """The benefits of every transferred system over the same family from scratch."""
    measured = Measured([])
    for name, evaluation in outputs.evaluations(task, "benefits", needs=PAIR).items():
        rows = [
            {
                "system": f"{family}-{start}",
                "against": AXES[axis],
                "benefit": benefit,
                **{part: interval_of(values[part]) for part in ("transferred", "scratch", "difference")},
                "higher": values["holds"],
            }
            for family, starts in evaluation["benefits"].items()
            for start, axes in starts.items()
            for axis, of_axis in axes.items()
            for benefit, values in of_axis.items()
        ]
        measured.sheets.append(Sheet(rows, f"{name} ({title(evaluation['main'])})"))
        for system in dict.fromkeys(row["system"] for row in rows):
            held = [f"{row['benefit']} ({row['against']})" for row in rows if row["system"] == system and row["higher"]]
            measured.lead.append(f"{name}: over scratch, {system} has a higher {', '.join(held) or 'nothing'}.")
        measured.figures.append(_label_figure(name, evaluation))
        if training := training_curves(evaluation):
            svg = figures.lines(training, x_label="epochs of fine-tuning", y_label=title(evaluation["main"]))
            measured.figures.append(Drawing(svg, f"{name}: fine-tuning with the largest label budget, on dev."))
    measured.text.append(
        "Against epochs (dev, the largest label budget): the start is a head on frozen features, the slope is the "
        "gain per epoch up to 90% of the gain, the asymptote is the best score. Against labels (test): the start is "
        "the smallest budget, the slope the gain per doubling, the asymptote the largest budget. Intervals are over "
        "seeds."
    )
    return measured


def _label_figure(task: str, evaluation: Mapping[str, Any]) -> Drawing:
    frozen = {of["system"] for of in evaluation["systems"] if System.of(of["family"], of["start"]).frozen}
    lines = {name: line for name, line in label_curves(evaluation).items() if name not in frozen}
    labels = {"x_label": evaluation["unit"], "y_label": title(evaluation["main"])}
    svg = figures.lines(lines, **labels, logarithmic=True, ticks=True)
    return Drawing(svg, f"{task}: score against labels; dashed: without a language model; bands are the intervals.")


def negative_transfer(outputs: Outputs, *, task: EveryTask = "") -> Measured:
    """Scratch, pretrained and adapted for each part of the test set, and forgetting by adaptation."""
    measured = Measured([])
    for name, evaluation in outputs.evaluations(task, "transfer", needs=PAIR).items():
        labels, rows = labels_at(evaluation["budgets"][-1], evaluation["unit"]), []
        for family, budgets in evaluation["transfer"].items():
            for part in budgets[-1]["parts"]:
                for start, entry in part["starts"].items():
                    scores = {"scratch": part["scratch"], "score": entry["score"], "difference": entry["difference"]}
                    rows.append(
                        {
                            "system": f"{family}-{start}",
                            "part": "all rows" if part["part"] == "all" else f"{part['part']} {part['name']}",
                            "rows": part["rows"],
                            **{column: interval_of(score) for column, score in scores.items()},
                            "corrected": interval_of(entry["corrected"]),
                            "hurts": entry["hurts"],
                        }
                    )
        measured.sheets.append(Sheet(rows, f"{name} at {labels}"))
        hurt = [f"{row['system']} on {row['part']}" for row in rows if row["corrected"].high < 0]
        measured.lead.append(f"{name}, {labels}: transfer hurts {', '.join(hurt) or f'none of {len(rows)} parts'}.")
        worst = sorted(rows, key=lambda row: row["difference"].mean)[:PLOTTED]
        named = [row | {"part": f"{row['system']}, {row['part']}"} for row in worst]
        caption = f"{name}: transferred minus scratch, the parts with the smallest gain, at {labels}."
        measured.figures.append(spread(named, caption, by="part", value="difference", reference=0.0))
    forgotten = list(filter(None, (_forgetting(outputs, family) for family in outputs.params.run.families)))
    if forgotten:
        forms = dict.fromkeys(("pretrained", "adapted", "ratio"), ",.2f")
        measured.sheets.append(Sheet(forgotten, "Forgetting of the language models by adaptation", forms))
    measured.text.append(
        "Classes are compared by F1, slices and all rows by the primary metric. Among many parts some decrease by "
        "chance: `corrected` has the Bonferroni-corrected bounds over all parts, starts and families; `hurts` is "
        "corrected over the parts of one family."
    )
    return measured


def _forgetting(outputs: Outputs, family: str) -> dict[str, Any] | None:
    """Perplexity on general text before and after adaptation (bits per character for a character model)."""
    if "adapted" not in outputs.params.run.starts:
        return None
    path = outputs.encoder_directory(family, "adapted") / "metrics.json"
    metrics = read_json(path, made_by="the stage adapt", missing_ok=True)
    for key, about in PERPLEXITIES.items():
        before, after = (metrics.get(f"general_{when}_{key}") for when in ("before", "after"))
        if before and after:
            values = {"pretrained": before, "adapted": after, "ratio": after / before}
            return {"family": family, "on general text": about, **values}
    return None


def label_efficiency(outputs: Outputs, *, task: EveryTask = "") -> Measured:
    """The number of labels with which scratch and the best baseline reach the score of each transferred system."""
    measured = Measured([])
    needs = "no transferred system was evaluated; run.starts must name pretrained or adapted"
    for name, evaluation in outputs.evaluations(task, "label_efficiency", needs=needs).items():
        unit = evaluation["unit"]
        rows = [
            {
                "system": f"{family}-{start}",
                unit: entry["labels"],
                title(evaluation["main"]): entry["score"],
                "against": rival,
                "needs": _reached(of["needed"], "labels"),
                "ratio": _reached(of["ratio"], "mean"),
            }
            for family, starts in evaluation["label_efficiency"].items()
            for start, entries in starts.items()
            for entry in entries
            for rival, of in entry["against"].items()
        ]
        if evaluation["headline"]:
            measured.lead.append(f"{name}: {evaluation['headline']}")
        measured.sheets.append(Sheet(rows, name, dict.fromkeys((unit, "needs", "ratio"), ".3g")))
        measured.figures.append(_label_figure(name, evaluation))
        scratch = [
            row | {"system": f"{row['system']}, {row[unit]:.3g}"} for row in rows if "-scratch" in row["against"]
        ]
        if any(row["ratio"].low < math.inf for row in scratch):
            caption = f"{name}: ratio of the labels from scratch, by system and {unit}."
            options = {"reference": 1.0, "logarithmic": True}
            measured.figures.append(spread(scratch, caption, by="system", value="ratio", **options))
    measured.text.append(
        "The number of labels that a rival needs is interpolated in its curve of mean test scores over the logarithm "
        "of the labels, with an interval over seeds and clusters of test rows; inf if its largest budget does not "
        "reach the score. A ratio below 1: transfer needs more labels."
    )
    return measured


def _reached(values: Mapping[str, Any], first: str) -> Interval:
    """A number of labels, or a ratio, with its bounds; infinite beyond the largest budget."""
    return Interval(*(math.inf if values[key] is None else values[key] for key in (first, "low", "high")))
