"""Requests of a full rebuild reach the stages that continue from their last output."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from components.pipeline import running
from components.pipeline.running import run_stage
from components.pipeline.stages import Stage
from components.settings.loading import load_params
from components.settings.params import Params
from flows.plan import Changes

ROOT = Path(__file__).parents[2]


@pytest.fixture
def params(tmp_path: Path) -> Params:
    shipped = load_params(ROOT / "params.yaml")
    return shipped.model_copy(update={"run": shipped.run.model_copy(update={"out": str(tmp_path)})})


def test_a_request_stays_until_the_output_is_complete(params, tmp_path, monkeypatch):
    assert running.request(params, "drift") == [
        "ingest@general",
        "ingest@domain",
        "tokenizer@general-wordpiece",
        "tokenizer@domain-wordpiece",
        "adapt@ulmfit",
    ]
    reasons: list[str] = []

    def run(self, arguments, *, code, rebuild):
        reasons.append(rebuild)
        if len(reasons) == 1:
            raise KeyboardInterrupt
        return tmp_path

    monkeypatch.setattr(Stage, "run", run)
    monkeypatch.setattr(running, "check_identity", lambda *_: SimpleNamespace(code_digest="x"))
    with pytest.raises(KeyboardInterrupt):
        run_stage("adapt", params, item="ulmfit")
    run_stage("adapt", params, item="ulmfit")
    run_stage("adapt", params, item="ulmfit")
    assert reasons == ["drift", "drift", ""]
    assert running.requested(tmp_path, "ingest", "domain") == "drift"


def test_a_requested_stage_has_a_reason_to_run(params, tmp_path):
    running.request(params, "drift")
    changes = Changes.__new__(Changes)
    changes.folder = tmp_path / "identity"
    names = ("adapt@ulmfit", "pretrain@ulmfit", "report")
    actual = [changes.requested(SimpleNamespace(name=name)) for name in names]
    assert actual == [["a full rebuild was requested (drift)"], [], []]
