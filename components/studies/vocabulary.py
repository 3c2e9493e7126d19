"""How well the vocabularies of a run fit their text: whole, and script by script.

The numbers are those of the stage `tokenizer` (components.tokenization.report): shares and rates on the sample of the
corpus that the vocabulary was learned from.
"""

from __future__ import annotations

import json
from typing import Any

from components.artifacts import MANIFEST
from components.errors import ArtifactError
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.findings import Findings
from components.studies.base import Study
from components.studies.outputs import Outputs

#: Scripts with a smaller share of the words are left to the JSON.
SHARE = 0.001


def run(outputs: Outputs) -> Findings:
    """The vocabulary report of every tokenizer below the run's folder.

    Raises:
        ArtifactError: no tokenizer was trained yet.
    """
    names = [path.parent.name for path in sorted((outputs.out / "tokenizer").glob(f"[!.]*/{MANIFEST}"))]
    if not names:
        raise ArtifactError(
            f"{outputs.out / 'tokenizer'}: no vocabulary yet; run `headstart stage tokenizer --item "
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
    columns = ["vocabulary", "pieces", "alphabet", "non-initial", "pieces a word", "characters a piece", "unknown"]
    scripts = ["vocabulary", "script", "share of words", "its pieces", "pieces a word", "unknown"]
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
            f"{best} cuts its text least: {found[best]['pieces_per_word']:.2f} pieces a word, "
            f"{found[best]['unknown_rate']:.2%} of them unknown."
        ],
        text=[
            "Non-initial pieces only go on with a word. Scripts are those of a word's first letter; 'none' are numbers "
            "and signs. To stand beside: BERT's multilingual vocabulary has 119,547 pieces, 36.5% of them non-initial."
        ],
        tables=[Table(columns, whole), Table(scripts, by_script, "By script")],
        figures=[Drawing(figures.bars(heights, x_label="pieces a word", form="{:.2f}"), "Pieces a word, by script.")],
    )
    return Findings(chapter, found)


def _read(outputs: Outputs, name: str) -> dict[str, Any]:
    path = outputs.directory("tokenizer", name, stage=f"tokenizer --item {name}") / "report.json"
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArtifactError(f"{path}: missing; run the tokenizer stage again") from error
    return report


def _large(report: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {name: part for name, part in report["scripts"].items() if part["share_of_words"] >= SHARE}


STUDY = Study("vocabulary", "How well do the vocabularies fit the text, language by language?", run)
