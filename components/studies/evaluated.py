"""Studies of evaluation.json: all systems side by side, by their number of parameters too (Turc et al. 2019; Kaplan et
al. 2020); the three benefits of transfer (Torrey and Shavlik 2010, figure 2); where it hurts; and how many labels it
saves (Howard and Ruder 2018, section 5 and figure 3: 10 to 100 times as many)."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from components.core.artifacts import read_json
from components.core.errors import ConfigError, nearest
from components.data.scoring import title
from components.reporting.evaluations import comparison, differences_of, labels_at
from components.reporting.findings import Drawing, interval_of
from components.settings.systems import System
from components.studies.frame import STAGE_OF, EveryTask, Measured, Outputs, Row, Sheet

PAIR: Final = (
    "no family has both a transferred system and one from scratch; run.starts must name scratch and pretrained or "
    "adapted"
)
#: Columns of a part of the test set.
PARTS: Final = ("score", "difference", "corrected", "hurts")


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
        budgets, main, rows = evaluation["budgets"], evaluation["main"], dict[str, Row]()
        labels = {budget: labels_at(budget, evaluation["unit"]) for budget in budgets}
        last = labels[budgets[-1]]
        for entry in evaluation["systems"]:
            of = entry["family"]
            if not family or (of in blocks and (blocks[of].family or of) == family):
                scores = {labels[each["budget"]]: interval_of(each["scores"][main]) for each in entry["budgets"]}
                rows[entry["system"]] = {"system": entry["system"], **_sizes(outputs, entry)}
                rows[entry["system"]] |= {label: scores.get(label) for label in labels.values()}
        first = system or max(rows, key=lambda of: rows[of][last].mean if rows[of][last] else -1.0)
        if first not in rows:
            raise ConfigError(f"--system: unknown system {first!r}{nearest(first, rows)}")
        differences = differences_of(evaluation, budgets[-1])
        for other, row in rows.items():
            pair = differences.get((first, other))
            row[f"{first} minus it, {last}"] = pair and interval_of(pair)
        ordered = sorted(rows.values(), key=lambda row: (family and row["parameters"]) or 0)
        about = f"{name} ({title(main)})"
        sheets.append(Sheet(ordered, about, {"perplexity per word": ",.1f"}, last))
    text = (
        "Scores are on test, with intervals over seeds and test rows; differences are paired by both. The perplexity "
        "is on held-out text of the corpus of the last language model training."
    )
    return Measured(sheets, [text])


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


def _curves(evaluations: Mapping[str, Mapping[str, Any]]) -> list[Drawing]:
    drawn = {name: comparison(of) for name, of in evaluations.items()}
    return [Drawing(of.svg, f"{name}: {of.caption}") for name, of in drawn.items()]


def benefits(outputs: Outputs, *, task: EveryTask = "") -> Measured:
    """The benefits of every transferred system over the same family from scratch."""
    evaluations = outputs.evaluations(task, "benefits", needs=PAIR)
    sheets = [
        Sheet([*map(_intervals, of["benefits"])], f"{name} ({title(of['main'])})", value="difference", reference=0.0)
        for name, of in evaluations.items()
    ]
    text = (
        "Against epochs (dev, the largest label budget): the start is a head on frozen features, the slope is the "
        "gain per epoch up to 90% of the gain, the asymptote is the best score. Against labels (test): the start is "
        "the smallest budget, the slope the gain per doubling, the asymptote the largest budget. Intervals are over "
        "seeds."
    )
    return Measured(sheets, [text], figures=_curves(evaluations))


def negative_transfer(outputs: Outputs, *, task: EveryTask = "") -> Measured:
    """Scratch, pretrained and adapted for each part of the test set."""
    sheets = []
    for name, evaluation in outputs.evaluations(task, "transfer", needs=PAIR).items():
        rows = [
            {"system": f"{family}-{start}", "part": f"{part['part']} {part['name'] or 'rows'}", "rows": part["rows"]}
            | _intervals({"scratch": part["scratch"]} | {key: entry[key] for key in PARTS})
            for family, budgets in evaluation["transfer"].items()
            for part in budgets[-1]["parts"]
            for start, entry in part["starts"].items()
        ]
        about = f"{name} at {labels_at(evaluation['budgets'][-1], evaluation['unit'])}"
        sheets.append(Sheet(rows, about, value="corrected", reference=0.0))
    text = (
        "Classes are compared by F1, slices and all rows by the primary metric. Among many parts some decrease by "
        "chance: `corrected` has the Bonferroni-corrected bounds over all parts, starts and families; `hurts`: they "
        "are below zero, those of all rows at 95%."
    )
    return Measured(sheets, [text])


def label_efficiency(outputs: Outputs, *, task: EveryTask = "") -> Measured:
    """The number of labels with which scratch and the best baseline reach the score of each transferred system."""
    needs, sheets = "no transferred system was evaluated; run.starts must name pretrained or adapted", list[Sheet]()
    evaluations = outputs.evaluations(task, "label_efficiency", needs=needs)
    for name, of in evaluations.items():
        names = {"system": "system", "labels": of["unit"], "score": title(of["main"])}
        names |= {key: key for key in ("against", "needs", "ratio")}
        rows = [_intervals({as_: row[key] for key, as_ in names.items()}) for row in of["label_efficiency"]]
        forms, by = dict.fromkeys((of["unit"], "needs", "ratio"), ".3g"), ("system", of["unit"], "against")
        sheets.append(Sheet(rows, name, forms, "ratio", by=by, reference=1.0, logarithmic=True))
    text = (
        "The number of labels that a rival needs is interpolated in its curve of mean test scores over the logarithm "
        "of the labels, with an interval over seeds and clusters of test rows; inf if its largest budget does not "
        "reach the score. A ratio below 1: transfer needs more labels."
    )
    lead = [f"{name}: {of['headline']}" for name, of in evaluations.items() if of["headline"]]
    return Measured(sheets, [text], lead, _curves(evaluations))
