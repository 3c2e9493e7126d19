"""`headstart lectures`: which run a claim is measured on."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from components.core.errors import ConfigError
from components.pipeline.costs import Duration
from components.pipeline.stages import STAGES
from components.settings.loading import load_params
from components.settings.params import Params
from components.studies.lectures import read_claims
from flows import lectures
from flows.plan import Plan, Stage
from flows.run import wanted

ROOT = Path(__file__).parents[2]
CLAIMS = read_claims(ROOT)
PARAMS, THAI = Path("experiments/lectures/params.yaml"), Path("experiments/thai/params.yaml")


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What the command runs, without running it."""
    calls: list[tuple[str, ...]] = []

    def measure(name: str, claims: Any, outputs: Any, *, params: Path, **_: Any) -> dict[str, Any]:
        calls.append((name, str(params), outputs.params.run.out))
        return {"commit": ""}

    monkeypatch.chdir(ROOT)

    def run(params: Path, *, goals: Sequence[str]) -> None:
        calls.append(("retrain", str(params), *goals))

    monkeypatch.setattr(lectures.retrain_command, "run", run)
    monkeypatch.setattr(lectures, "expected", lambda *_: "")
    monkeypatch.setattr(lectures, "run_headstart", lambda *words, **_: calls.append(("stage", words[3], words[5])))
    monkeypatch.setattr(lectures, "measure", measure)
    return calls


def test_every_claim_is_measured_on_its_run(called, tmp_path):
    lectures.command(["neighbours", "thai", "sizes"], None, tmp_path)
    assert called == [
        ("retrain", str(PARAMS), "pretrain@word2vec"),
        ("stage", "ewt-pos", str(PARAMS)),
        ("retrain", str(THAI), "evaluate@truevoice-action"),
        ("neighbours", str(PARAMS), "artifacts/lectures"),
        ("thai", str(THAI), "artifacts/thai"),
        ("sizes", str(THAI), "artifacts/thai"),
    ]


def test_all_claims_are_measured_on_a_run_of_ones_own(called, tmp_path):
    lectures.command(None, Path("experiments/trec-sst2/params.yaml"), tmp_path)
    # The claims that need a setting that this run lacks are left out before anything is trained.
    kept = [name for name, claim in CLAIMS.items() if not claim.settings]
    assert 0 < len(kept) < len(CLAIMS)
    assert [of[:2] for of in called] == [(name, "experiments/trec-sst2/params.yaml") for name in ("retrain", *kept)]


def test_a_missing_file_is_named(called, tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere.yaml: does not exist; name the settings of a run with --params"):
        lectures.command(["thai"], Path("nowhere.yaml"), tmp_path)
    assert not called


def test_the_rules_are_applied_again_without_a_run(called, tmp_path):
    with pytest.raises(ConfigError, match="--judge: name the folder of lectures.md with --output"):
        lectures.command(None, None, None, judge=True)
    lectures.command(None, None, tmp_path, judge=True)
    assert not called and "not measured by this rule" in (tmp_path / "lectures.md").read_text()


def names_of(params: Params) -> list[str]:
    return [f"{group}@{item}" for group, stage in STAGES.items() for item in stage.items(params)]


def test_the_stages_of_a_claim_are_those_of_its_run(tmp_path):
    for name, claim in CLAIMS.items():
        stages = Plan(tuple(Stage(each, "") for each in names_of(load_params(ROOT / claim.run))), goals=claim.stages)
        groups = {each.partition("@")[0] for each in claim.stages}
        assert {each.group for each in wanted(stages)} == groups, name


def test_the_time_is_that_of_the_recorded_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file, machine = tmp_path / "params.yaml", "a processor, 2 cores"
    shutil.copy(ROOT / "params.yaml", file)
    plan = Plan(tuple(Stage(name, "", reasons=("has not run yet",)) for name in ("pretrain@ulmfit", "adapt@ulmfit")))
    monkeypatch.setattr(lectures, "plan_to_explain", lambda _: plan)
    assert lectures.expected(file, ["adapt", "pretrain"]).endswith(
        "2 stage(s) to run, of unknown time (by the history of this machine)"
    )
    tokens = load_params(file).pretrain["ulmfit"].training.tokens
    duration = Duration("pretrain@ulmfit", machine, "tokens", tokens, 3600.0, "2026-11-29T00:00:00.000+00:00")
    (tmp_path / lectures.RECORDED).write_text(json.dumps(asdict(duration)) + "\n")
    assert "params.yaml: 1 stage(s) to run, about 60 min (measured on a processor" in lectures.expected(
        file, ["pretrain@ulmfit"]
    )
    assert lectures.expected(file, ["evaluate"]).endswith("nothing is missing")
