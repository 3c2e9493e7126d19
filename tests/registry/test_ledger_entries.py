"""The state that follows from the entries of the ledger: total order, compare-and-swap, vetoes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from components.registry.ledger_entries import Entry, State, replay
from tests.registry.aliases import START, A, M, change


def state_of(*entries: Entry) -> State:
    return replay(entries, model=M, alias=A)


def test_of_several_changes_of_the_same_state_the_first_is_accepted() -> None:
    state = state_of(change(1, "1", expect=0), change(2, "2", expect=1), change(3, "3", expect=1))
    assert [found.after for found in state.changes] == ["1", "2"]
    assert state.position == 2
    # The loser's entry does not count as a change that others must have seen.
    assert state_of(*[change(1, "1", expect=0), change(2, "2", expect=0), change(3, "3", expect=1)]).position == 3


def test_entries_of_other_aliases_and_models_do_not_count() -> None:
    other = [change(2, "2", expect=1, alias="best"), change(3, "3", expect=1, model="headstart-other")]
    assert [found.after for found in state_of(change(1, "1", expect=0), *other).changes] == ["1"]


def test_an_abandoned_change_is_none() -> None:
    abandoned = replace(change(3, "", expect=2), event="abandoned", facts={"change": "c2", "reason": "gone"})
    state = state_of(change(1, "1", expect=0), change(2, "2", expect=1), abandoned)
    assert state.last is not None
    assert (state.last.after, state.position) == ("1", 3)


def test_the_champion_at_a_time() -> None:
    state = state_of(change(1, "1", expect=0), change(3, "2", expect=1))
    assert state.at(START) is None
    found = [state.at(START + timedelta(days=days)) for days in (1, 2, 3, 9)]
    assert [change.after for change in found if change] == ["1", "1", "2", "2"]


def test_a_rollback_removes_later_champions_and_any_other_change_adds_one() -> None:
    rolled = change(4, "1", expect=3, action="rollback")
    first = [change(1, "1", expect=0), change(2, "2", expect=1), change(3, "3", expect=2)]
    assert [number for number, _ in state_of(*first, rolled).champions] == ["1"]
    by_hand = change(4, "1", expect=3, action="hand")
    assert [number for number, _ in state_of(*first, by_hand).champions] == ["1", "2", "3", "1"]


def test_a_veto_ends_when_a_person_chooses_the_content_again() -> None:
    facts = change(2, "1", expect=1).facts
    vetoed = change(2, "1", expect=1, facts={**facts, "action": "rollback", "vetoes": ["d2", "d3"]})
    assert state_of(change(1, "2", expect=0), vetoed).vetoes.keys() == {"d2", "d3"}
    promoted = change(3, "2", expect=2)
    assert state_of(change(1, "2", expect=0), vetoed, promoted).vetoes.keys() == {"d2", "d3"}
    chosen = change(3, "2", expect=2, action="assign")
    assert state_of(change(1, "2", expect=0), vetoed, chosen).vetoes.keys() == {"d3"}


def decision(position: int, candidate: str, champion: str | None) -> Entry:
    facts = {"key": f"k{position}", "decision": {"candidate": {"digest": candidate}, "champion": None}}
    if champion is not None:
        facts["decision"]["champion"] = {"digest": champion}  # type: ignore[index]
    return replace(change(position, "", expect=None), event="decision", facts=facts)


@pytest.mark.parametrize(
    ("entries", "candidate", "held"),
    [
        # 1 and 2 were promoted; a person returns to 1.
        ([change(5, "1", expect=2, action="hand")], "d2", True),
        ([change(5, "1", expect=2, action="hand")], "new", False),
        ([change(5, "1", expect=2, action="hand")], "d1", False),  # the champion itself
        ([change(5, "1", expect=2, action="hand")], "", False),  # not made by Headstart
        ([change(5, "1", expect=2, action="assign")], "d2", True),
        ([change(5, "1", expect=2, action="promote")], "d2", False),
        ([decision(3, "x", "d1"), change(5, "1", expect=2, action="hand")], "x", True),
        ([decision(3, "x", "d2"), change(5, "1", expect=2, action="hand")], "x", False),
        ([change(5, "1", expect=2, action="hand"), decision(6, "x", "d1")], "x", False),
        ([change(5, "1", expect=2, action="hand"), change(6, "3", expect=5)], "d2", False),  # a new one has won
    ],
)
def test_a_champion_that_a_person_has_chosen_stays_until_a_new_candidate(
    entries: list[Entry], candidate: str, held: bool
) -> None:
    state = state_of(change(1, "1", expect=0), change(2, "2", expect=1), *entries)
    assert (state.held_by(candidate) is not None) == held
