"""Studies of the benefits of transfer, from the stage `evaluate`: higher start, slope and asymptote (Torrey and Shavlik
2010, figure 2); where it hurts, by class and slice, and what adaptation forgets; and how many labels it saves (Howard
and Ruder 2018, section 5 and figure 3: 10 to 100 times as many)."""

from collections.abc import Mapping
from typing import Any

from components.core.artifacts import read_json
from components.data.scoring import title
from components.evaluation.benefits import rounded
from components.reporting import figures
from components.reporting.evaluations import training_curves
from components.reporting.findings import Chapter, Drawing, Findings, Table
from components.studies.frame import EveryTask, Outputs, bounds, label_curves

#: Axis of a curve -> its name in text.
AXES = {"training": "epochs", "labels": "labels"}
PAIR = (
    "no family has both a transferred system and one from scratch; run.starts must name scratch and pretrained or "
    "adapted"
)


def benefits_of_transfer(outputs: Outputs, *, task: EveryTask = "") -> Findings:
    """The benefits of every transferred system over the same family from scratch."""
    chapter = Chapter("The three benefits of transfer")
    evaluations = outputs.evaluations(task, "benefits", needs=PAIR)
    for name, evaluation in evaluations.items():
        benefits, main = evaluation["benefits"], evaluation["main"]
        systems = [(f"{family}-{start}", axes) for family, of in benefits.items() for start, axes in of.items()]
        chapter.lead += [_held(name, system, axes) for system, axes in systems]
        rows = [
            [
                system,
                AXES[axis],
                benefit,
                *(bounds(values[part]) for part in ("transferred", "scratch", "difference")),
                "" if values["holds"] else "not clear",
            ]
            for system, axes in systems
            for axis, of_axis in axes.items()
            for benefit, values in of_axis.items()
        ]
        columns = ["system", "against", "benefit", "transferred", "scratch", "difference", ""]
        chapter.tables.append(Table(columns, rows, f"{name} ({title(main)})"))
        learned = {system["system"] for system in evaluation["systems"] if system["family"] in benefits}
        curves = label_curves(evaluation, learned)
        svg = figures.lines(curves, x_label=evaluation["unit"], y_label=title(main), logarithmic=True, ticks=True)
        chapter.figures.append(Drawing(svg, f"{name}: score against labels; bands are the intervals."))
        if training := training_curves(evaluation):
            svg = figures.lines(training, x_label="epochs of fine-tuning", y_label=f"{title(main)} on dev")
            caption = f"{name}: fine-tuning with the largest label budget."
            chapter.figures.append(Drawing(svg, caption))
    chapter.text.append(
        "Against epochs (dev, the largest label budget): the start is a head on frozen features, the slope is the "
        "gain per epoch up to 90% of the gain, the asymptote is the best score. Against labels (test): the start is "
        "the smallest budget, the slope the gain per doubling, the asymptote the largest budget. Intervals are over "
        "seeds."
    )
    return Findings(chapter, {name: evaluation["benefits"] for name, evaluation in evaluations.items()})


def _held(task: str, system: str, axes: dict[str, Any]) -> str:
    """The benefits that hold against labels, or against epochs if there is only one label budget."""
    axis = "labels" if "labels" in axes else "training"
    held = [f"{name} {of['difference']['mean']:+.3f}" for name, of in axes[axis].items() if of["holds"]]
    missing = [name for name, of in axes[axis].items() if not of["holds"]]
    if not held:
        return f"{task}: {system} has none of the three benefits over scratch, against {AXES[axis]}."
    rest = f"; no higher {' and '.join(missing)}" if missing else ""
    return f"{task}: over scratch, {system} has a higher {', '.join(held)} against {AXES[axis]}{rest}."


#: Measures of a language model, in order of preference.
MEASURES = {"perplexity_per_word": "perplexity per word", "bits_per_character": "bits per character"}
#: Maximum number of parts in a figure; the table contains all.
PLOTTED = 24


def negative_transfer(outputs: Outputs, *, task: EveryTask = "") -> Findings:
    """Scratch, pretrained and adapted for each part of the test set, and forgetting by adaptation."""
    chapter = Chapter("Where transfer hurts")
    evaluations = outputs.evaluations(task, "transfer", needs=PAIR)
    for name, evaluation in evaluations.items():
        for family, budgets in evaluation["transfer"].items():
            _add_parts(chapter, name, family, budgets[-1], unit=evaluation["unit"])
    forgetting = _forgetting(outputs)
    if forgetting:
        rows = [
            [family, entry["measure"], f"{entry['before']:,.2f}", f"{entry['after']:,.2f}", f"{entry['times']:.2f}"]
            for family, entry in forgetting.items()
        ]
        columns = ["family", "on general text", "pretrained", "adapted", "ratio"]
        chapter.tables.append(Table(columns, rows, "Forgetting of the language models by adaptation"))
    chapter.text.append(
        "Classes are compared by F1, slices and all rows by the primary metric. Among many parts some decrease by "
        "chance: a part counts as hurt if the Bonferroni-corrected interval of its difference is below zero."
    )
    transfer = {name: evaluation["transfer"] for name, evaluation in evaluations.items()}
    return Findings(chapter, {"transfer": transfer, "forgetting": forgetting})


