"""The command promote."""

from pathlib import Path

import pytest

from components.core.errors import ConfigError
from components.registry import ledger
from flows import flow_run, promote
from flows.repository import locked

from .conftest import dvc, ran


@pytest.mark.slow
def test_promote_runs_only_the_stages_of_the_registry(project: Path, prefect_server: None) -> None:
    dvc(project, "repro", "-q", "evaluate")
    ran(project)
    (project / "data/domain/aws/b.txt").write_text("more\n")
    promote.command(params=project / "params.yaml")
    assert ran(project) == ["register registry"]


def test_a_version_is_chosen_without_the_lock_of_the_repository(project, monkeypatch, capsys):
    def assign(settings, task, *, version, reason, force):
        return f"{settings.model_name(task)}: {version}, {reason}, {Path.cwd() == project}"

    monkeypatch.setattr(ledger, "assign", assign)
    monkeypatch.chdir(project.parent)
    with locked(project, what="a retraining", say=print):
        promote.command(version="2", reason="fresher", params=project / "params.yaml")
        promote.command(version="3", reason="cheaper", task="other", params=project / "params.yaml")
    out = capsys.readouterr().out
    assert out == "headstart-aws-type: 2, fresher, True\nheadstart-other: 3, cheaper, True\n"
    with pytest.raises(ConfigError, match="--reason, --task and --force belong to --version"):
        promote.command(reason="fresher")


# What a process knows of the flow run that it executes.


def test_a_flow_run_is_that_of_prefects_context(prefect_server):
    from prefect import flow

    @flow(name="one", flow_run_name="its name")
    def one() -> tuple[str, str]:
        return flow_run.identifier(), flow_run.name()

    identifier, name = one()
    assert len(identifier) == 36
    assert name == "its name"
    assert (flow_run.identifier(), flow_run.name()) == ("", "")
