"""The stage `promote` after a crash, and after what a person has done in the registry."""

from __future__ import annotations

from dataclasses import replace

import pytest

from components.core.errors import RegistryError
from components.registry.contest import Contest
from components.registry.ledger import Ledger, assign, rollback
from components.registry.tracking import Registry
from tests.registry.promoting import NAME, champion, champions, events, must_not_be_called, run


class Killed(BaseException):
    """The end of a process, which no `except Exception` intercepts."""


def killed(*_: object, **__: object) -> None:
    raise Killed


@pytest.mark.parametrize("after_step", ["record", "alias"])
def test_a_change_interrupted_by_a_crash_is_completed_by_the_next_run(pipeline, monkeypatch, after_step):
    pipeline.registered(starts=["adapted"])
    with monkeypatch.context() as patch:
        if after_step == "record":
            patch.setattr(Registry, "set_alias", killed)
        else:
            patch.setattr(Ledger, "mark", killed)
        with pytest.raises(Killed):
            pipeline.promoted()
    assert champion(pipeline) == (None if after_step == "record" else "1")
    assert events(pipeline) == ["decision", "change"]

    written = pipeline.promoted()
    assert written["recovered"] == [f"interrupted promote of {NAME} from version none to 1: finished"]
    assert written["decisions"]["letters"]["verdict"] == "unchanged"
    assert champion(pipeline) == "1"
    assert champions(pipeline) == ["1"]
    assert Ledger(pipeline.registry).entries()[-1].mark == "recovered"
    assert pipeline.promoted()["recovered"] == []


def test_a_crash_before_the_change_is_recorded_repeats_it_without_the_comparison(pipeline, monkeypatch):
    pipeline.registered(starts=["adapted"])
    with monkeypatch.context() as patch:
        patch.setattr("components.registry.contest.move", killed)
        with pytest.raises(Killed):
            pipeline.promoted()
    assert events(pipeline) == ["decision"]

    monkeypatch.setattr("components.registry.contest.load_version", must_not_be_called)
    written = pipeline.promoted()
    assert written["decisions"]["letters"]["verdict"] == "promote"
    assert champion(pipeline) == "1"
    assert events(pipeline) == ["decision", "change"]


def test_a_move_by_hand_is_respected_until_a_new_candidate_is_better(pipeline):
    run(pipeline, knows=14)
    assert run(pipeline, knows=18)["verdict"] == "promote"
    registry = pipeline.registry
    registry.client.set_registered_model_alias(NAME, "champion", "1")  # on MLflow's page

    for night in range(2):
        written = pipeline.promoted()
        decision = written["decisions"]["letters"]
        assert (decision["verdict"], champion(pipeline)) == ("reject", "1"), f"night {night}"
        assert decision["reasons"][0].startswith(f"{NAME}/2 was known when a person chose version 1 on ")
        actual = [f"{NAME}@champion: version 1 was set by hand in MLflow; it is respected"]
        assert written["recovered"] == (actual if night == 0 else [])
    state = Ledger(registry).state(NAME)
    assert [(change["action"], change["after"]) for change in state.changes] == [
        ("promote", "1"),
        ("promote", "2"),
        ("hand", "1"),
    ]
    assert events(pipeline)[-2:] == ["change", "decision"], "one entry for all nights"

    decision = run(pipeline, knows=24)
    assert (decision["verdict"], decision["against"], champion(pipeline)) == ("promote", f"{NAME}/1", "3")


def test_the_veto_of_a_rolled_back_model_survives_its_deletion(pipeline):
    run(pipeline, knows=14)
    run(pipeline, knows=22)
    rollback(pipeline.settings, "letters")
    registry = pipeline.registry
    registry.client.delete_model_version(NAME, "2")

    decision = run(pipeline)  # the same content is registered again
    assert (decision["candidate"]["version"], decision["verdict"], champion(pipeline)) == ("3", "reject", "1")
    assert decision["reasons"][0].startswith(f"{NAME}/3 was rolled back on ")
    assert "`headstart promote --version 3 --reason TEXT`" in decision["reasons"][0]


def test_a_rollback_without_a_champion_is_an_error(pipeline):
    with pytest.raises(RegistryError, match=rf"^{NAME}: has no champion to roll back$"):
        rollback(pipeline.settings, "letters")
    with pytest.raises(RegistryError, match=rf"^{NAME}@champion at sqlite.*: no version; run the stages register and"):
        pipeline.champion()


@pytest.mark.parametrize("how", ["by hand", "by rollback"])
def test_an_alias_that_a_person_moves_during_the_decision_is_not_moved_back(pipeline, monkeypatch, how):
    run(pipeline, knows=12)
    run(pipeline, knows=18)
    assert champion(pipeline) == "2"
    pipeline.write_classifier("adapted", knows=16)
    pipeline.registered(starts=["adapted"])
    registry = pipeline.registry
    compared: list[str | None] = []

    def moved(*arguments, **keywords):
        compared.append(champion(pipeline))
        if len(compared) == 1:
            if how == "by hand":
                registry.set_alias(NAME, "champion", registry.get(NAME, "1"))
            else:
                rollback(pipeline.settings, "letters")
            decision = original(*arguments, **keywords)
            return replace(decision, verdict="promote")  # against the champion that is none any more
        return original(*arguments, **keywords)

    original = Contest.judge
    monkeypatch.setattr(Contest, "judge", moved)
    written = pipeline.promoted()["decisions"]["letters"]
    assert compared == ["2", "1"], "it is made again, against the champion that the person has chosen"
    assert (written["verdict"], written["against"], champion(pipeline)) == ("promote", f"{NAME}/1", "3")
    changes = Ledger(pipeline.registry).state(NAME).changes
    chosen = "hand" if how == "by hand" else "rollback"
    assert [change["action"] for change in changes] == ["promote", "promote", chosen, "promote"]


@pytest.mark.parametrize("what", ["alias", "version"])
def test_a_deleted_champion_ends_the_run_until_a_person_chooses_one(pipeline, what):
    run(pipeline, knows=22)
    registry = pipeline.registry
    if what == "alias":
        registry.client.delete_registered_model_alias(NAME, "champion")
    else:
        registry.client.delete_model_version(NAME, "1")
    message = (
        rf"^{NAME}@champion: version 1 was the champion, and the {what} was deleted in MLflow; choose a champion with "
        r"`headstart promote --version V --reason TEXT` or `headstart rollback`, or restore the alias in MLflow$"
    )
    # Against the most frequent class this one would win.
    for _ in range(2):
        with pytest.raises(RegistryError, match=message):
            run(pipeline, knows=14)
    assert champion(pipeline) is None
    with pytest.raises(RegistryError, match=message):
        pipeline.champion()

    line = assign(pipeline.settings, "letters", version="2", reason="the other one was deleted by mistake")
    assert line == f"{NAME}@champion: version 2 is the champion, version 1 was"
    assert run(pipeline)["verdict"] == "unchanged"
    assert run(pipeline, knows=24)["alias_after"] == "3"
