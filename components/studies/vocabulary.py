"""How well the vocabularies of a run fit the sample of the corpus that they were trained on, in total and per
script."""

from components.core.artifacts import MANIFEST, read_json
from components.core.errors import ArtifactError
from components.reporting import figures
from components.reporting.findings import Chapter, Drawing, Findings, Table
from components.studies.frame import Outputs

#: Scripts with a smaller fraction of the words are in the JSON only.
SHARE = 0.001
#: Column -> (key of the report, format).
WHOLE = {
    "pieces": ("vocabulary", ",d"),
    "alphabet": ("alphabet", ",d"),
    "non-initial": ("non_initial_share", ".1%"),
    "pieces per word": ("pieces_per_word", ".3f"),
    "characters per piece": ("characters_per_piece", ".2f"),
    "unknown": ("unknown_rate", ".3%"),
}
BY_SCRIPT = {"share of words": ("share_of_words", ".1%")} | {
    name: WHOLE[name] for name in ("pieces", "pieces per word", "unknown")
}


def run(outputs: Outputs) -> Findings:
    """The vocabulary report of every tokenizer of the run."""
    names = [path.parent.name for path in sorted((outputs.out / "tokenizer").glob(f"[!.]*/{MANIFEST}"))]
    if not names:
        raise ArtifactError(
            f"{outputs.out / 'tokenizer'}: has no vocabulary; run `headstart stage tokenizer --item "
            f"general-{outputs.params.tokenizer.kinds[0]}` (or `headstart retrain`) first"
        )
    reports = {}
    for name in names:
        directory = outputs.directory("tokenizer", name, stage=f"tokenizer --item {name}")
        reports[name] = read_json(directory / "report.json", made_by="the stage tokenizer")
    parts = {
        (name, script): part
        for name, report in reports.items()
        for script, part in report["scripts"].items()
        if part["share_of_words"] >= SHARE
    }
    whole = [[name, *(format(report[key], form) for key, form in WHOLE.values())] for name, report in reports.items()]
    scripts = [[*key, *(format(part[name], form) for name, form in BY_SCRIPT.values())] for key, part in parts.items()]
    heights = {
        f"{name}, {script}": part["pieces_per_word"] for (name, script), part in parts.items() if script != "none"
    }
    best = min(reports, key=lambda name: (reports[name]["unknown_rate"] > 0.01, reports[name]["pieces_per_word"]))
    lead = (
        f"{best} has the fewest pieces per word: {reports[best]['pieces_per_word']:.2f}, of which "
        f"{reports[best]['unknown_rate']:.2%} are unknown."
    )
    text = (
        "Non-initial pieces continue a word. The script of a word is the script of its first letter; 'none' are "
        "numbers and symbols. For comparison, BERT's multilingual vocabulary has 119,547 pieces, 36.5% of them "
        "non-initial."
    )
    tables = [Table(["vocabulary", *WHOLE], whole), Table(["vocabulary", "script", *BY_SCRIPT], scripts, "By script")]
    svg = figures.bars(heights, x_label="pieces per word", form="{:.2f}")
    drawing = Drawing(svg, "Pieces per word, by script.")
    return Findings(Chapter("Vocabularies", [lead], [text], tables, [drawing]), reports)