def _add_parts(chapter: Chapter, task: str, family: str, at: dict[str, Any], *, unit: str) -> None:
    labels = f"all {unit}" if at["budget"] < 0 else f"{at['budget']} {unit}"
    parts = {"all rows" if part["part"] == "all" else f"{part['part']} {part['name']}": part for part in at["parts"]}
    starts = list(at["parts"][0]["starts"])
    rows = [[name, str(part["rows"]), bounds(part["scratch"])] for name, part in parts.items()]
    columns = ["part", "rows", "scratch"]
    for start in starts:
        columns += [start, "difference", ""]
        entries = {name: part["starts"].get(start) for name, part in parts.items()}
        for row, entry in zip(rows, entries.values(), strict=True):
            row += (
                [bounds(entry["score"]), bounds(entry["difference"], "+.3f"), "hurts" if entry["hurts"] else ""]
                if entry
                else ["", "", ""]
            )
        present = {name: entry for name, entry in entries.items() if entry}
        hurt = [name for name, entry in present.items() if entry["hurts"]]
        verdict = f"hurts on {', '.join(hurt)}" if hurt else f"hurts on none of {len(present) - 1} classes and slices"
        chapter.lead.append(f"{task}, {labels}: {family} {start} {verdict}.")
        differences = {
            name: (entry["difference"]["mean"], entry["difference"]["low"], entry["difference"]["high"])
            for name, entry in present.items()
        }
        worst = dict(sorted(differences.items(), key=lambda difference: difference[1][0])[:PLOTTED])
        svg = figures.ranges(worst, x_label=f"{start} minus scratch", reference=0.0)
        caption = f"{task}: {family} {start} against scratch, the parts with the smallest gain, at {labels}."
        chapter.figures.append(Drawing(svg, caption))
    chapter.tables.append(Table(columns, rows, f"{task}: {family} at {labels}"))


def _forgetting(outputs: Outputs) -> dict[str, dict[str, Any]]:
    """Family -> perplexity on general text before and after adaptation (bits per character for a character model)."""
    forgetting: dict[str, dict[str, Any]] = {}
    for family in outputs.params.run.families if "adapted" in outputs.params.run.starts else []:
        path = outputs.encoder_directory(family, "adapted") / "metrics.json"
        metrics = read_json(path, made_by="the stage adapt", missing_ok=True)
        for key, measure in MEASURES.items():
            before, after = (metrics.get(f"general_{when}_{key}") for when in ("before", "after"))
            if before and after and family not in forgetting:
                forgetting[family] = {"measure": measure, "before": before, "after": after, "times": after / before}
    return forgetting


def label_efficiency(outputs: Outputs, *, task: EveryTask = "") -> Findings:
    """The number of labels with which scratch and the best baseline reach the score of each transferred system."""
    chapter = Chapter("Label efficiency")
    needs = "no transferred system was evaluated; run.starts must name pretrained or adapted"
    evaluations = outputs.evaluations(task, "label_efficiency", needs=needs)
    for name, evaluation in evaluations.items():
        unit, score = evaluation["unit"], title(evaluation["main"])
        rows: list[list[str]] = []
        ranges: dict[str, tuple[float, float, float | None]] = {}
        if evaluation["headline"]:
            chapter.lead.append(f"{name}: {evaluation['headline']}")
        for family, starts in evaluation["label_efficiency"].items():
            for start, entries in starts.items():
                system, scratch = f"{family}-{start}", f"{family}-scratch"
                for entry in entries:
                    labels, against = rounded(entry["labels"]), entry["against"]
                    rows += [[system, labels, f"{entry['score']:.3f}", of, *_bounds(against[of])] for of in against]
                    if scratch in against and against[scratch]["needed"]["low"] is not None:
                        ranges[f"{system}, {labels}"] = _range(against[scratch]["ratio"])
                first = (
                    f"{name}: with {rounded(entries[0]['labels'])} {unit} {system} reaches {entries[0]['score']:.3f}"
                )
                if scratch in entries[0]["against"]:
                    first += "; from scratch that takes {}, {} times as many".format(
                        *_bounds(entries[0]["against"][scratch])
                    )
                chapter.lead.append(f"{first}.")
        columns = ["system", unit, score, "against", "needs", "ratio"]
        chapter.tables.append(Table(columns, rows, name))
        svg = figures.lines(label_curves(evaluation), x_label=unit, y_label=score, logarithmic=True, ticks=True)
        chapter.figures.append(Drawing(svg, f"{name}: score against labels; dashed: without a language model."))
        if ranges:
            svg = figures.ranges(ranges, x_label="ratio of the labels from scratch", reference=1.0, logarithmic=True)
            caption = f"{name}: by system and number of {unit}; arrow: beyond the largest budget of scratch."
            chapter.figures.append(Drawing(svg, caption))
    chapter.text.append(
        "The number of labels that a rival needs is interpolated in its curve of mean test scores over the logarithm "
        "of the labels, with an interval over seeds and clusters of test rows; 'more than' if its "
        "largest budget does not reach the score. A ratio below 1: transfer needs more labels."
    )
    kept = ("headline", "unit", "label_efficiency")
    return Findings(chapter, {name: {key: of[key] for key in kept} for name, of in evaluations.items()})


def _bounds(entry: Mapping[str, Any]) -> list[str]:
    """The number of labels that a rival needs and the ratio, each with its interval."""
    cells = []
    for values, first, most in (
        (entry["needed"], "labels", entry["most"]),
        (entry["ratio"], "mean", entry["ratio"]["most"]),
    ):
        mean, low, high = (
            f"more than {rounded(most)}" if values[key] is None else rounded(values[key])
            for key in (first, "low", "high")
        )
        cells.append(mean if values["low"] is None else f"{mean} [{low}, {high}]")
    return cells


def _range(ratio: Mapping[str, Any]) -> tuple[float, float, float | None]:
    """Mean, low and high for a figure; a mean beyond the curve of scratch is clipped to its end."""
    return ratio["most"] if ratio["mean"] is None else ratio["mean"], ratio["low"], ratio["high"]
