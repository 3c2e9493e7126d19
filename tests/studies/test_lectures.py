"""`headstart lectures`: claims and the page."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from components.reporting.findings import Chapter, Drawing, Findings, Table
from components.settings.loading import load_params
from components.studies import lectures
from components.studies.command import STUDIES
from components.studies.frame import Outputs
from components.studies.lectures import CLAIMS, PARAMS, measured, page, store

ROOT = Path(__file__).parents[2]


def scored(*means: float) -> dict[str, Any]:
    return {"scores": {str(budget): {"mean": mean} for budget, mean in enumerate(means)}}


def sized(*losses: float) -> dict[str, Any]:
    """Adapted systems of 1, 2, ... parameters with these perplexities, and one from scratch."""
    adapted = {
        f"e{size}-adapted": scored(0.2, size / 10) | {"start": "adapted", "parameters": size, "perplexity_per_word": of}
        for size, of in enumerate(losses, 1)
    }
    return adapted | {"e1-scratch": scored(0.2, 0.3) | {"start": "scratch", "parameters": 1}}


HOLDS, NOT = ({"holds": value} for value in (True, False))
START = {"start": HOLDS, "slope": HOLDS, "asymptote": HOLDS}
#: Claim -> numbers that agree, and numbers that do not.
NUMBERS: dict[str, tuple[Any, Any]] = {
    "vocabulary": tuple(
        {
            "general-wordpiece": {"unknown_rate": rate, "pieces_per_word": 1.3},
            "general-word": {"unknown_rate": 0.05, "pieces_per_word": 1.0},
        }
        for rate in (0.001, 0.02)
    ),
    "pretrained-vectors": tuple({"t": {"word2vec": {"adapted": {"labels": {"start": of}}}}} for of in (HOLDS, NOT)),
    "ngrams": tuple({"m": {"model_per_word": of, "ngrams_per_word": 90.0}} for of in (80.0, 100.0)),
    "effective-context": tuple(
        {"groups": [{"recl": {"gpt-adapted": {"0.1": 64}, "transformer-xl-adapted": {"0.1": of}}}]} for of in (96, 64)
    ),
    "memory": tuple({"cost": {"transformer-xl-adapted": {"times": of}}} for of in (7.0, 0.9)),
    "contextual": tuple(
        {"e": {"layers": [{"adjusted_self_similarity": 0.9}, {"adjusted_self_similarity": of}]}} for of in (0.4, 0.95)
    ),
    "senses": tuple({"e": {"senses": {"silhouette": of}}} for of in (0.3, 0.05)),
    "layers": tuple({"scores": {"e": {"first": [0.2], "last": [0.3], "mix": [of]}}} for of in (0.31, 0.25)),
    "three-benefits": tuple({"t": {"ulmfit": {"adapted": {"labels": START | {"slope": of}}}}} for of in (HOLDS, NOT)),
    "label-efficiency": tuple(
        {"t": {"label_efficiency": {"ulmfit": {"adapted": [{"against": {"ulmfit-scratch": of}}]}}}}
        for of in ({"ratio": {"mean": None, "most": 25}}, {"ratio": {"mean": 3.0}})
    ),
    "negative-transfer": tuple(
        {"transfer": {"t": {"ulmfit": [{"parts": [{"starts": {"adapted": {"hurts": of}, "pretrained": None}}]}]}}}
        for of in (True, False)
    ),
    "transferability": tuple(
        {"scores": {"BnB": {"0": [0.8]}, "AnB": {"1": [0.7], "2": [of]}, "AnB+": {"1": [0.8], "2": [0.8]}}}
        for of in (0.5, 0.9)
    ),
    "which-source": tuple({"evidence": {"spearman": of}} for of in (0.9, 0.1)),
    "topics": tuple({"t": {"fasttext": {"adapted": {"labels": {"start": of}}}}} for of in (HOLDS, NOT)),
    "word-order": tuple({"encoders": {"w": [[0.5, 0.5]], "e": [[0.5, 0.5], of]}} for of in ([0.8, 0.7], [0.5, 0.6])),
    "ablation": tuple(
        {"scores": {"all": [0.6, 0.7], "without a": [0.5, 0.6], "without b": of}} for of in ([0.6, 0.6], [0.7, 0.8])
    ),
    "thai": tuple(
        {"t": {"systems": {"ulmfit-adapted": scored(0.5, 0.7), "fasttext-adapted": scored(0.4, 0.6), **other}}}
        for other in ({"ulmfit-scratch": scored(0.6, 0.8)}, {"svm-words-characters": scored(0.4, 0.71)})
    ),
    "sizes": tuple({"t": {"systems": sized(*losses)}} for losses in ((90.0, 80.0, 70.0), (90.0, 70.0, 80.0))),
    "zero-shot": tuple(
        {"best_on_dev": ["gpt", "sum"], "accuracy": {"gpt": {"sum": {"mean": of}}}, "guessing": 0.5}
        for of in (0.55, 0.7)
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_name_studies_and_their_options(name):
    claim = CLAIMS[name]
    inspect.signature(STUDIES[claim.study]).bind(None, **claim.options)
    params = load_params(ROOT / claim.settings)
    assert {*claim.examples, claim.options.get("task", params.run.tasks[0])} <= params.data.tasks.keys()
    if name := claim.options.get("encoder"):
        assert Outputs(params).params.block(name.rpartition("-")[0]) or name in params.pretrain


@pytest.mark.parametrize("name", [name for name, claim in CLAIMS.items() if claim.agrees])
def test_agreement_depends_on_the_numbers(name):
    agrees = CLAIMS[name].agrees
    assert agrees is not None
    assert [agrees(numbers) for numbers in NUMBERS[name]] == [True, False]


def test_the_page_has_what_was_measured(tmp_path, monkeypatch):
    chapter = Chapter("Title", ["Lead."], ["Text."], [Table(["a", "b"], [["x|y", "0.5"]])], [Drawing("<svg/>", "Map.")])
    numbers = NUMBERS["which-source"]
    runs = iter([Findings(chapter, numbers[0]), Findings(chapter, {"evidence": {}})])
    monkeypatch.setattr(lectures, "STUDIES", {"which-source": lambda *_, **__: next(runs)})
    claim, done = CLAIMS["which-source"], {}
    outputs = Outputs(load_params(ROOT / PARAMS))
    for _ in range(2):
        # The second time the findings are at hand.
        store(measured(claim, outputs, params=PARAMS, output=tmp_path, done=done), claim, tmp_path)
    text = (tmp_path / "lectures.md").read_text()
    assert "## which-source" in text and "**Agrees.** Lead." in text and "| x\\|y | 0.5 |" in text
    assert "| Transfer | [which-source](#which-source) | yes |" in text
    assert "![Map.](lectures/which-source-1.svg)" in text
    assert (tmp_path / "lectures" / "which-source-1.svg").read_text() == "<svg/>\n"
    store(measured(claim, outputs, params=Path("mine.yaml"), output=tmp_path, done=done), claim, tmp_path)
    text = (tmp_path / "lectures.md").read_text()
    assert "For the reader to judge." in text and "headstart study which-source --params mine.yaml" in text


def test_the_committed_page_is_that_of_its_numbers():
    entries = json.loads((ROOT / "docs" / "lectures" / "lectures.json").read_text())
    assert (ROOT / "docs" / "lectures.md").read_text() == page(entries)
    assert entries.keys() == CLAIMS.keys()


def test_a_reason_is_given_for_the_run_of_the_claim_only():
    claim = CLAIMS["ablation"]
    entry = {"agrees": False, "lead": ["Lead."], "tables": [], "captions": [], "text": [], "processor": "p"}
    entry |= {"commit": "0" * 40, "date": "2026-01-01", "seconds": 1}
    pages = [page({claim.name: entry | {"command": claim.command(of)}}) for of in (claim.settings, Path("mine.yaml"))]
    assert f"**Does not agree.** {claim.otherwise} Lead." in pages[0] and "**Does not agree.** Lead." in pages[1]


def test_every_claim_of_the_lectures_is_measured():
    assert list(CLAIMS) == [
        "vocabulary", "neighbours", "pretrained-vectors", "topics", "ngrams", "effective-context", "memory",
        "contextual", "word-order", "senses", "layers", "three-benefits", "label-efficiency", "ablation", "thai",
        "sizes", "negative-transfer", "transferability", "which-source", "zero-shot",
    ]  # fmt: skip
