"""A words model through registration, promotion, serving and rollback."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np

from components.data.tasks.examples import read_split
from components.data.tasks.results import read_answers
from components.learners.prediction import predict_rows
from components.learners.words.classifier import WordsClassifier
from components.registry.drift.measurements import find_reference
from components.registry.explain import read_leakage, results_of
from components.registry.ledger import rollback
from components.serving.models import ChampionFollower
from tests.registry.conftest import LABELS, Pipeline

NAME = "headstart-letters"


def registered(pipeline: Pipeline) -> dict:
    return pipeline.registered(starts=["adapted"])


def decided(pipeline: Pipeline) -> dict:
    return pipeline.promoted()["decisions"]["letters"]


def test_a_words_model_that_wins_is_promoted_served_and_rolled_back(pipeline):
    assert registered(pipeline)["challengers"]["letters"]["system"] == "ulmfit-adapted"
    assert decided(pipeline)["alias_after"] == "1"

    words = pipeline.write_words()
    listing = registered(pipeline)
    challenger = listing["challengers"]["letters"]
    assert (challenger["system"], challenger["version"], challenger["dev_score"]) == (
        "tfidf-words-characters",
        "2",
        1.0,
    )
    assert listing["models"][-1] | {"digest": ""} == {
        "name": NAME,
        "version": "2",
        "digest": "",
        "kind": "classifier",
        "family": "words",
        "start": "tfidf-words-characters",
        "task": "letters",
        "system": "tfidf-words-characters",
        "parent": None,
        "directory": words.as_posix(),
    }
    registry = pipeline.registry
    version = registry.get(NAME, "2")
    assert (
        "parent" not in version.tags and version.tags["system"] == "tfidf-words-characters" and "data" in version.tags
    )
    assert "without a language model" in registry.client.get_model_version(version.name, version.number).description
    assert find_reference(registry, version) is not None, "for drift"

    decision = decided(pipeline)
    assert (decision["verdict"], decision["champion"]["version"], decision["alias_after"]) == ("promote", "1", "2")
    assert decision["candidate"]["latency_ms"]["median"] > 0

    champion = pipeline.champion()
    assert isinstance(champion, WordsClassifier)
    test = read_split(pipeline.out / "examples" / "letters", "test")
    stored = read_answers(words, "test")["tfidf-words-characters", -1, 0]
    np.testing.assert_array_equal(np.stack(champion.answer(test.fields)), np.stack(stored))
    (answer,) = predict_rows(champion, [("bb",)])
    assert answer is not None and answer["label"] == LABELS[1]
    follower = ChampionFollower(registry, "letters", poll_seconds=60)
    assert follower.current.version.number == "2"

    rollback(pipeline.settings, "letters", reason="too simple")
    assert follower.check() and follower.current.version.number == "1"
    assert registered(pipeline)["challengers"]["letters"]["version"] == "2", "registered once"
    assert "was rolled back" in decided(pipeline)["reasons"][0]


def test_mlflow_loads_a_words_model_without_torch(pipeline):
    script = (
        "import sys; from components.registry.pyfunc import _load_pyfunc; import pandas\n"
        "print(_load_pyfunc(sys.argv[1]).predict(pandas.DataFrame({'text': ['a']})).label[0], 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", script, str(pipeline.write_words() / "classifier")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == [LABELS[0], "False"]


def test_results_and_leakage_of_every_kind_of_system(tmp_path):
    (tmp_path / "a" / "ulmfit-adapted").mkdir(parents=True)
    actual = {system: results_of(tmp_path / "a", system).name for system in ("ulmfit-adapted", "tfidf-words")}
    assert actual == {"ulmfit-adapted": "ulmfit-adapted", "tfidf-words": "baselines"}
    assert results_of(tmp_path / "a", "ulmfit-adapted-frozen").name == "ulmfit-adapted"
    path = tmp_path / "leakage" / "a" / "leakage.json"
    path.parent.mkdir(parents=True)
    systems = {"ulmfit-adapted": {"exact": 2, "refused": "no"}, "baselines": {"exact": 1, "refused": ""}}
    path.write_text(json.dumps({"systems": systems}))
    exact = {
        system: read_leakage(tmp_path, "a", system)["exact"] for system in ("ulmfit-adapted-frozen", "tfidf-words")
    }
    assert exact == {"ulmfit-adapted-frozen": 2, "tfidf-words": 1}


def test_at_equal_scores_words_are_preferred(pipeline):
    pipeline.write_words()
    pipeline.write_classifier("adapted", knows=26)
    challenger = registered(pipeline)["challengers"]["letters"]
    assert (challenger["dev_score"], challenger["system"]) == (1.0, "tfidf-words-characters")
