"""Studies of evaluation.json: all systems side by side, by their number of parameters too (Turc et al. 2019; Kaplan et
al. 2020); the three benefits of transfer (Torrey and Shavlik 2010, figure 2); where it hurts, and what adaptation
forgets; and how many labels it saves (Howard and Ruder 2018, section 5 and figure 3: 10 to 100 times as many)."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from components.core.artifacts import read_json
from components.core.errors import ConfigError, nearest
from components.data.scoring import title
from components.data.scoring.intervals import Interval
from components.reporting import figures
from components.reporting.evaluations import label_curves, labels_at, training_curves
from components.reporting.findings import Drawing, interval_of
from components.settings.systems import System
from components.studies.frame import STAGE_OF, EveryTask, Measured, Outputs, Row, Sheet

PAIR = (
    "no family has both a transferred system and one from scratch; run.starts must name scratch and pretrained or "
    "adapted"
)
#: Measures of a language model, in order of preference.
PERPLEXITIES = {"perplexity_per_word": "perplexity per word", "bits_per_character": "bits per character"}


def systems(
    outputs: Outputs,
    *,
    task: EveryTask = "",
    family: Annotated[str, typer.Option(help="Family whose sizes are compared; all systems by default.")] = "",
    system: Annotated[str, typer.Option(help="System that others are compared with; the best by default.")] = "",
) -> Measured:
    """Size, perplexity and scores on test of every system, and the paired difference of `system` to each other one."""
    sheets, blocks = list[Sheet](), outputs.params.pretrain
    for name, evaluation in outputs.evaluations(task, "systems", needs="no system was evaluated").items():
        main, largest = evaluation["main"], evaluation["budgets"][-1]
        labels = {budget: labels_at(budget, evaluation["unit"]) for budget in evaluation["budgets"]}
        rows: dict[str, Row] = {}
        for entry in evaluation["systems"]:
            of = entry["family"]
            if family and (of not in blocks or (blocks[of].family or of) != family):
                continue
            scores = {cell["budget"]: interval_of(cell["scores"][main]) for cell in entry["budgets"]}
            cells = {label: scores.get(budget) for budget, label in labels.items()}
            rows[entry["system"]] = {"system": entry["system"], **_sizes(outputs, entry), **cells}
        last = labels[largest]
        first = system or max(rows, key=lambda of: rows[of][last].mean if rows[of][last] else -1.0)
        if first not in rows:
            raise ConfigError(f"--system: unknown system {first!r}{nearest(first, rows)}")
        for other, row in rows.items():
            row[f"{first} minus it, {last}"] = _difference(evaluation, largest, first, other)
        about, forms = f"{name} ({title(main)})", {"perplexity per word": ",.1f"}
        ordered = sorted(rows.values(), key=lambda row: (family and row["parameters"]) or 0)
        sheets.append(Sheet(ordered, about, forms, last))
    text = (
        "Scores are on test, with intervals over seeds and test rows; differences are paired by both. The perplexity "
        "is on held-out text of the corpus of the last language model training."
    )
    return Measured(sheets, [text])


def _difference(evaluation: Mapping[str, Any], budget: int, first: str, other: str) -> Interval | None:
    listed = evaluation["differences"].get(str(budget), {})
    if entry := listed.get(first, {}).get(other):
        return interval_of(entry)
    entry = listed.get(other, {}).get(first)
    return Interval(-entry["mean"], -entry["high"], -entry["low"]) if entry else None


def _sizes(outputs: Outputs, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters and perplexity of a system's encoder; None for systems without one."""
    system, metrics = System.of(entry["family"], entry["start"]), dict[str, Any]()
    if system.family in outputs.params.pretrain and system.start in STAGE_OF:
        directory = outputs.encoder_directory(system.family, system.start)
        metrics = read_json(directory / "metrics.json", made_by="the stage pretrain", missing_ok=True)
    return {name: metrics.get(name.replace(" ", "_")) for name in ("parameters", "perplexity per word")}


def _intervals(row: Mapping[str, Any]) -> Row:
    """A row of evaluation.json with its intervals."""
    return {key: interval_of(value) if isinstance(value, Mapping) else value for key, value in row.items()}


def benefits(outputs: Outputs, *, task: EveryTask = "") -> Measured:
    """The benefits of every transferred system over the same family from scratch."""
    sheets, drawings = list[Sheet](), list[Drawing]()
    for name, evaluation in outputs.evaluations(task, "benefits", needs=PAIR).items():
        main = title(evaluation["main"])
        rows = [_intervals(row) for row in evaluation["benefits"]]
        sheets.append(Sheet(rows, f"{name} ({main})", value="difference", reference=0.0))
        drawings.append(_label_figure(name, evaluation))
        if training := training_curves(evaluation):
            svg = figures.lines(training, x_label="epochs of fine-tuning", y_label=main)
            drawings.append(Drawing(svg, f"{name}: fine-tuning with the largest label budget, on dev."))
    text = (
        "Against epochs (dev, the largest label budget): the start is a head on frozen features, the slope is the "
        "gain per epoch up to 90% of the gain, the asymptote is the best score. Against labels (test): the start is "
        "the smallest budget, the slope the gain per doubling, the asymptote the largest budget. Intervals are over "
        "seeds."
    )
    return Measured(sheets, [text], figures=drawings)


