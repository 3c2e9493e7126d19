"""All systems of a run side by side: size, perplexity and scores on test; with a family, its blocks by their number of
parameters (Turc et al. 2019; Kaplan et al. 2020)."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from components.core.artifacts import read_json
from components.data.scoring import title
from components.data.scoring.intervals import Interval
from components.data.tasks.budgets import budget_name
from components.reporting import figures
from components.reporting.figures import Line
from components.reporting.findings import Chapter, Drawing, Findings, Table
from components.settings.section import MOST_FREQUENT
from components.settings.systems import System
from components.studies.frame import STAGE_OF, EveryTask, Outputs, band, bounds


def run(
    outputs: Outputs,
    *,
    task: EveryTask = "",
    family: Annotated[str, typer.Option(help="Family whose sizes are compared; all systems by default.")] = "",
) -> Findings:
    """Size, perplexity and scores of every system of a task."""
    chapter, numbers = Chapter("Systems by size" if family else "Systems side by side"), dict[str, Any]()
    needs = "no system was evaluated"
    for name, evaluation in outputs.evaluations(task, "systems", needs=needs).items():
        systems = {
            entry["system"]: _sizes(outputs, entry) | {"start": entry["start"], "scores": _scores(entry, evaluation)}
            for entry in evaluation["systems"]
            if not family or _is_of(outputs, entry, family)
        }
        unit, score = evaluation["unit"], title(evaluation["main"])
        numbers[name] = {"score": evaluation["main"], "unit": unit, "systems": systems}
        budgets = [budget_name(budget) for budget in evaluation["budgets"]]
        columns = ["system", "parameters", "perplexity per word", *(f"{budget} {unit}" for budget in budgets)]
        chapter.tables.append(Table(columns, [_row(*of, budgets) for of in systems.items()], f"{name} ({score})"))
        if family:
            chapter.figures += _by_size(name, systems, budget=budgets[-1], score=score, unit=unit)
        else:
            cells = {
                of: entry["scores"][budgets[-1]] for of, entry in systems.items() if budgets[-1] in entry["scores"]
            }
            ranges = {
                of: (cell["mean"], cell["low"], cell["high"]) for of, cell in cells.items() if of != MOST_FREQUENT
            }
            svg = figures.ranges(ranges, x_label=score, reference=None)
            chapter.figures.append(Drawing(svg, f"{name}: the systems with {budgets[-1]} {unit}."))
        for budget in budgets:
            scores = {of: entry["scores"][budget] for of, entry in systems.items() if budget in entry["scores"]}
            if scores:
                best = max(scores, key=lambda system: scores[system]["mean"])
                chapter.lead.append(f"{name}: with {budget} {unit}, {best} is best: {bounds(scores[best])}.")
    chapter.text.append(
        "Scores are on test, with intervals over seeds and test rows; the perplexity is on held-out text of the corpus "
        "of the last language model training."
    )
    return Findings(chapter, numbers)


def _is_of(outputs: Outputs, entry: Mapping[str, Any], family: str) -> bool:
    block = outputs.params.pretrain.get(entry["family"])
    return block is not None and (block.family or entry["family"]) == family


def _sizes(outputs: Outputs, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters and perplexity of a system's encoder; None for systems without one."""
    system, metrics = System.of(entry["family"], entry["start"]), dict[str, Any]()
    if system.family in outputs.params.pretrain and system.start in STAGE_OF:
        directory = outputs.encoder_directory(system.family, system.start)
        metrics = read_json(directory / "metrics.json", made_by="the stage pretrain", missing_ok=True)
    return {key: metrics.get(key) for key in ("parameters", "perplexity_per_word")}


def _scores(entry: Mapping[str, Any], evaluation: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    main = evaluation["main"]
    return {
        budget_name(cell["budget"]): {key: cell["scores"][main][key] for key in ("mean", "low", "high")}
        for cell in entry["budgets"]
    }


def _row(name: str, of: Mapping[str, Any], budgets: list[str]) -> list[str]:
    size, perplexity = of["parameters"], of["perplexity_per_word"]
    scores = [bounds(of["scores"][budget]) if budget in of["scores"] else "" for budget in budgets]
    return [name, f"{size:,}" if size else "", f"{perplexity:,.1f}" if perplexity else "", *scores]


def _by_size(
    task: str, systems: Mapping[str, Mapping[str, Any]], *, budget: str, score: str, unit: str
) -> list[Drawing]:
    """The perplexity and the score at the largest budget against the number of parameters, a curve for each start."""
    curves: dict[str, list[tuple[float, Interval]]] = {}
    losses: dict[str, list[tuple[float, float]]] = {}
    for of in sorted(systems.values(), key=lambda of: of["parameters"] or 0):
        if of["parameters"] and budget in of["scores"]:
            curves.setdefault(of["start"], []).append((of["parameters"] / 1000, Interval(**of["scores"][budget])))
        if of["parameters"] and of["perplexity_per_word"]:
            losses.setdefault(of["start"], []).append((of["parameters"] / 1000, of["perplexity_per_word"]))
    options: dict[str, Any] = {"x_label": "thousand parameters", "logarithmic": True, "ticks": True}
    drawings = []
    if losses:
        lines = {start: Line([x for x, _ in line], [y for _, y in line]) for start, line in losses.items()}
        svg = figures.lines(lines, y_label="perplexity per word", **options)
        drawings.append(Drawing(svg, f"{task}: perplexity of the language model against its size."))
    if curves:
        lines = {start: band([x for x, _ in line], [of for _, of in line]) for start, line in curves.items()}
        svg = figures.lines(lines, y_label=score, **options)
        drawings.append(Drawing(svg, f"{task}: score against the size of the encoder, {budget} {unit}."))
    return drawings
