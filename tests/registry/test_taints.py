"""Versions that have learned from a removed document: not promoted, not restored, replaced by an equal clean one."""

import json

import pytest

from components.core.errors import RegistryError
from components.registry.explain import describe_champion, history
from components.registry.ledger import Ledger, assign, record_taints, rollback
from components.registry.tracking import connect
from components.settings.registry import RegistrySettings
from tests.registry.aliases import A, M, add, number, promote
from tests.registry.promoting import NAME, champion, run


def taint(settings: RegistrySettings, name: str, *numbers: str) -> None:
    made = connect(settings)
    versions = [made.get(name, item) for item in numbers]
    record_taints(made, versions, certificate="c-1", documents=1, reason="request 7")


def test_a_tainted_champion_is_replaced_by_an_equal_clean_model_and_a_tainted_candidate_never(pipeline, monkeypatch):
    run(pipeline, knows=24)
    taint(pipeline.settings, NAME, "1")
    assert "tainted" in pipeline.registry.get(NAME, "1").tags
    unchanged = run(pipeline)
    assert unchanged["verdict"] == "unchanged" and "has learned from a document" in unchanged["warnings"][-1]

    # One letter of 26 worse: a loss of 0.0385, and its interval ends above 0.1.
    pipeline.write_classifier("adapted", knows=23)
    monkeypatch.setattr("components.registry.contest.TAINTED_MARGIN", 1e-9)
    kept = run(pipeline)
    assert kept["verdict"] == "reject" and champion(pipeline) == "1"
    assert kept["warnings"][-1].startswith("the champion, version 1, has learned from a document that was removed on ")
    monkeypatch.setattr("components.registry.contest.TAINTED_MARGIN", 0.1)
    replaced = run(pipeline)
    assert (replaced["verdict"], replaced["mode"], champion(pipeline)) == ("promote", "non_inferiority", "2")
    assert "the champion is tainted, so a loss below 0.1 is accepted" in replaced["reasons"]

    taint(pipeline.settings, NAME, "2")
    with pytest.raises(RegistryError, match=rf"^{NAME}: version 1 has learned from a document that was removed on "):
        rollback(pipeline.settings, "letters")
    pipeline.write_classifier("adapted", knows=26)
    assert run(pipeline)["verdict"] == "promote"
    taint(pipeline.settings, NAME, "3")
    pipeline.write_classifier("adapted", knows=25)
    monkeypatch.setattr("components.registry.contest.TAINTED_MARGIN", 0.2)
    assert run(pipeline)["alias_after"] == "4"
    pipeline.write_classifier("adapted", knows=26)
    rejected = run(pipeline)
    assert rejected["verdict"] == "reject" and rejected["reasons"][0].startswith(
        f"{NAME}/3 has learned from a document"
    )


def test_a_model_that_was_initialised_from_a_tainted_one_is_rejected(pipeline):
    run(pipeline, knows=16)
    encoder = "headstart-ulmfit-adapted"
    taint(pipeline.settings, encoder, "1")
    state = Ledger(pipeline.registry).state(NAME)
    assert list(state.tainted) == [pipeline.registry.get(encoder, "1").digest]
    rejected = run(pipeline, knows=24)
    assert rejected["verdict"] == "reject" and rejected["reasons"][0].startswith(f"{encoder}/1 has learned from")


def test_leaked_test_rows_refuse_a_model(pipeline):
    folder = pipeline.out / "leakage" / "letters"
    folder.mkdir(parents=True)
    actual = {"exact": 3, "near": 0, "refused": "3 test rows occur in what it was trained on (leakage.exact: refuse)"}
    (folder / "leakage.json").write_text(json.dumps({"systems": {"ulmfit-adapted": actual}}))
    decision = run(pipeline)
    assert decision["verdict"] == "reject" and champion(pipeline) is None
    assert decision["reasons"] == [f"{NAME}/1: {actual['refused']}; remove the copies, or take new test rows"]
    metrics = pipeline.registry
    recorded = metrics.client.get_run(metrics.get(NAME, "1").run_id).data.metrics
    assert (recorded["leakage.test.exact"], recorded["leakage.test.near"]) == (3, 0)


def test_commands_name_the_taint(registry):
    settings = registry.settings
    promote(registry, add(registry, "a"))
    promote(registry, add(registry, "b"))
    promote(registry, add(registry, "c"))
    taint(settings, M, "2", "3")
    warning = describe_champion(settings, "letters")[-1]
    assert warning.startswith("warning: the champion, version 3, has learned from a document that was removed on ")
    (line,) = [line for line in history(settings, "letters") if "certificate" in line]
    assert "request 7 by " in line and line.endswith(f"(certificate c-1); tainted: {M}/2, {M}/3")
    with pytest.raises(RegistryError, match="choose another version, or add --force"):
        assign(settings, "letters", version="2", reason="why")
    with pytest.raises(RegistryError, match="version 2 has learned from"):
        rollback(settings, "letters", to="2")
    rollback(settings, "letters")
    assert number(registry) == "1"
    assign(settings, "letters", version="2", reason="why", force=True)
    assert number(registry) == "2" and A == "champion"