def _label_figure(task: str, evaluation: Mapping[str, Any]) -> Drawing:
    frozen = {of["system"] for of in evaluation["systems"] if System.of(of["family"], of["start"]).frozen}
    lines = {name: line for name, line in label_curves(evaluation).items() if name not in frozen}
    labels = {"x_label": evaluation["unit"], "y_label": title(evaluation["main"])}
    svg = figures.lines(lines, **labels, logarithmic=True, ticks=True)
    return Drawing(svg, f"{task}: score against labels; dashed: without a language model; bands are the intervals.")


def negative_transfer(outputs: Outputs, *, task: EveryTask = "") -> Measured:
    """Scratch, pretrained and adapted for each part of the test set, and forgetting by adaptation."""
    sheets = []
    for name, evaluation in outputs.evaluations(task, "transfer", needs=PAIR).items():
        rows = [
            {
                "system": f"{family}-{start}",
                "part": "all rows" if part["part"] == "all" else f"{part['part']} {part['name']}",
                "rows": part["rows"],
                "scratch": interval_of(part["scratch"]),
                **_intervals({key: entry[key] for key in ("score", "difference", "corrected", "hurts")}),
            }
            for family, budgets in evaluation["transfer"].items()
            for part in budgets[-1]["parts"]
            for start, entry in part["starts"].items()
        ]
        about = f"{name} at {labels_at(evaluation['budgets'][-1], evaluation['unit'])}"
        sheets.append(Sheet(rows, about, value="corrected", reference=0.0))
    forgotten = [row for family in outputs.params.run.families for row in _forgetting(outputs, family)]
    if forgotten:
        forms = dict.fromkeys(("pretrained", "adapted", "ratio"), ",.2f")
        sheets.append(Sheet(forgotten, "Forgetting of the language models by adaptation", forms))
    text = (
        "Classes are compared by F1, slices and all rows by the primary metric. Among many parts some decrease by "
        "chance: `corrected` has the Bonferroni-corrected bounds over all parts, starts and families; `hurts`: they "
        "are below zero, those of all rows at 95%."
    )
    return Measured(sheets, [text])


def _forgetting(outputs: Outputs, family: str) -> list[Row]:
    """Perplexity on general text before and after adaptation (bits per character for a character model)."""
    if "adapted" not in outputs.params.run.starts:
        return []
    path = outputs.encoder_directory(family, "adapted") / "metrics.json"
    metrics = read_json(path, made_by="the stage adapt", missing_ok=True)
    rows = [
        {"family": family, "on general text": about, "pretrained": before, "adapted": after, "ratio": after / before}
        for key, about in PERPLEXITIES.items()
        for before, after in [[metrics.get(f"general_{when}_{key}") for when in ("before", "after")]]
        if before and after
    ]
    return rows[:1]


def label_efficiency(outputs: Outputs, *, task: EveryTask = "") -> Measured:
    """The number of labels with which scratch and the best baseline reach the score of each transferred system."""
    sheets, lead, drawings = list[Sheet](), list[str](), list[Drawing]()
    needs = "no transferred system was evaluated; run.starts must name pretrained or adapted"
    for name, evaluation in outputs.evaluations(task, "label_efficiency", needs=needs).items():
        unit, main = evaluation["unit"], title(evaluation["main"])
        rows = [
            {
                "system": row["system"],
                unit: row["labels"],
                main: row["score"],
                "against": row["against"],
                **{key: interval_of(row[key]) for key in ("needs", "ratio")},
            }
            for row in evaluation["label_efficiency"]
        ]
        lead += [f"{name}: {evaluation['headline']}"] if evaluation["headline"] else []
        forms = dict.fromkeys((unit, "needs", "ratio"), ".3g")
        by = ("system", unit, "against")
        sheets.append(Sheet(rows, name, forms, "ratio", by=by, reference=1.0, logarithmic=True))
        drawings.append(_label_figure(name, evaluation))
    text = (
        "The number of labels that a rival needs is interpolated in its curve of mean test scores over the logarithm "
        "of the labels, with an interval over seeds and clusters of test rows; inf if its largest budget does not "
        "reach the score. A ratio below 1: transfer needs more labels."
    )
    return Measured(sheets, [text], lead, drawings)
