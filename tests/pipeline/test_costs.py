"""Estimates of time and money from durations of earlier runs."""

import json
from pathlib import Path

import pytest

from components.pipeline import costs as estimate
from components.pipeline.costs import (
    KEPT_PER_STAGE,
    Duration,
    History,
    Work,
    work_of,
)
from components.pipeline.stages import STAGES
from components.settings.loading import load_params

ROOT = Path(__file__).parents[2]
TOKENS = Work(2000, "tokens")


def ran(stage: str, amount: float, seconds: float, *, unit: str = "tokens", where: str = "here") -> Duration:
    return Duration(stage, where, unit, amount, seconds)


def test_time_grows_with_the_work_and_runs_elsewhere_do_not_count():
    history = [ran("pretrain@a", 1000, 10), ran("pretrain@a", 1000, 40), ran("pretrain@a", 1000, 9999, where="there")]
    actual = estimate.estimate("pretrain@a", TOKENS, history, machine="here")
    assert actual.seconds == pytest.approx(40) and actual.basis == "2 runs" and actual.tokens == 2000
    assert (actual.low, actual.high) == pytest.approx((20, 80))


def test_another_item_or_stage_is_used_and_nothing_else():
    history = [ran("pretrain@a", 1000, 10), ran("ingest@general", 1000, 1, unit="bytes")]
    names = ("pretrain@a", "pretrain@b", "adapt@b")
    ours, other, stage = (estimate.estimate(name, TOKENS, history, machine="here") for name in names)
    assert [ours.basis, other.basis, stage.basis] == ["1 run", "other pretrain, 1 run", "other training, 1 run"]
    assert ours.seconds == other.seconds == stage.seconds == pytest.approx(20)
    none = estimate.estimate("tokenizer@general", Work(1000, "runs"), history, machine="here")
    assert none.seconds is None and none.basis == "no history"


def test_a_budget_in_seconds_needs_no_history():
    actual = estimate.estimate("pretrain@a", Work(600, "seconds"), [], machine="here")
    assert (actual.seconds, actual.low) == (600, 600) and actual.high == pytest.approx(810)


def test_gpu_hours_are_those_of_stages_that_train_and_unknown_stages_are_named():
    history = [ran("pretrain@a", 2000, 1800), ran("pretrain@a", 2000, 7200), ran("ingest@a", 2000, 1800)]
    stages = {"pretrain@a": TOKENS, "ingest@a": TOKENS, "report": Work(1, "run")}
    actual = [estimate.estimate(name, work, history, machine="here", gpus=2) for name, work in stages.items()]
    total = estimate.total(actual)
    assert total.seconds == pytest.approx(5400) and total.gpu_hours == pytest.approx(2)
    assert (total.low, total.high) == pytest.approx((3600, 9000)) and total.unknown == ["report"]


def test_the_history_is_bounded_and_survives_damage(tmp_path):
    history = History(tmp_path)
    assert history.read() == [] and history.begin("a")
    for number in range(KEPT_PER_STAGE + 5):
        history.end("a", ran("a", 1, number))
    history.end("b", ran("b", 1, 7))
    assert [single.seconds for single in history.read() if single.stage == "a"] == list(range(5, KEPT_PER_STAGE + 5))
    with history.path.open("a") as file:
        file.write('{"stage": "torn')
    assert len(history.read()) == KEPT_PER_STAGE + 1


def test_a_stage_that_resumes_is_noted(tmp_path):
    history = History(tmp_path)
    assert history.begin("pretrain@a")
    # Killed: no end.
    assert not history.begin("pretrain@a")
    history.end("pretrain@a")
    assert history.begin("pretrain@a")


def test_the_work_of_the_shipped_stages(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    params = load_params(ROOT / "params.yaml")
    folder = tmp_path / params.data.general.path
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("x" * 1000)
    expected = {
        "pretrain@ulmfit": Work(200_000, "tokens"),
        "adapt@ulmfit": Work(1_500_000, "tokens"),
        "ingest@general": Work(1000, "bytes"),
        "tokenize@general-wordpiece": Work(1000, "bytes"),
        "tokenizer@general-wordpiece": Work(1000, "bytes"),
        "checks": Work(1000, "bytes"),
        "examples@aws-type": Work(0, "bytes"),
        "finetune@aws-type-ulmfit-adapted": Work(6, "runs"),
        "evaluate@aws-type": Work(6, "runs"),
        "report": Work(1, "run"),
        "unknown@stage": Work(1, "run"),
    }
    assert {name: work_of(name, params) for name in expected} == expected


def test_a_training_makes_at_most_its_passes_over_the_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "params.yaml"
    general = {"path": "data/general", "text": "text"}
    file.write_text(json.dumps({"data": {"general": general, "tasks": {"mood": {"path": "data/mood"}}}}))
    params = load_params(file)
    assert work_of("pretrain@ulmfit", params) == Work(3_000_000, "tokens")
    tokens = tmp_path / "artifacts/tokens/general-wordpiece"
    tokens.mkdir(parents=True)
    (tokens / "metrics.json").write_text(json.dumps({"train": {"tokens": 1000}}))
    assert work_of("pretrain@ulmfit", params) == Work(4000, "tokens")


@pytest.mark.parametrize("file", ["params.yaml", "experiments/cove/params.yaml", "experiments/full/params.yaml"])
def test_every_stage_has_an_amount_of_work(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    """An estimate must not end a run: `Spending.end` asks for the work of every stage that has run."""
    params = load_params(ROOT / file)
    for name, stage in STAGES.items():
        for item in stage.items(params):
            assert work_of(f"{name}@{item}" if item else name, params).amount >= 0
