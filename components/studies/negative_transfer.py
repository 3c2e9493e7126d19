"""Negative transfer: where a pretrained or adapted model is worse than the same family trained from scratch, by class
and slice (`components.evaluation.compare`); and forgetting, by the perplexity on the general text before and after
adaptation."""

from __future__ import annotations

from typing import Any

from components.core.artifacts import read_json
from components.reporting import figures
from components.reporting.findings import Chapter, Drawing, Findings, Table
from components.studies.benefits import PAIR
from components.studies.frame import EveryTask, Outputs, Study, bounds

#: Measures of a language model, in order of preference.
MEASURES = {"perplexity_per_word": "perplexity per word", "bits_per_character": "bits per character"}
#: Maximum number of parts in a figure; the table contains all.
PLOTTED = 24


def run(outputs: Outputs, *, task: EveryTask = "") -> Findings:
    """Scratch, pretrained and adapted for each part of the test set, and forgetting by adaptation."""
    chapter = Chapter("Where transfer hurts")
    evaluations = outputs.evaluations(task, "transfer", needs=PAIR)
    for name, evaluation in evaluations.items():
        for family, budgets in evaluation["transfer"].items():
            _add(chapter, name, family, budgets[-1], unit=evaluation["unit"])
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


def _add(chapter: Chapter, task: str, family: str, at: dict[str, Any], *, unit: str) -> None:
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


STUDY = Study("negative-transfer", "Which classes and slices does transfer hurt?", run)
