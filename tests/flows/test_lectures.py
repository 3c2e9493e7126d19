"""`headstart lectures`: which run a claim is measured on."""

from pathlib import Path
from typing import Any

import pytest

from components.core.errors import ConfigError
from components.reporting.findings import Chapter, Findings
from components.studies.lectures import Claim, read_claims
from flows import lectures

ROOT = Path(__file__).parents[2]
CLAIMS = read_claims(ROOT)
PARAMS, THAI = Path("experiments/lectures/params.yaml"), Path("experiments/thai/params.yaml")


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What the command runs, without running it."""
    calls: list[tuple[str, ...]] = []

    def measured(claim: Claim, outputs: Any, *, params: Path, **_: Any) -> tuple[dict[str, Any], Findings]:
        (name,) = (name for name, each in CLAIMS.items() if each == claim)
        calls.append((name, str(params), outputs.params.run.out))
        return {"measure": "", "commit": "", "command": claim.command(params)}, Findings(Chapter(""), {})

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(lectures.retrain_command, "command", lambda *, params: calls.append(("retrain", str(params))))
    monkeypatch.setattr(lectures, "run_headstart", lambda *words, **_: calls.append(("stage", words[3], words[5])))
    monkeypatch.setattr(lectures, "measured", measured)
    monkeypatch.setattr(lectures, "store", lambda *_: None)
    return calls


def test_every_claim_is_measured_on_its_run(called, tmp_path):
    lectures.command(["neighbours", "thai", "sizes"], None, tmp_path)
    assert called == [
        ("retrain", str(PARAMS)),
        ("stage", "ewt-pos", str(PARAMS)),
        ("retrain", str(THAI)),
        ("neighbours", str(PARAMS), "artifacts/lectures"),
        ("thai", str(THAI), "artifacts/thai"),
        ("sizes", str(THAI), "artifacts/thai"),
    ]


def test_all_claims_are_measured_on_a_run_of_ones_own(called, tmp_path):
    lectures.command(None, Path("experiments/bakeoff/params.yaml"), tmp_path)
    # The claims that need a setting that this run lacks are left out before anything is trained.
    kept = [name for name, claim in CLAIMS.items() if not claim.settings]
    assert len(kept) == len(CLAIMS) - 3
    assert [of[:2] for of in called] == [(name, "experiments/bakeoff/params.yaml") for name in ("retrain", *kept)]


def test_a_missing_file_is_named(called, tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere.yaml: does not exist; name the settings of a run with --params"):
        lectures.command(["thai"], Path("nowhere.yaml"), tmp_path)
    assert not called


def test_the_rules_are_applied_again_without_a_run(called, tmp_path):
    with pytest.raises(ConfigError, match="--judge: name the folder of lectures.md with --output"):
        lectures.command(None, None, None, judge=True)
    lectures.command(None, None, tmp_path, judge=True)
    assert not called and "not measured since the rule changed" in (tmp_path / "lectures.md").read_text()
