"""`headstart lectures`: which run a claim is measured on."""

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from components.core.errors import ConfigError
from components.studies.lectures import CLAIMS, PARAMS, THAI
from flows import lectures

ROOT = Path(__file__).parents[2]


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What the command runs, without running it."""
    calls: list[tuple[str, ...]] = []

    def measured(claim: Any, outputs: Any, *, params: Path, **_: Any) -> dict[str, Any]:
        calls.append((claim.name, str(params), outputs.params.run.out))
        return {"agrees": None, "lead": []}

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(lectures, "working", lambda *_, **__: nullcontext())
    monkeypatch.setattr(lectures, "environment", lambda _: dict(os.environ))
    monkeypatch.setattr(lectures.retrain_command, "command", lambda *, params: calls.append(("retrain", str(params))))
    monkeypatch.setattr(lectures, "run_headstart", lambda *words, **_: calls.append(("stage", words[3], words[5])))
    monkeypatch.setattr(lectures, "measured", measured)
    monkeypatch.setattr(lectures, "store", lambda *_: None)
    return calls


def test_every_claim_is_measured_on_its_run(called, tmp_path):
    lectures.command(["layers", "thai", "sizes"], None, tmp_path)
    assert called == [
        ("retrain", str(PARAMS)),
        ("stage", "wnut17", str(PARAMS)),
        ("retrain", str(THAI)),
        ("layers", str(PARAMS), "artifacts/lectures"),
        ("thai", str(THAI), "artifacts/thai"),
        ("sizes", str(THAI), "artifacts/thai"),
    ]


def test_all_claims_are_measured_on_a_run_of_ones_own(called, tmp_path):
    lectures.command(None, Path("experiments/bakeoff/params.yaml"), tmp_path)
    assert [of[:2] for of in called] == [(name, "experiments/bakeoff/params.yaml") for name in ("retrain", *CLAIMS)]


def test_a_missing_file_is_named(called, tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere.yaml: does not exist; name the settings of a run with --params"):
        lectures.command(["thai"], Path("nowhere.yaml"), tmp_path)
    assert not called
