"""Import of the ledger's file of earlier versions."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from components.errors import ArtifactError
from components.registry.alias_changes import observe
from components.registry.ledger import Ledger
from components.tracking import Registry
from tests.registry.aliases import START, A, M, add, number, promote, set_by_hand


def legacy(uri: str, *lines: dict[str, Any]) -> str:
    found = []
    for index, line in enumerate(lines):
        time = (START - timedelta(days=30 - index)).isoformat(timespec="milliseconds")
        found.append(json.dumps({"time": time, "uri": uri, "model": M, "alias": A, "reasons": ["r"], **line}) + "\n")
    return "".join(found)


def test_the_file_of_an_earlier_version_is_imported_once(registry: Registry, tmp_path: Path) -> None:
    for digest in "abc":
        add(registry, digest)
    set_by_hand(registry, "1")
    decided = {"verdict": "promote", "gain": 0.1, "reasons": ["r"], "candidate": {"digest": "b"}, "champion": None}
    file = tmp_path / "old" / "ledger.jsonl"
    file.parent.mkdir()
    content = legacy(
        registry.address,
        {"event": "intent", "id": "1", "action": "promote", "before": None, "after": "1", "history": ["1"]},
        {"event": "done", "id": "1", "recovered": False},
        {"event": "decision", "id": "2", "key": "k", "decision": decided},
        {"event": "intent", "id": "3", "action": "promote", "before": "1", "after": "2", "history": ["1", "2"]},
        {"event": "done", "id": "3", "recovered": False},
        {"event": "intent", "id": "4", "action": "promote", "before": "2", "after": "3", "history": ["1", "2", "3"]},
        {"event": "abandoned", "id": "4", "reason": "r"},
        {"event": "intent", "id": "5", "action": "rollback", "before": "2", "after": "1", "history": ["1"]},
        {"event": "done", "id": "5", "recovered": False},
        {"event": "decision", "id": "6", "key": "k", "decision": decided, "model": "headstart-no-such-model"},
    )
    other = legacy("sqlite:///elsewhere.db", {"event": "decision", "id": "7", "key": "k", "decision": decided})
    file.write_text(content + other + '{"event": "do')  # a crash has left half a line

    for _ in range(2):
        state = Ledger(registry, legacy=file).state(M, A)
        assert [(change.action, change.after) for change in state.changes] == [
            ("promote", "1"),
            ("promote", "2"),
            ("rollback", "1"),
        ]
        assert [number for number, _ in state.champions] == ["1"]
        assert state.vetoes.keys() == {"b"}
        assert [entry.facts["key"] for entry in state.decisions] == ["k"]
        assert len(Ledger(registry).entries()) == 4
    assert file.read_text() == other, "of another address, which may be used again"
    assert file.with_name("ledger.jsonl.imported").read_text().startswith(content)

    # Another clone imports its own file later; what was recorded since then stays the last change.
    promote(registry, registry.get(M, "3"))
    file.write_text(
        legacy(
            registry.address,
            {"event": "intent", "id": "8", "action": "promote", "before": None, "after": "2", "history": ["2"]},
            {"event": "done", "id": "8", "recovered": False},
        )
    )
    state = Ledger(registry, legacy=file).state(M, A)
    assert not file.exists()
    assert [change.after for change in state.changes] == ["1", "2", "2", "1", "3"], "by time; then what came after"
    assert promote(registry, registry.get(M, "2")).last.after == "2"  # type: ignore[union-attr]


def test_the_file_is_found_in_the_repository(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(registry, "a")
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "docs").mkdir()
    file = tmp_path / ".headstart" / "ledger.jsonl"
    file.parent.mkdir()
    intent = {"event": "intent", "id": "1", "action": "promote", "before": None, "after": "1", "history": ["1"]}
    file.write_text(legacy(registry.address, intent))
    monkeypatch.chdir(tmp_path / "docs")
    _, _, sentences = observe(registry, Ledger(registry), model=M, alias=A)
    assert sentences == [f"interrupted promote of {M} from version none to 1: finished"]
    assert number(registry) == "1"


@pytest.mark.parametrize("line", ["no json", "[]", '{"event": "done"}', '{"event": "intent", "id": "1"}'])
def test_a_damaged_file_is_named_and_not_imported(registry: Registry, tmp_path: Path, line: str) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text(f"{line}\n")
    with pytest.raises(ArtifactError, match=r"ledger.jsonl:1: damaged .* restore or remove the file"):
        Ledger(registry, legacy=file)
    assert file.exists()
