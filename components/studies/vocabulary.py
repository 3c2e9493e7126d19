"""How well the vocabularies of a run fit held-out text, in total and per script."""

from collections import Counter
from itertools import islice
from typing import Annotated, Any

import numpy as np
import typer

from components.core.artifacts import MANIFEST
from components.core.errors import ArtifactError
from components.data.formats.corpus import read_documents
from components.data.scoring.base import Floats
from components.data.scoring.intervals import CONFIDENCE, Interval, interval
from components.reporting import figures
from components.reporting.findings import Drawing
from components.studies.frame import Measured, Outputs, Row, Sheet
from components.tokenization import load_tokenizer
from components.tokenization.train import count_words, report_on_words

#: Scripts with a smaller fraction of the words are left out.
SHARE = 0.001
#: Column -> key of the report.
WHOLE = {
    "pieces": "vocabulary",
    "alphabet": "alphabet",
    "non-initial": "non_initial_share",
    "pieces per word": "pieces_per_word",
    "characters per piece": "characters_per_piece",
    "unknown": "unknown_rate",
}
BY_SCRIPT = {"share of words": "share_of_words"} | {
    name: WHOLE[name] for name in ("pieces", "pieces per word", "unknown")
}
FORMS = {"non-initial": ".1%", "unknown": ".3%", "share of words": ".1%"}
#: Parts of the documents that the intervals leave out one by one.
PARTS = 20


def measure(
    outputs: Outputs,
    *,
    documents: Annotated[int, typer.Option(help="Number of held-out documents of a corpus.", min=2)] = 2000,
) -> Measured:
    """The vocabulary report of every tokenizer of the run on the held-out text of its corpus."""
    names = [path.parent.name for path in sorted((outputs.out / "tokenizer").glob(f"[!.]*/{MANIFEST}"))]
    if not names:
        raise ArtifactError(
            f"{outputs.out / 'tokenizer'}: has no vocabulary; run `headstart stage tokenizer --item "
            f"general-{outputs.params.tokenizer.kinds[0]}` (or `headstart retrain`) first"
        )
    rows, scripts = list[Row](), list[Row]()
    for name in names:
        tokenizer = load_tokenizer(outputs.directory("tokenizer", name, stage=f"tokenizer --item {name}"))
        texts = islice(read_documents(outputs.corpus(name.partition("-")[0]), "heldout"), documents)
        spaced = list(map(tokenizer.segmentation.spaced, texts))
        parts = [count_words(part) for part in (spaced[at::PARTS] for at in range(PARTS)) if part]
        if not parts:
            raise ArtifactError(f"{name}: its corpus has no held-out text; raise ingest.heldout")
        report = report_on_words(tokenizer, sum(parts, Counter()))
        sums = np.asarray([_sums(report_on_words(tokenizer, part)) for part in parts])
        row = {"vocabulary": name} | {column: report[key] for column, key in WHOLE.items()}
        rows.append(row | {"pieces per word": rate(sums[:, 1], sums[:, 2]), "unknown": rate(sums[:, 0], sums[:, 1])})
        scripts += [
            {"vocabulary": name, "script": script} | {column: part[key] for column, key in BY_SCRIPT.items()}
            for script, part in report["scripts"].items()
            if part["share_of_words"] >= SHARE
        ]
    rows.sort(key=lambda row: row["pieces per word"].mean)
    fewest, unknown = rows[0]["pieces per word"].mean, rows[0]["unknown"].mean
    lead = f"{rows[0]['vocabulary']} has the fewest pieces per word: {fewest:.2f}, of which {unknown:.2%} are unknown."
    heights = {
        f"{row['vocabulary']}, {row['script']}": row["pieces per word"] for row in scripts if row["script"] != "none"
    }
    drawing = Drawing(figures.bars(heights, x_label="pieces per word", form="{:.2f}"), "Pieces per word, by script.")
    text = (
        "Non-initial pieces continue a word. The script of a word is the script of its first letter; 'none' are "
        "numbers and symbols. For comparison, BERT's multilingual vocabulary has 119,547 pieces, 36.5% of them "
        "non-initial. Intervals are over parts of the documents."
    )
    sheets = [Sheet(rows, "Held-out text", FORMS), Sheet(scripts, "By script", FORMS)]
    return Measured(sheets, [lead], [text], [drawing])


def _sums(report: dict[str, Any]) -> tuple[float, float, float]:
    """The numbers of unknown pieces, pieces and words."""
    pieces = report["words"] * report["pieces_per_word"]
    return pieces * report["unknown_rate"], pieces, report["words"]


def rate(above_P: Floats, below_P: Floats) -> Interval:
    """The ratio of two sums over parts, with the interval by leaving out each part."""
    without_P = (above_P.sum() - above_P) / np.maximum(below_P.sum() - below_P, 1)
    value = np.asarray([above_P.sum() / max(below_P.sum(), 1)])
    return interval(value, without_P[None], np.ones(len(above_P)), confidence=CONFIDENCE, within=(0, 1e9))
