"""Corpora in several languages: which files belong to a language, and shards of one language each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from components.artifacts import read_manifest
from components.errors import DataError
from components.formats.corpus import by_language, language_of, read_shard, shards
from components.ingestion.stage import IngestJob, ingest
from components.settings.data import CorpusSource
from components.settings.ingest import IngestSettings

WORDS = {"en": "the river runs from old bridge to sea", "de": "der Fluss fliesst von alten Bergen ins Tal"}


def write(path: Path, texts: list[str], column: str = "text") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({column: text}) + "\n" for text in texts), encoding="utf-8")


def texts_of(language: str, count: int) -> list[str]:
    return [f"{WORDS[language]} {language} {number}" for number in range(count)]


def job(folder: Path, **languages: dict[str, str]) -> IngestJob:
    source = CorpusSource.model_validate({"path": str(folder / "raw"), "languages": languages})
    settings = IngestSettings(near_duplicates=None, heldout=0.0001)
    return IngestJob(name="general", source=source, settings=settings, output=folder / "corpus")


def told(corpus: Path) -> dict[str, Any]:
    return json.loads((corpus / "metrics.json").read_text())["languages"]


def read(corpus: Path) -> dict[str | None, set[str]]:
    found: dict[str | None, set[str]] = {}
    for split in ("train", "heldout"):
        for language, paths in by_language(shards(corpus, split)).items():
            found.setdefault(language, set()).update(text for path in paths for text in read_shard(path))
    return found


def test_every_shard_is_in_one_language(tmp_path: Path) -> None:
    write(tmp_path / "raw" / "en" / "a.jsonl", texts_of("en", 20))
    write(tmp_path / "raw" / "german.jsonl", texts_of("de", 5), column="body")
    write(tmp_path / "raw" / "other.jsonl", ["a text of no language that is named"])
    run = job(tmp_path, en={}, de={"path": "german.jsonl", "text": "body"})
    corpus = ingest(run)
    assert read(corpus) == {"en": set(texts_of("en", 20)), "de": set(texts_of("de", 5))}
    # Every language has held-out text, however little.
    assert told(corpus) == {"en": {"train": 19, "heldout": 1}, "de": {"train": 4, "heldout": 1}}
    # New text is appended, and the documents of a deleted file leave the shards of their language only.
    write(tmp_path / "raw" / "en" / "b.jsonl", ["one more line"])
    kept = set(read_manifest(corpus).files)
    ingest(run)
    assert told(corpus)["en"] == {"train": 20, "heldout": 1}
    assert {name for name in kept if name.startswith(("train", "heldout"))} < set(read_manifest(corpus).files)
    (tmp_path / "raw" / "en" / "b.jsonl").unlink()
    ingest(run)
    assert read(corpus)["en"] == set(texts_of("en", 20))
    assert told(corpus) == {"en": {"train": 19, "heldout": 1}, "de": {"train": 4, "heldout": 1}}


def test_a_language_of_a_shard() -> None:
    names = ["train-0a1b.parquet", "heldout-en-0a1b.arrow", "train-zh-hant-0a1b.parquet", "general.arrow"]
    assert list(map(language_of, names)) == [None, "en", "zh-hant", None]


def test_a_language_without_files(tmp_path: Path) -> None:
    write(tmp_path / "raw" / "en" / "a.jsonl", texts_of("en", 3))
    with pytest.raises(DataError, match=r"raw/de: does not exist; put text there"):
        ingest(job(tmp_path, en={}, de={}))


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        ({"en": {"path": "../en"}}, "must be below the path of the corpus"),
        ({"en": {"path": "a"}, "de": {"path": "a/b"}}, "a/b is inside that of 'en'"),
        ({"English": {}}, "languages.English"),
    ],
)
def test_invalid_languages(languages: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        CorpusSource.model_validate({"path": "data/general", "languages": languages})
