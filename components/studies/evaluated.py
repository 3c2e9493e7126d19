"""Studies of evaluation.json: all systems side by side, by their number of parameters too (Turc et al. 2019; Kaplan et
al. 2020); the three benefits of transfer (Torrey and Shavlik 2010, figure 2); where it hurts; and how many labels it
saves (Howard and Ruder 2018, section 5 and figure 3: 10 to 100 times as many)."""

from collections.abc import Mapping
from typing import Any, Final

from components.core.artifacts import read_json
from components.core.errors import ConfigError, nearest
from components.data.scoring import title
from components.reporting.evaluations import comparison, differences_of, labels_at
from components.reporting.findings import Drawing, interval_of
from components.settings.systems import System
from components.studies.frame import STAGE_OF, Measured, Outputs, Row, Sheet

PAIR: Final = (
    "no family has both a transferred system and one from scratch; run.starts must name scratch and pretrained or "
    "adapted"
)
TRANSFERRED: Final = "no transferred system was evaluated; run.starts must name pretrained or adapted"
#: Columns of an encoder, and of a part of the test set.
SIZES: Final = ("parameters", "perplexity per word")
PARTS: Final = ("score", "difference", "corrected", "hurts")


def _row(values: Mapping[str, Any]) -> Row:
    """A row of evaluation.json with its intervals."""
    return {key: interval_of(value) if isinstance(value, Mapping) else value for key, value in values.items()}


def _curves(evaluations: Mapping[str, Any]) -> list[Drawing]:
    drawn = {name: comparison(of) for name, of in evaluations.items()}
    return [Drawing(of.svg, f"{name}: {of.caption}") for name, of in drawn.items()]


def systems(outputs: Outputs, *, task: str = "", family: str = "", system: str = "") -> Measured:
    """Size, perplexity and scores on test of every system, and the paired difference of `system` to each other one."""
    sheets, blocks = list[Sheet](), {name: of.family or name for name, of in outputs.params.pretrain.items()}
    for name, of in outputs.evaluations(task, "systems", needs="no system was evaluated").items():
        labels = {budget: labels_at(budget, of["unit"]) for budget in of["budgets"]}
        last, rows = labels[of["budgets"][-1]], dict[str, Row]()
        for entry in of["systems"]:
            if family in ("", blocks.get(entry["family"])):
                cells = {labels[each["budget"]]: each for each in entry["budgets"]}
                row = {"system": entry["system"]} | _sizes(outputs, System.of(entry["family"], entry["start"]))
                row |= dict.fromkeys(labels.values()) | {at: each["scores"][of["main"]] for at, each in cells.items()}
                seconds = cells[last]["training"]["seconds"] if last in cells else None
                rows[entry["system"]] = _row(row | {f"seconds, {last}": seconds})
        first = system or max(rows, key=lambda each: rows[each][last].mean if rows[each][last] else -1.0)
        if first not in rows:
            raise ConfigError(f"--system: unknown system {first!r}{nearest(first, rows)}")
        differences = differences_of(of, of["budgets"][-1])
        for each, row in rows.items():
            row |= _row({f"{first} minus it, {last}": differences.get((first, each))})
        shown = sorted(rows.values(), key=lambda row: (family and row["parameters"]) or 0)
        forms = {"perplexity per word": ",.1f", f"seconds, {last}": ".1f"}
        sheets.append(Sheet(shown, f"{name} ({title(of['main'])})", forms, last))
    return Measured(sheets)


def _sizes(outputs: Outputs, system: System) -> Row:
    """Parameters and perplexity of a system's encoder; None for systems without one."""
    metrics = dict[str, Any]()
    if system.family in outputs.params.pretrain and system.start in STAGE_OF:
        path = outputs.encoder_directory(system.family, system.start) / "metrics.json"
        metrics = read_json(path, made_by="the stage pretrain", missing_ok=True)
    return {name: metrics.get(name.replace(" ", "_")) for name in SIZES}


def benefits(outputs: Outputs, *, task: str = "") -> Measured:
    """The benefits of every transferred system over the same family from scratch."""
    evaluations = outputs.evaluations(task, "benefits", needs=PAIR)
    sheets = [
        Sheet([*map(_row, of["benefits"])], f"{name} ({title(of['main'])})", value="difference", reference=0.0)
        for name, of in evaluations.items()
    ]
    return Measured(sheets, figures=_curves(evaluations))


def negative_transfer(outputs: Outputs, *, task: str = "") -> Measured:
    """Scratch, pretrained and adapted for each part of the test set."""
    sheets = []
    for name, of in outputs.evaluations(task, "transfer", needs=PAIR).items():
        rows = [
            _row(
                {"system": f"{family}-{start}", "part": f"{part['part']} {part['name'] or 'rows'}"}
                | {"rows": part["rows"], "scratch": part["scratch"]}
                | {key: entry[key] for key in PARTS}
            )
            for family, budgets in of["transfer"].items()
            for part in budgets[-1]["parts"]
            for start, entry in part["starts"].items()
        ]
        about = f"{name} at {labels_at(of['budgets'][-1], of['unit'])}"
        sheets.append(Sheet(rows, about, value="corrected", reference=0.0))
    return Measured(sheets)


def label_efficiency(outputs: Outputs, *, task: str = "") -> Measured:
    """The number of labels with which scratch and the best baseline reach the score of each transferred system."""
    evaluations, sheets = outputs.evaluations(task, "label_efficiency", needs=TRANSFERRED), list[Sheet]()
    for name, of in evaluations.items():
        unit, forms = of["unit"], dict.fromkeys((of["unit"], "needs", "ratio"), ".3g")
        names = {"system": "system", "labels": unit, "score": title(of["main"])}
        names |= {key: key for key in ("against", "needs", "ratio")}
        rows = [_row({as_: row[key] for key, as_ in names.items()}) for row in of["label_efficiency"]]
        by = ("system", unit, "against")
        sheets.append(Sheet(rows, name, forms, "ratio", by=by, reference=1.0, logarithmic=True))
    lead = [f"{name}: {of['headline']}" for name, of in evaluations.items() if of["headline"]]
    return Measured(sheets, lead=lead, figures=_curves(evaluations))
