"""Studies of evaluation.json: all systems side by side, by their number of parameters too (Turc et al. 2019; Kaplan et
al. 2020); the three benefits of transfer (Torrey and Shavlik 2010, figure 2); where it hurts; and how many labels it
saves (Howard and Ruder 2018, section 5 and figure 3: 10 to 100 times as many)."""

from collections.abc import Mapping
from typing import Any, Final

from components.core.artifacts import read_json
from components.core.errors import ConfigError, nearest
from components.data.scoring import title
from components.reporting.evaluations import comparison, differences_of, labels_at
from components.reporting.findings import Drawing
from components.settings.systems import System
from components.studies.frame import STAGE_OF, Measured, Outputs, Row, Sheet

PAIR: Final = (
    "no family has both a transferred system and one from scratch; run.starts must name scratch and pretrained or "
    "adapted"
)
TRANSFERRED: Final = "no transferred system was evaluated; run.starts must name pretrained or adapted"
#: Columns of an encoder, of a part of the test set, and of the labels that a rival needs.
SIZES: Final = ("parameters", "perplexity per word")
PARTS: Final = ("score", "difference", "corrected", "hurts")
NEEDED: Final = ("system", "labels", "score", "against", "needs", "ratio")


def _curves(evaluations: Mapping[str, Any]) -> list[Drawing]:
    return [Drawing((drawn := comparison(of)).svg, f"{name}: {drawn.caption}") for name, of in evaluations.items()]


def systems(outputs: Outputs, *, task: str = "", family: str = "", system: str = "") -> Measured:
    """Size, perplexity and scores on test of every system, and the paired difference of `system` to each other one."""
    sheets, blocks = list[Sheet](), {name: of.family or name for name, of in outputs.params.pretrain.items()}
    for name, of in outputs.evaluations(task, "systems", needs="no system was evaluated").items():
        labels, rows = [labels_at(budget, of["unit"]) for budget in of["budgets"]], dict[str, Row]()
        last, seconds = labels[-1], f"seconds, {labels[-1]}"
        for entry in of["systems"]:
            if family in ("", blocks.get(entry["family"])):
                row = {"system": entry["system"]} | _sizes(outputs, System.of(entry["family"], entry["start"]))
                row |= dict.fromkeys([*labels, seconds])
                for each in entry["budgets"]:
                    at = labels_at(each["budget"], of["unit"])
                    row[at] = each["scores"][of["main"]]
                    row[seconds] = each["training"]["seconds"] if at == last else None
                rows[entry["system"]] = row
        first = system or max(rows, key=lambda each: (rows[each][last] or {"mean": -1.0})["mean"])
        if first not in rows:
            raise ConfigError(f"--system: unknown system {first!r}{nearest(first, rows)}")
        differences = differences_of(of, of["budgets"][-1])
        for each, row in rows.items():
            row[f"{first} minus it, {last}"] = differences.get((first, each))
        shown = sorted(rows.values(), key=lambda row: (family and row["parameters"]) or 0)
        forms = {"perplexity per word": ",.1f", seconds: ".1f"}
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
    titles = {f"{name} ({title(of['main'])})": of["benefits"] for name, of in evaluations.items()}
    sheets = [Sheet(rows, about, value="difference", reference=0.0) for about, rows in titles.items()]
    return Measured(sheets, figures=_curves(evaluations))


def negative_transfer(outputs: Outputs, *, task: str = "") -> Measured:
    """Scratch, pretrained and adapted for each part of the test set."""
    sheets = []
    for name, of in outputs.evaluations(task, "transfer", needs=PAIR).items():
        rows = [
            {"system": f"{family}-{start}", "part": f"{part['part']} {part['name'] or 'rows'}", "rows": part["rows"]}
            | {"scratch": part["scratch"], **{key: entry[key] for key in PARTS}}
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
        names = {"labels": of["unit"], "score": title(of["main"])}
        rows = [{names.get(key, key): row[key] for key in NEEDED} for row in of["label_efficiency"]]
        forms, by = dict.fromkeys((of["unit"], "needs", "ratio"), ".3g"), ("system", of["unit"], "against")
        sheets.append(Sheet(rows, name, forms, "ratio", by=by, reference=1.0, logarithmic=True))
    lead = [f"{name}: {of['headline']}" for name, of in evaluations.items() if of["headline"]]
    return Measured(sheets, lead=lead, figures=_curves(evaluations))
