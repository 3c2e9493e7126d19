"""A kind from outside the code base, two files and two table entries, passes the contract of every kind."""

import json

import pytest

from components.core.errors import DataError
from components.data.tasks.examples import ExamplesJob, examples, read_facts, read_split
from components.data.tasks.kinds import KINDS, promotion_metrics
from components.learners.baselines.stage import BaselineJob, baseline
from components.learners.finetuning.stage import finetune
from components.learners.prediction import Predicted
from components.learners.task_models.classifier import load_classifier
from components.learners.task_models.kinds import TASKS
from components.settings.tasks import TaskSource
from tests.example_task import ROWS, write_jsonl
from tests.finetuning.interruption import learned, records_of
from tests.inference.files import predict_file

KIND = "truth"


@pytest.fixture(autouse=True)
def _entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS._entries, KIND, "tests.finetuning.toy_kind:KIND")
    monkeypatch.setitem(TASKS._entries, KIND, "tests.finetuning.toy_task:TASK")
    monkeypatch.setitem(ROWS, KIND, lambda row: {"text": row["text"], "label": row["label"] == "metal"})


@pytest.mark.parametrize("method", ["finetune", "features"])
def test_it_is_read_fine_tuned_scored_and_served(method, make_job, in_process):
    job = make_job("ulmfit", KIND, method=method)
    facts, dev = read_facts(job.examples), read_split(job.examples, "dev")
    assert (facts.kind, facts.labels, dev.targets[0].tolist()) == (KIND, [], [0.0])
    record = learned(job)
    assert record["score"] == "accuracy" and "penalty" in record


def test_it_has_the_constant_baseline(make_task, tmp_path):
    output = baseline(BaselineJob(examples=make_task(KIND), output=tmp_path / "baselines"))
    (record,) = records_of(output)
    assert record["system"] == "most-frequent" and record["curve"][0]["accuracy"] == pytest.approx(2 / 3)


def test_it_predicts_a_file(make_job, in_process, tmp_path):
    classifier = load_classifier(finetune(make_job("ulmfit", KIND)) / "classifier")
    source, output = tmp_path / "in.csv", tmp_path / "out.jsonl"
    source.write_text('text\nthe old gold here\n" "\n')
    assert predict_file(source, output=output, classifier=classifier) == Predicted(2, 1)
    first, second = (json.loads(line) for line in output.read_text().splitlines())
    assert 0 < first["probability"] < 1 and first["prediction"] in ("true", "false")
    assert second["prediction"] is None


def test_its_reader_names_the_line(tmp_path):
    for split in ("train", "dev", "test"):
        write_jsonl(tmp_path / f"{split}.jsonl", [{"text": "gold", "label": "maybe"}])
    source = TaskSource(path=str(tmp_path), kind=KIND)
    with pytest.raises(DataError, match=r"train\.jsonl, line 1: 'maybe' is neither true nor false"):
        examples(ExamplesJob(task="things", source=source, output=tmp_path / "out"))


def test_its_metrics_can_decide_a_promotion():
    assert promotion_metrics(KIND) == ("accuracy",)
