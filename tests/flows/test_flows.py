"""The command promote."""

from pathlib import Path

import pytest

from flows import flow_run, promote

from .conftest import dvc, ran


@pytest.mark.slow
def test_promote_runs_only_the_stages_of_the_registry(project: Path, prefect_server: None) -> None:
    dvc(project, "repro", "-q", "evaluate")
    ran(project)
    (project / "data/domain/aws/b.txt").write_text("more\n")
    promote.command(params=project / "params.yaml")
    assert ran(project) == ["register registry"]


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
