"""The study of vocabularies from reports of the stage `tokenizer`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from components.core.artifacts import writing
from components.core.errors import ArtifactError
from components.studies import vocabulary
from components.studies.frame import Outputs


def write(outputs: Outputs, name: str, pieces_per_word: float, unknown: float) -> dict[str, Any]:
    scripts = {
        "latin": {"share_of_words": 0.9, "pieces_per_word": 1.1, "unknown_rate": 0.0, "vocabulary": 80, "words": 90},
        "thai": {"share_of_words": 0.0001, "pieces_per_word": 4.0, "unknown_rate": 0.0, "vocabulary": 2, "words": 1},
    }
    report = {
        "kind": "wordpiece",
        "vocabulary": 8000,
        "alphabet": 90,
        "non_initial_share": 0.302,
        "words": 100,
        "pieces_per_word": pieces_per_word,
        "characters_per_piece": 4.3,
        "unknown_rate": unknown,
        "scripts": scripts,
    }
    with writing(outputs.out / "tokenizer" / name, kind="tokenizer") as draft:
        (draft.path / "report.json").write_text(json.dumps(report))
    return report


def test_all_tokenizers_and_their_frequent_scripts(outputs: Outputs) -> None:
    reports = {
        "domain-wordpiece": write(outputs, "domain-wordpiece", 1.25, 0.0),
        "domain-word": write(outputs, "domain-word", 1.0, 0.08),
    }
    actual = vocabulary.run(outputs)
    assert actual.numbers == reports
    whole, scripts = actual.chapter.tables
    assert whole.rows[1] == ["domain-wordpiece", "8,000", "90", "30.2%", "1.250", "4.30", "0.000%"]
    assert [row[:2] for row in scripts.rows] == [["domain-word", "latin"], ["domain-wordpiece", "latin"]]
    # Words have one piece each, but 8% of them are unknown.
    assert actual.chapter.lead == ["domain-wordpiece has the fewest pieces per word: 1.25, of which 0.00% are unknown."]
    assert set(outputs.read) == {"tokenizer/domain-word", "tokenizer/domain-wordpiece"}


def test_without_a_vocabulary(outputs: Outputs) -> None:
    with pytest.raises(ArtifactError, match="has no vocabulary; run `headstart stage tokenizer --item general-word`"):
        vocabulary.run(outputs)
