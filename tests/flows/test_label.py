"""`headstart label`: the labels and the version of the data."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from components.core.errors import ConfigError
from components.labelling.answers import ConflictError
from components.settings.params import Params
from flows import label as flow
from tests.labelling.conftest import project  # noqa: F401 - a fixture


@pytest.fixture
def versioned(project: Callable[..., Params]) -> Path:  # noqa: F811 - the fixture
    project()
    Path(".dvc").mkdir()
    Path("task.dvc").write_text("outs:\n- path: task\n")
    return Path.cwd()


def test_answers_are_merged_and_the_data_get_a_new_version(versioned, monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(flow, "add_folder", calls.append)
    Path("answers.csv").write_text("text,label,by\na new text,fruit,\n")
    flow.command(Path("answers.csv"), by="ann")
    assert calls == [Path("task")]
    (entry,) = map(json.loads, Path("task/labels-things.ledger.jsonl").read_text().splitlines())
    assert (entry["texts"], entry["after"], entry["by"]) == (["a new text"], ["fruit"], "ann")
    flow.command(Path("answers.csv"))
    assert len(calls) == 1
    flow.command(undo=True)
    assert len(calls) == 2
    said = capsys.readouterr()
    assert "1 rows added" in said.out + said.err and "taken back: 1 rows removed" in said.out + said.err


def test_conflicts_are_an_error_of_the_user(versioned):
    Path("answers.csv").write_text("text,label\na new text,fruits\n")
    with pytest.raises(
        ConflictError, match=r"nothing was written \(correct the label, or allow it with --new-labels\)"
    ):
        flow.command(Path("answers.csv"))
    with pytest.raises(typer.BadParameter, match="give either a file or --undo"):
        flow.command()
    with pytest.raises(ConfigError, match="'ours' is not one of mine, theirs"):
        flow.command(Path("answers.csv"), resolve="ours")
