"""Systems side by side, from an evaluation with given numbers."""

import json
from typing import Any

import pytest

from components.core.artifacts import writing
from components.core.errors import ArtifactError
from components.settings.training import PretrainSettings
from components.studies import systems, vocabulary
from components.studies.frame import Outputs


def entry(name: str, family: str, start: str, *means: float) -> dict[str, Any]:
    scores = [{"macro_f1": {"mean": mean, "low": mean - 0.02, "high": mean + 0.02}} for mean in means]
    cells = [
        {"budget": budget, "labels": float(budget), "scores": of} for budget, of in zip((5, 20), scores, strict=True)
    ]
    return {"system": name, "family": family, "start": start, "budgets": cells}


@pytest.fixture
def ready(outputs: Outputs, write_evaluation: Any) -> Outputs:
    """Two sizes of ULMFiT, word vectors and a linear model."""
    block: PretrainSettings = outputs.params.pretrain["ulmfit"]
    outputs.params.pretrain["small"] = block.model_copy(update={"family": "ulmfit"})
    for name, numbers in {
        "ulmfit": {"parameters": 2_000_000, "perplexity_per_word": 1234.5},
        "small": {"parameters": 90_000, "perplexity_per_word": 2000.0},
        "word2vec": {"parameters": 5},
    }.items():
        with writing(outputs.out / "encoder" / name / "adapted", kind="encoder") as draft:
            (draft.path / "metrics.json").write_text(json.dumps(numbers))
    content = [
        entry("tfidf-words", "baseline", "tfidf-words", 0.3, 0.4),
        entry("ulmfit-adapted", "ulmfit", "adapted", 0.5, 0.6),
        entry("small-adapted", "small", "adapted", 0.4, 0.5),
        entry("word2vec-adapted", "word2vec", "adapted", 0.45, 0.7),
    ]
    write_evaluation("aws-type", {"systems": content, "main": "macro_f1", "unit": "labels a class", "budgets": [5, 20]})
    return outputs


def test_all_systems(ready):
    chapter = systems.run(ready).chapter
    assert chapter.tables[0].rows == [
        ["tfidf-words", "", "", "0.300 [0.280, 0.320]", "0.400 [0.380, 0.420]"],
        ["ulmfit-adapted", "2,000,000", "1,234.5", "0.500 [0.480, 0.520]", "0.600 [0.580, 0.620]"],
        ["small-adapted", "90,000", "2,000.0", "0.400 [0.380, 0.420]", "0.500 [0.480, 0.520]"],
        ["word2vec-adapted", "5", "", "0.450 [0.430, 0.470]", "0.700 [0.680, 0.720]"],
    ]
    assert chapter.lead == [
        "aws-type: with 5 labels a class, ulmfit-adapted is best: 0.500 [0.480, 0.520].",
        "aws-type: with 20 labels a class, word2vec-adapted is best: 0.700 [0.680, 0.720].",
    ]
    assert len(chapter.figures) == 1 and "tfidf-words" in chapter.figures[0].svg


def test_a_system_without_the_largest_budget(ready, write_evaluation):
    small = entry("tfidf-words", "baseline", "tfidf-words", 0.6, 0.7)
    small["budgets"].pop()
    content = {"systems": [entry("ulmfit-adapted", "ulmfit", "adapted", 0.5, 0.6), small]}
    write_evaluation("aws-type", content | {"main": "macro_f1", "unit": "labels a class", "budgets": [5, 20]})
    chapter = systems.run(ready).chapter
    assert chapter.tables[0].rows[1] == ["tfidf-words", "", "", "0.600 [0.580, 0.620]", ""]
    assert [line.split(" is best")[0] for line in chapter.lead] == [
        "aws-type: with 5 labels a class, tfidf-words",
        "aws-type: with 20 labels a class, ulmfit-adapted",
    ]


def test_sizes_of_a_family(ready):
    actual = systems.run(ready, family="ulmfit")
    assert actual.numbers["aws-type"]["systems"]["small-adapted"] == {
        "parameters": 90_000,
        "perplexity_per_word": 2000.0,
        "start": "adapted",
        "scores": {
            "5": {"mean": 0.4, "low": 0.4 - 0.02, "high": 0.4 + 0.02},
            "20": {"mean": 0.5, "low": 0.5 - 0.02, "high": 0.5 + 0.02},
        },
    }
    assert [row[0] for row in actual.chapter.tables[0].rows] == ["ulmfit-adapted", "small-adapted"]
    perplexity, score = actual.chapter.figures
    assert "perplexity per word" in perplexity.svg and ">90<" in perplexity.svg and ">2000<" in score.svg


# The study of vocabularies from reports of the stage `tokenizer`.


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


def test_all_tokenizers_and_their_frequent_scripts(outputs):
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


def test_without_a_vocabulary(outputs):
    with pytest.raises(ArtifactError, match="has no vocabulary; run `headstart stage tokenizer --item general-word`"):
        vocabulary.run(outputs)
