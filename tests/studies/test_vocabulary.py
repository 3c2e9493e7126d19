"""Vocabularies on held-out text."""

import numpy as np
import pytest

from components.core.artifacts import writing
from components.core.errors import ArtifactError
from components.data.segmenters import Segmentation
from components.studies.frame import rate
from components.tokenization.special import SPECIAL_PIECES
from components.tokenization.word import WordTokenizer
from components.tokenization.wordpiece import WordPieceTokenizer
from tests.studies.conftest import findings, fits


def test_the_order_is_that_of_the_table(outputs, add_corpus):
    """Words have one piece each and half of them unknown; pieces are more, and none is unknown."""
    add_corpus("domain", ["never read"], ["red reds"] * 40)
    common = {"segmentation": Segmentation("none"), "lowercase": True, "strip_accents": True}
    for name, tokenizer in {
        "domain-word": WordTokenizer([*SPECIAL_PIECES, "red"], **common),
        "domain-wordpiece": WordPieceTokenizer([*SPECIAL_PIECES, "red", "##s"], **common),
    }.items():
        with writing(outputs.out / "tokenizer" / name, kind="tokenizer") as draft:
            tokenizer.save(draft.path)
    actual = findings(outputs, "vocabulary")
    fits(actual, "vocabulary")
    whole, scripts = actual.chapter.tables
    assert whole.columns == [
        "vocabulary", "pieces", "alphabet", "non-initial", "pieces per word", "characters per piece", "unknown"
    ]  # fmt: skip
    assert whole.rows[0][0] == "domain-word" and [row[4][:5] for row in whole.rows] == ["1.000", "1.500"]
    assert [row[-1].partition("%")[0] for row in whole.rows] == ["50.000", "0.000"]
    assert [row[:2] for row in scripts.rows] == [["domain-word", "latin"], ["domain-wordpiece", "latin"]]
    # Of 40 documents none has an unknown piece: the exact bound.
    unknown = actual.numbers["Held-out text"][1]["unknown"]
    assert (unknown["mean"], unknown["low"], unknown["high"]) == (0, 0, pytest.approx(1 - 0.025 ** (1 / 40)))
    assert set(outputs.read) == {"tokenizer/domain-word", "tokenizer/domain-wordpiece", "corpus/domain"}


def test_a_rate_and_its_interval():
    actual = rate(np.array([1.0, 2.0, 3.0, 2.0]), np.array([10.0, 10.0, 10.0, 10.0]))
    # Of parts of one size the jackknife is the standard error of the mean: 0.0816 / 2 = 0.0408, times t with 3 degrees.
    assert actual.mean == pytest.approx(0.2) and actual.mean - actual.low == pytest.approx(3.182 * 0.0408, rel=0.01)


def test_without_a_vocabulary(outputs):
    with pytest.raises(ArtifactError, match="has no vocabulary; run `headstart stage tokenizer --item general-word`"):
        findings(outputs, "vocabulary")
