"""How well the vocabularies of a run fit held-out text, in total and per script."""

from itertools import islice

import numpy as np

from components.core.artifacts import MANIFEST
from components.core.errors import ArtifactError
from components.data.formats.corpus import read_documents
from components.studies.frame import Outputs, Parts, Rows, Sheet, rate
from components.tokenization import load_tokenizer
from components.tokenization.special import UNK
from components.tokenization.train import count_words, report_on_words

#: Scripts with a smaller fraction of the words are left out.
SHARE = 0.001
#: Column -> key of the report by script.
BY_SCRIPT = {"share of words": "share_of_words", "pieces": "vocabulary"}
BY_SCRIPT |= {"pieces per word": "pieces_per_word", "unknown": "unknown_rate"}
FORMS = {"non-initial": ".1%", "unknown": ".3%", "share of words": ".1%"}


def measure(outputs: Outputs, *, documents: int = 2000) -> Parts:
    """The vocabulary report of every tokenizer of the run on the held-out text of its corpus."""
    made = sorted((outputs.out / "tokenizer").glob(f"[!.]*/{MANIFEST}"))
    rows, scripts = Rows(), Rows()
    for name in [path.parent.name for path in made] or [f"general-{outputs.params.tokenizer.kinds[0]}"]:
        tokenizer = load_tokenizer(outputs.of("tokenizer", name))
        texts = islice(read_documents(outputs.of("corpus", name.partition("-")[0]), "heldout"), documents)
        spaced = list(map(tokenizer.segmentation.spaced, texts))
        if not spaced:
            raise ArtifactError(f"{name}: its corpus has no held-out text; raise ingest.heldout")
        report, sums = report_on_words(tokenizer, count_words(spaced)), []
        for words in filter(None, map(str.split, spaced)):
            ids, _ = tokenizer.encode_ragged([f" {word}" for word in words] if tokenizer.leads_with_space else words)
            sums.append(((ids == UNK).sum(), len(ids), len(words)))
        unknown, pieces, counted = np.asarray(sums, dtype=np.float64).T
        row = {"vocabulary": name, "pieces": report["vocabulary"], "alphabet": report["alphabet"]}
        row |= {"non-initial": report["non_initial_share"], "pieces per word": rate(pieces, counted)}
        row |= {"characters per piece": report["characters_per_piece"]}
        rows.append(row | {"unknown": rate(unknown, pieces, within=(0.0, 1.0))})
        scripts += [
            {"vocabulary": name, "script": script} | {column: part[key] for column, key in BY_SCRIPT.items()}
            for script, part in report["scripts"].items()
            if part["share_of_words"] >= SHARE
        ]
    rows.sort(key=lambda row: row["pieces per word"].mean)
    yield Sheet(rows, "Held-out text", FORMS, "pieces per word")
    yield Sheet(scripts, "By script", FORMS)
