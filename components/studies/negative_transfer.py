"""Negative transfer: where a pretrained or adapted model does worse than the same family from scratch.

Class by class and slice by slice, at the largest number of labels, with intervals over seeds and test rows
(`components.evaluation.transfer`); and what adaptation made the language model forget of the general text, which it was
measured on before and after.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from components.errors import ArtifactError
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.findings import Findings
from components.studies.base import Study
from components.studies.curves import interval
from components.studies.outputs import Outputs

#: How a language model is measured: the first that its metrics hold.
MEASURES = {"perplexity_per_word": "perplexity a word", "bits_per_character": "bits a character"}
#: Parts in a figure; the table holds them all.
DRAWN = 24


def run(
    outputs: Outputs, *, task: Annotated[str, typer.Option(help="One task; all of run.tasks if not said.")] = ""
) -> Findings:
    """Scratch, pretrained and adapted beside each other, and what adaptation forgot.

    Raises:
        ConfigError: no such task.
        ArtifactError: a task was not evaluated yet, or nothing was both transferred and trained from scratch.
    """
    chapter = Chapter("Where transfer hurts")
    parts: dict[str, Any] = {}
    for name in outputs.tasks(task):
        evaluation = outputs.evaluation(name)
        if not evaluation["transfer"]:
            raise ArtifactError(
                f"{name}: nothing was both transferred and trained from scratch; run.starts must name scratch and "
                "pretrained or adapted"
            )
        parts[name] = evaluation["transfer"]
        for family, budgets in evaluation["transfer"].items():
            _add(chapter, name, family, budgets[-1], evaluation)
    forgetting = _forgetting(outputs)
    if forgetting:
        rows = [
            [family, found["measure"], f"{found['before']:,.2f}", f"{found['after']:,.2f}", f"{found['times']:.2f}"]
            for family, found in forgetting.items()
        ]
        columns = ["family", "of the general text", "pretrained", "adapted", "times as high"]
        chapter.tables.append(Table(columns, rows, "What adaptation made the language models forget"))
    chapter.text.append(
        "Classes are compared by their F1, slices and all rows by the deciding score. Among many parts some fall by "
        "chance: one counts as hurt if the interval of its difference, made wider for the number of parts "
        "(Bonferroni), lies below zero as a whole."
    )
    return Findings(chapter, {"transfer": parts, "forgetting": forgetting})


def _add(chapter: Chapter, task: str, family: str, at: dict[str, Any], evaluation: dict[str, Any]) -> None:
    """Sentences, a table and a figure of one family at its largest budget."""
    labels = f"all {evaluation['unit']}" if at["budget"] < 0 else f"{at['budget']} {evaluation['unit']}"
    starts = list(at["parts"][0]["starts"])
    rows = []
    for part in at["parts"]:
        cells = [_name(part), str(part["rows"]), interval(part["scratch"])]
        for start in starts:
            found = part["starts"].get(start)
            cells += [interval(found["score"]), _signed(found["difference"]), _mark(found)] if found else ["", "", ""]
        rows.append(cells)
    columns = ["part", "rows", "scratch"]
    for start in starts:
        columns += [start, "difference", ""]
    chapter.tables.append(Table(columns, rows, f"{task}: {family} at {labels}"))
    for start in starts:
        found = {_name(part): part["starts"][start] for part in at["parts"] if start in part["starts"]}
        hurt = [name for name, entry in found.items() if entry["hurts"]]
        told = f"hurts on {', '.join(hurt)}" if hurt else f"hurts on none of {len(found) - 1} classes and slices"
        chapter.lead.append(f"{task}, {labels}: {family} {start} {told}.")
        worst = sorted(found.items(), key=lambda entry: entry[1]["difference"]["mean"])[:DRAWN]
        svg = figures.ranges(
            {name: tuple(entry["difference"][bound] for bound in ("mean", "low", "high")) for name, entry in worst},
            x_label=f"{start} less scratch",
            reference=0.0,
        )
        caption = f"{task}: {family} {start} against scratch, the parts that gain least"
        chapter.figures.append(Drawing(svg, f"{caption}, at {labels}."))


def _forgetting(outputs: Outputs) -> dict[str, dict[str, Any]]:
    """family -> perplexity a word of the general text (bits a character of a model of characters) before and after
    adaptation, and how many times as high."""
    if "adapted" not in outputs.params.run.starts:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for family in outputs.params.run.families:
        path = outputs.encoder_directory(family, "adapted") / "metrics.json"
        metrics = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        for key, measure in MEASURES.items():
            before, after = (metrics.get(f"general_{when}_{key}") for when in ("before", "after"))
            if before and after and family not in found:
                found[family] = {"measure": measure, "before": before, "after": after, "times": after / before}
    return found


def _name(part: dict[str, Any]) -> str:
    return "all rows" if part["part"] == "all" else f"{part['part']} {part['name']}"


def _signed(found: dict[str, float]) -> str:
    return f"{found['mean']:+.3f} [{found['low']:+.3f}, {found['high']:+.3f}]"


def _mark(found: dict[str, Any]) -> str:
    return "hurts" if found["hurts"] else ""


STUDY = Study("negative-transfer", "Which classes and slices does transfer hurt?", run)
