"""Negative transfer: where a pretrained or adapted model is worse than the same family trained from scratch.

For each class and slice at the largest label budget, with intervals over seeds and test rows
(`components.evaluation.transfer`). Forgetting is measured by the language model's perplexity on the general text before
and after adaptation.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from components.artifacts import read_json
from components.errors import ArtifactError
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.findings import Findings
from components.studies.base import Study
from components.studies.curves import interval
from components.studies.outputs import Outputs

#: Measures of a language model, in order of preference.
MEASURES = {"perplexity_per_word": "perplexity per word", "bits_per_character": "bits per character"}
#: Maximum number of parts in a figure; the table contains all.
PLOTTED = 24


def run(
    outputs: Outputs, *, task: Annotated[str, typer.Option(help="Task; all of run.tasks by default.")] = ""
) -> Findings:
    """Scratch, pretrained and adapted for each part of the test set, and forgetting by adaptation.

    Raises:
        ConfigError: unknown task.
        ArtifactError: a task is not evaluated, or no family has both a transferred system and one from scratch.
    """
    chapter = Chapter("Where transfer hurts")
    parts: dict[str, Any] = {}
    for name in outputs.tasks(task):
        evaluation = outputs.evaluation(name)
        if not evaluation["transfer"]:
            raise ArtifactError(
                f"{name}: no family has both a transferred system and one from scratch; run.starts must name scratch "
                "and pretrained or adapted"
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
        columns = ["family", "on general text", "pretrained", "adapted", "ratio"]
        chapter.tables.append(Table(columns, rows, "Forgetting of the language models by adaptation"))
    chapter.text.append(
        "Classes are compared by F1, slices and all rows by the primary metric. Among many parts some decrease by "
        "chance: a part counts as hurt if the Bonferroni-corrected interval of its difference is below zero."
    )
    return Findings(chapter, {"transfer": parts, "forgetting": forgetting})


def _add(chapter: Chapter, task: str, family: str, at: dict[str, Any], evaluation: dict[str, Any]) -> None:
    """Add the sentences, the table and the figures of one family at its largest budget."""
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
        verdict = f"hurts on {', '.join(hurt)}" if hurt else f"hurts on none of {len(found) - 1} classes and slices"
        chapter.lead.append(f"{task}, {labels}: {family} {start} {verdict}.")
        worst = sorted(found.items(), key=lambda entry: entry[1]["difference"]["mean"])[:PLOTTED]
        svg = figures.ranges(
            {name: tuple(entry["difference"][bound] for bound in ("mean", "low", "high")) for name, entry in worst},
            x_label=f"{start} minus scratch",
            reference=0.0,
        )
        caption = f"{task}: {family} {start} against scratch, the parts with the smallest gain"
        chapter.figures.append(Drawing(svg, f"{caption}, at {labels}."))


def _forgetting(outputs: Outputs) -> dict[str, dict[str, Any]]:
    """Family -> {measure, before, after, times}: perplexity per word on general text (bits per character for a
    character model) before and after adaptation, and their ratio."""
    if "adapted" not in outputs.params.run.starts:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for family in outputs.params.run.families:
        path = outputs.encoder_directory(family, "adapted") / "metrics.json"
        metrics = read_json(path, made_by="the stage adapt", missing_ok=True)
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
