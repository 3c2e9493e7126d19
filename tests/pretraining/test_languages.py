"""Corpora in several languages: shares of the languages in vocabulary and batches, and measurements of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.ingestion.stage import IngestJob, ingest
from components.models import FAMILIES
from components.pretraining.balanced import OTHER, Balanced
from components.pretraining.pretrain import pretrain
from components.settings.data import CorpusSource
from components.settings.ingest import IngestSettings
from components.settings.tokenizer import TokenizerSettings
from components.tokenization.languages import repetitions
from components.tokenization.tokenize import TokenizeJob, tokenize
from components.tokenization.train import TokenizerJob, sample, train_tokenizer
from tests.training.helpers import (
    TOKENIZERS,
    lm_settings,
    pretrain_job,
    run_with_kills,
    same_bits,
    weights,
)

TEXT = [name for name, member in FAMILIES.items() if member.objective != "translation"]
WORDS = {
    "en": "the river runs from the old bridge to the sea and boats go down with wool and salt",
    "de": "der alte Fluss kommt von den Bergen und bringt Holz in das Tal",
}
#: Sentences of each language.
SIZES = {"en": 480, "de": 120}


@pytest.fixture(scope="module")
def languages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus in two languages, tokenizers and tokens."""
    root = tmp_path_factory.mktemp("languages")
    rng = np.random.default_rng(0)
    for language, vocabulary in WORDS.items():
        texts = [
            ". ".join(" ".join(rng.choice(vocabulary.split(), 7)) for _ in range(3))
            for _ in range(SIZES[language] // 3)
        ]
        path = root / "raw" / language / "a.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    source = CorpusSource.model_validate({"path": str(root / "raw"), "languages": {"en": {}, "de": {}}})
    settings = IngestSettings(near_duplicates=None, heldout=0.2)
    ingest(IngestJob(name="general", source=source, settings=settings, output=root / "corpus" / "general"))
    for kind in set(TOKENIZERS) - {"parallel"}:
        tokenizer = root / "tokenizer" / f"general-{kind}"
        sizes = TokenizerSettings.model_validate({"wordpiece": {"vocabulary": 70}, "word": {"vocabulary": 34}})
        train_tokenizer(TokenizerJob(corpus=root / "corpus" / "general", output=tokenizer, kind=kind, settings=sizes))
        output = root / "tokens" / f"general-{kind}"
        tokenize(TokenizeJob(corpus=root / "corpus" / "general", tokenizer=tokenizer, output=output))
    return root


def read_metrics(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "metrics.json").read_text())


def test_repetitions() -> None:
    # p_i = n_i^alpha / sum: for 16 and 1 with alpha 0.5 it is 4/5 and 1/5, so the small language is read 4 times.
    assert repetitions({"en": 16, "de": 1}, 0.5) == {"en": 1, "de": 4}
    assert repetitions({"en": 16, "de": 1}, 1.0) == {"en": 1, "de": 1}
    assert repetitions({"en": 16, "de": 4, "th": 0}, 0.0) == {"en": 1, "de": 4}


class Documents:
    """What `Balanced` reads of a token store: documents of equal length, of which each piece is the number."""

    def __init__(self, languages: dict[str, list[int]], *, documents: int, length: int = 3) -> None:
        self.languages = {name: np.array(own, np.int64) for name, own in languages.items()}
        self.documents, self.length, self.tokens = documents, length, documents * length
        self.offsets = np.arange(documents + 1) * length
        self.words_per_document = self.chars_per_document = np.ones(documents, np.uint32)
        self.vocab_size = documents

    def span(self, start: int, length: int) -> np.ndarray[Any, Any]:
        return np.arange(start, start + length) % self.tokens // self.length


def test_the_view_of_a_corpus() -> None:
    store: Any = Documents({"en": list(range(16)), "de": [16], "th": [17, 18, 19, 20]}, documents=21)
    view = Balanced(store, np.arange(21), exponent=0.5, seed=0)
    assert view.chosen.tolist() == [*range(16), *[16] * 4, *[17, 18, 19, 20] * 2]
    assert view.shares() == pytest.approx({"en": 16 / 28, "de": 4 / 28, "th": 8 / 28})
    assert [view.span(at * 3, 1).item() for at in (0, 16, 19, 20, 24)] == [0, 16, 16, 17, 17]
    # Another document of the same language, which is a different one.
    others = {int(view.chosen[view.another(document, chance)]) for document in (20, 24) for chance in (0, 0.4, 0.99)}
    assert others == {18, 19, 20}
    assert view.another(17, 0.5) != 17


def test_fractions_of_a_pass_and_documents_without_a_language() -> None:
    store: Any = Documents({"en": list(range(100)), "de": list(range(100, 110))}, documents=121)
    view = Balanced(store, np.arange(121), exponent=0.7, seed=0)
    # (100 / 10)^0.3 = 1.995 passes over 10 documents, in whole documents.
    assert [len(own) for own in np.split(view.chosen, [100, 120])] == [100, 20, 12]
    assert view.languages == ["en", "de", OTHER]
    # 11 of 121 documents have no language: their share of the text stays.
    assert view.shares()[OTHER] == pytest.approx(11 / 121, abs=0.01)
    assert np.array_equal(view.chosen, Balanced(store, np.arange(121), exponent=0.7, seed=0).chosen)


def test_the_sample_of_a_vocabulary(languages: Path) -> None:
    corpus = languages / "corpus" / "general"

    def german(**settings: float) -> tuple[int, int]:
        texts = list(sample(corpus, **settings))
        own = [text for text in texts if set(text.replace(".", "").split()) <= set(WORDS["de"].split())]
        return sum(map(len, own)), sum(map(len, texts))

    part, whole = german(megabytes=1)
    size = whole / 1e6
    p = {one: size**0.5 for one, size in {"de": part, "en": whole - part}.items()}
    smoothed, total = german(megabytes=1, exponent=0.5)
    assert smoothed / total == pytest.approx(p["de"] / sum(p.values()), abs=0.02)
    assert total == pytest.approx(whole, rel=0.02)
    equal, total = german(megabytes=size / 2, exponent=0.0)
    assert equal / total == pytest.approx(0.5, abs=0.03)
    assert total == pytest.approx(whole / 2, rel=0.1)
    report = read_metrics(languages / "tokenizer" / "general-word")["languages"]
    assert set(report) == {"en", "de"}
    assert report["de"]["unknown_rate"] < 0.2


@pytest.mark.parametrize("family", TEXT)
def test_every_family_trains_on_several_languages(languages: Path, tmp_path: Path, family: str) -> None:
    job = pretrain_job(languages, family, tmp_path)
    found = read_metrics(pretrain(job))
    assert set(found["languages"]) == {"en", "de"}
    assert sum(one["tokens"] for one in found["languages"].values()) == pytest.approx(found["tokens"], abs=1)
    for one in found["languages"].values():
        assert "loss" in one
        assert ("perplexity" in one) == ("perplexity" in found)


def test_a_killed_run_is_the_same(languages: Path, tmp_path: Path) -> None:
    settings = lm_settings(tokens=4 * 8 * 30)
    unbroken = pretrain(pretrain_job(languages, "bert", tmp_path / "unbroken", training=settings))
    job = pretrain_job(languages, "bert", tmp_path / "killed", training=settings)
    assert run_with_kills(pretrain, job, checkpoints=tmp_path / "killed" / "checkpoints", seed=1) >= 1
    assert same_bits(weights(unbroken), weights(job.output))
    assert read_metrics(unbroken)["languages"] == read_metrics(job.output)["languages"]
