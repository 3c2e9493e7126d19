"""A words model through registration, promotion, serving and rollback."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from components.baselines.stage import BaselineJob, baseline
from components.drift.measuring import find_reference
from components.evaluation.stage import EvaluateJob, evaluate
from components.finetuning.stage import FinetuneJob, finetune
from components.inference.prediction import predict_rows
from components.registry.champion import load_champion
from components.registry.commands import rollback
from components.registry.promote import PromoteJob, promote
from components.registry.runs import read_leakage, results_of
from components.registry.stage import RegisterJob, register
from components.serving.models import ChampionFollower
from components.settings.cluster import ClusterSettings
from components.settings.evaluate import EvaluateSettings
from components.settings.finetune import FinetuneSettings
from components.settings.promote import PromotionRule
from components.settings.registry import RegistrySettings
from components.settings.tasks import TaskSource
from components.tasks.examples import ExamplesJob, examples, read_split
from components.tasks.results import read_answers
from components.tracking import connect
from components.words.classifier import WordsClassifier
from tests.example_task import in_process, make_encoder, rows, settings, write_jsonl
from tests.inference.files import predict_file
from tests.registry.conftest import LABELS, Pipeline

__all__ = ["in_process", "make_encoder", "settings"]  # fixtures

NAME = "headstart-letters"


@pytest.fixture
def winning(pipeline: Pipeline) -> Pipeline:
    """With all labels the words model knows the 26 letters, of which the fine-tuned one knows 22."""
    pipeline.write_examples(budgets=["all"])
    baseline(BaselineJob(examples=pipeline.out / "examples" / "letters", output=baselines(pipeline)))
    return pipeline


def baselines(pipeline: Pipeline) -> Path:
    return pipeline.out / "finetuned" / "letters" / "baselines"


def registered(pipeline: Pipeline) -> dict:
    return json.loads(register(pipeline.register_job(starts=["adapted"])).read_text())


def decided(pipeline: Pipeline) -> dict:
    return json.loads(promote(pipeline.promote_job()).read_text())["decisions"]["letters"]


def test_a_words_model_that_wins_is_promoted_served_and_rolled_back(pipeline: Pipeline) -> None:
    assert registered(pipeline)["challengers"]["letters"]["system"] == "ulmfit-adapted"
    assert decided(pipeline)["alias_after"] == "1"

    pipeline.write_examples(budgets=["all"])
    baseline(BaselineJob(examples=pipeline.out / "examples" / "letters", output=baselines(pipeline)))
    listing = registered(pipeline)
    challenger = listing["challengers"]["letters"]
    assert (challenger["system"], challenger["version"], challenger["dev_score"]) == ("tfidf-words", "2", 1.0)
    assert listing["models"][-1] | {"digest": ""} == {
        "name": NAME,
        "version": "2",
        "digest": "",
        "kind": "classifier",
        "family": "words",
        "start": "tfidf-words",
        "task": "letters",
        "system": "tfidf-words",
        "parent": None,
        "directory": baselines(pipeline).as_posix(),
    }
    registry = connect(pipeline.settings)
    version = registry.get(NAME, "2")
    assert version.tags["parent"] == "" and version.tags["system"] == "tfidf-words" and "data" in version.tags
    assert "without a language model" in registry.description(version)
    assert find_reference(registry, version) is not None, "for drift"

    decision = decided(pipeline)
    assert (decision["verdict"], decision["alias_before"], decision["alias_after"]) == ("promote", "1", "2")
    assert decision["candidate"]["latency_ms"]["p50"] > 0

    champion = load_champion(pipeline.settings, "letters")
    assert isinstance(champion, WordsClassifier)
    test = read_split(pipeline.out / "examples" / "letters", "test")
    stored = read_answers(baselines(pipeline), "test")["tfidf-words", -1, 0]
    np.testing.assert_array_equal(np.stack(champion.answer(test.fields)), np.stack(stored))
    (answer,) = predict_rows(champion, [("bb",)])
    assert answer is not None and answer["label"] == LABELS[1]
    follower = ChampionFollower(registry, "letters", poll_seconds=60)
    assert follower.current.described["version"] == "2"

    rollback(pipeline.settings, "letters", reason="too simple")
    assert follower.check() and follower.current.described["version"] == "1"
    assert registered(pipeline)["challengers"]["letters"]["version"] == "2", "registered once"
    assert "was rolled back" in decided(pipeline)["reasons"][0]


def test_the_first_champion_may_be_a_words_model(winning: Pipeline) -> None:
    registered(winning)
    decision = decided(winning)
    assert (decision["verdict"], decision["against"]) == ("promote", "most frequent class")
    assert decision["champion_score"] < 0.5 and decision["candidate_score"] == 1.0


def test_at_equal_scores_words_are_preferred(winning: Pipeline) -> None:
    winning.write_classifier("adapted", knows=26)
    challenger = registered(winning)["challengers"]["letters"]
    assert (challenger["dev_score"], challenger["system"]) == (1.0, "tfidf-words")


def test_mlflow_loads_a_words_model_without_torch(winning: Pipeline) -> None:
    registered(winning)
    script = (
        "import sys; from components.registry.pyfunc import _load_pyfunc; import pandas\n"
        "print(_load_pyfunc(sys.argv[1]).predict(pandas.DataFrame({'text': ['a']})).label[0], 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", script, str(baselines(winning) / "classifier")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == [LABELS[0], "False"]


def test_results_and_leakage_of_every_kind_of_system(tmp_path: Path) -> None:
    (tmp_path / "a" / "ulmfit-adapted").mkdir(parents=True)
    found = {system: results_of(tmp_path / "a", system).name for system in ("ulmfit-adapted", "tfidf-words")}
    assert found == {"ulmfit-adapted": "ulmfit-adapted", "tfidf-words": "baselines"}
    assert results_of(tmp_path / "a", "ulmfit-adapted-frozen").name == "ulmfit-adapted"
    path = tmp_path / "leakage" / "a" / "leakage.json"
    path.parent.mkdir(parents=True)
    systems = {"ulmfit-adapted": {"exact": 2, "refused": "no"}, "baselines": {"exact": 1, "refused": ""}}
    path.write_text(json.dumps({"systems": systems}))
    exact = {
        system: read_leakage(tmp_path, "a", system)["exact"] for system in ("ulmfit-adapted-frozen", "tfidf-words")
    }
    assert exact == {"ulmfit-adapted-frozen": 2, "tfidf-words": 1}


def test_a_run_whose_words_model_wins(
    make_encoder: Callable[..., Path],
    settings: FinetuneSettings,
    in_process: None,
    empty_database: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All stages from labelled rows to predictions. One word determines the class, and the encoder knows no words."""
    monkeypatch.setattr("components.registry.latency.LATENCY_ROWS", 5)
    out, folder = tmp_path / "artifacts", tmp_path / "task"
    for name, count, offset in (("train", 12, 0), ("dev", 1, 100), ("test", 20, 200)):
        write_jsonl(folder / f"{name}.jsonl", rows(count, offset=offset))
    source = TaskSource(path=str(folder), budgets=[8], seeds=[0, 1], selection="budget")
    made = examples(ExamplesJob(task="things", source=source, output=out / "examples" / "things"))
    encoder = out / "encoder" / "ulmfit" / "adapted"
    encoder.parent.mkdir(parents=True)
    make_encoder("ulmfit").rename(encoder)
    results = out / "finetuned" / "things"
    baseline(BaselineJob(examples=made, output=results / "baselines"))
    finetune(
        FinetuneJob(
            task="things",
            family="ulmfit",
            start="adapted",
            examples=made,
            encoder=encoder,
            output=results / "ulmfit-adapted",
            settings=settings.model_copy(update={"epochs": 1, "evaluations": 1, "frozen": True, "max_length": 8}),
            cluster=ClusterSettings(
                launcher="local", storage=str(tmp_path / "store"), features=str(tmp_path / "features")
            ),
        )
    )
    evaluation = EvaluateSettings()
    evaluate(
        EvaluateJob(
            examples=made,
            finetuned=results,
            output=out / "evaluation" / "things",
            families=["ulmfit"],
            starts=["adapted"],
            settings=evaluation,
        )
    )
    database = tmp_path / "mlflow.db"
    shutil.copyfile(empty_database, database)
    registry = RegistrySettings(tracking=f"sqlite:///{database}")
    job = RegisterJob(
        registry=registry,
        out=out,
        families=["ulmfit"],
        tasks=["things"],
        starts=["adapted"],
        parameters={},
        project=tmp_path,
    )
    listing = json.loads(register(job).read_text())
    assert listing["challengers"]["things"]["system"].startswith("tfidf-words")
    systems = [model["system"] for model in listing["models"] if model["task"]]
    assert systems[0] == "ulmfit-adapted" and systems[-1].startswith("tfidf-words")
    rule = PromotionRule(latency_ms=10_000)
    decision = json.loads(
        promote(PromoteJob(registry=registry, rule=rule, examples={"things": made}, out=out)).read_text()
    )["decisions"]["things"]
    assert decision["verdict"] == "promote"

    champion = load_champion(registry, "things")
    assert isinstance(champion, WordsClassifier)
    output = tmp_path / "predicted.jsonl"
    done = predict_file(folder / "test.jsonl", output=output, classifier=champion, columns={"text": "text"})
    predicted = [json.loads(line) for line in output.read_text().splitlines()]
    assert done.rows == len(predicted) == 60
    assert sum(row["prediction"] == row["label"] for row in predicted) > 50
