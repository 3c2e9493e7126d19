"""Checks of a corpus in several languages: each is compared with its own last version."""

from __future__ import annotations

import json
from pathlib import Path

from components.data_checks.measure import corpus_units
from components.settings.data import CorpusSource


def test_a_unit_per_language(tmp_path: Path) -> None:
    for language, column in (("en", "text"), ("th", "body")):
        (tmp_path / language).mkdir()
        (tmp_path / language / "a.jsonl").write_text(json.dumps({column: f"text in {language}"}) + "\n")
    languages = {"en": {}, "th": {"text": "body"}}
    source = CorpusSource.model_validate({"path": str(tmp_path), "languages": languages})
    units = corpus_units("general", source)
    assert [(unit.name, unit.statistics.rows) for unit in units] == [("general en", 1), ("general th", 1)]
    assert [unit.name for unit in corpus_units("general", CorpusSource(path=str(tmp_path / "en")))] == ["general"]
