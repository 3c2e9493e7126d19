"""Studies of evaluation.json: all systems side by side, by their number of parameters too (Turc et al. 2019; Kaplan et
al. 2020); the three benefits of transfer (Torrey and Shavlik 2010, figure 2); where it hurts; and how many labels it
saves (Howard and Ruder 2018, section 5 and figure 3: 10 to 100 times as many)."""

from collections.abc import Mapping
from typing import Any

from components.core.artifacts import read_json
from components.core.errors import ConfigError, nearest
from components.data.scoring import title
from components.reporting.evaluations import comparison, differences_of, labels_at
from components.reporting.findings import Drawing
from components.settings.systems import System
from components.studies.frame import STAGE_OF, Outputs, Parts, Row, Sheet

PAIR = (
    "no family has both a transferred system and one from scratch; run.starts must name scratch and pretrained or "
    "adapted"
)
TRANSFERRED = "no transferred system was evaluated; run.starts must name pretrained or adapted"
#: Columns of an encoder, of a part of the test set, and of the labels that a rival needs.
SIZES = ("parameters", "perplexity per word")
PARTS = ("score", "difference", "corrected", "hurts")
NEEDED = ("system", "labels", "score", "against", "needs", "ratio")


def _curve(name: str, evaluation: Mapping[str, Any]) -> Drawing:
    return Drawing((drawn := comparison(evaluation)).svg, f"{name}: {drawn.caption}")


def systems(outputs: Outputs, *, task: str = "", family: str = "", system: str = "") -> Parts:
    """Size, perplexity and scores on test of every system, and the paired difference of `system` to each other one."""
    blocks = {name: of.family or name for name, of in outputs.params.pretrain.items()}
    for name, of in outputs.evaluations(task, "systems", needs="no system was evaluated").items():
        labels, rows = [labels_at(budget, of["unit"]) for budget in of["budgets"]], dict[str, Row]()
        last, seconds = labels[-1], f"seconds, {labels[-1]}"
        for entry in of["systems"]:
            if family in ("", blocks.get(entry["family"])):
                system_of, metrics = System.of(entry["family"], entry["start"]), dict[str, Any]()
                if system_of.family in outputs.params.pretrain and system_of.start in STAGE_OF:
                    path = outputs.encoder_directory(system_of.family, system_of.start) / "metrics.json"
                    metrics = read_json(path, made_by="the stage pretrain", missing_ok=True)
                row = {"system": entry["system"], **{key: metrics.get(key.replace(" ", "_")) for key in SIZES}}
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
        yield Sheet(shown, f"{name} ({title(of['main'])})", forms, last)


def benefits(outputs: Outputs, *, task: str = "") -> Parts:
    """The benefits of every transferred system over the same family from scratch."""
    for name, of in outputs.evaluations(task, "benefits", needs=PAIR).items():
        yield _curve(name, of)
        yield Sheet(of["benefits"], f"{name} ({title(of['main'])})", value="difference", reference=0.0)


def negative_transfer(outputs: Outputs, *, task: str = "") -> Parts:
    """Scratch, pretrained and adapted for each part of the test set."""
    for name, of in outputs.evaluations(task, "transfer", needs=PAIR).items():
        rows = [
            {"system": f"{family}-{start}", "part": f"{part['part']} {part['name'] or 'rows'}", "rows": part["rows"]}
            | {"scratch": part["scratch"], **{key: entry[key] for key in PARTS}}
            for family, budgets in of["transfer"].items()
            for part in budgets[-1]["parts"]
            for start, entry in part["starts"].items()
        ]
        about = f"{name} at {labels_at(of['budgets'][-1], of['unit'])}"
        yield Sheet(rows, about, value="corrected", reference=0.0)


def label_efficiency(outputs: Outputs, *, task: str = "") -> Parts:
    """The number of labels with which scratch and the best baseline reach the score of each transferred system."""
    for name, of in outputs.evaluations(task, "label_efficiency", needs=TRANSFERRED).items():
        names = {"labels": of["unit"], "score": title(of["main"])}
        rows = [{names.get(key, key): row[key] for key in NEEDED} for row in of["label_efficiency"]]
        forms, by = dict.fromkeys((of["unit"], "needs", "ratio"), ".3g"), ("system", of["unit"], "against")
        yield _curve(name, of)
        headline = of["headline"] and f"{name}: {of['headline']}"
        yield Sheet(rows, name, forms, "ratio", by=by, reference=1.0, logarithmic=True, headline=headline)
