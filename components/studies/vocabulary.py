"""How well the vocabularies of a run fit their text, in total and per script.

The stage `tokenizer` computes the numbers (components.tokenization.report) on the sample of the corpus that the
vocabulary was trained on.
"""

from __future__ import annotations

from typing import Any

from components.artifacts import MANIFEST, read_json
from components.errors import ArtifactError
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.findings import Findings
from components.studies.base import Study
from components.studies.outputs import Outputs

#: Scripts with a smaller fraction of the words are in the JSON only.
SHARE = 0.001


def run(outputs: Outputs) -> Findings:
    """The vocabulary report of every tokenizer of the run.

    Raises:
        ArtifactError: there is no trained tokenizer.
    """
    names = [path.parent.name for path in sorted((outputs.out / "tokenizer").glob(f"[!.]*/{MANIFEST}"))]
    if not names:
        raise ArtifactError(
            f"{outputs.out / 'tokenizer'}: has no vocabulary; run `headstart stage tokenizer --item "
            f"general-{outputs.params.tokenizer.kinds[0]}` (or `headstart retrain`) first"
        )
    found = {name: _read(outputs, name) for name in names}
    whole = [
        [
            name,
            f"{report['vocabulary']:,}",
            f"{report['alphabet']:,}",
            f"{report['non_initial_share']:.1%}",
            f"{report['pieces_per_word']:.3f}",
            f"{report['characters_per_piece']:.2f}",
            f"{report['unknown_rate']:.3%}",
        ]
        for name, report in found.items()
    ]
    by_script = [
        [
            name,
            script,
            f"{part['share_of_words']:.1%}",
            f"{part['vocabulary']:,}",
            f"{part['pieces_per_word']:.3f}",
            f"{part['unknown_rate']:.3%}",
        ]
        for name, report in found.items()
        for script, part in _large(report).items()
    ]
    columns = ["vocabulary", "pieces", "alphabet", "non-initial", "pieces per word", "characters per piece", "unknown"]
    scripts = ["vocabulary", "script", "share of words", "pieces", "pieces per word", "unknown"]
    heights = {
        f"{name}, {script}": part["pieces_per_word"]
        for name, report in found.items()
        for script, part in _large(report).items()
        if script != "none"
    }
    best = min(found, key=lambda name: (found[name]["unknown_rate"] > 0.01, found[name]["pieces_per_word"]))
    chapter = Chapter(
        "Vocabularies",
        lead=[
            f"{best} has the fewest pieces per word: {found[best]['pieces_per_word']:.2f}, of which "
            f"{found[best]['unknown_rate']:.2%} are unknown."
        ],
        text=[
            "Non-initial pieces continue a word. The script of a word is that of its first letter; 'none' are numbers "
            "and symbols. For comparison, BERT's multilingual vocabulary has 119,547 pieces, 36.5% of them non-initial."
        ],
        tables=[Table(columns, whole), Table(scripts, by_script, "By script")],
        figures=[
            Drawing(figures.bars(heights, x_label="pieces per word", form="{:.2f}"), "Pieces per word, by script.")
        ],
    )
    return Findings(chapter, found)


def _read(outputs: Outputs, name: str) -> dict[str, Any]:
    directory = outputs.directory("tokenizer", name, stage=f"tokenizer --item {name}")
    return read_json(directory / "report.json", made_by="the stage tokenizer")


def _large(report: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {name: part for name, part in report["scripts"].items() if part["share_of_words"] >= SHARE}


STUDY = Study("vocabulary", "How well do the vocabularies fit the text, per script?", run)
