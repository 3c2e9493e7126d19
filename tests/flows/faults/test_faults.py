"""A fault during a retraining, and what has to follow: `make faults`, most of an hour."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.flows.faults import kills, services
from tests.flows.faults.project import Session, environment

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]
FAULTS = (
    # The run goes on after SIGKILL of the Ray worker, of a stage, and of the flow at any time.
    *(kills.kill_worker, kills.kill_stage, kills.kill_flow),
    # An older checkpoint is used if the newest is cut in half; a full disk is a message.
    *(kills.truncate_checkpoint, kills.disk_full),
    # `register` waits for MLflow; without it the exit code is 75 and nothing is lost.
    *(services.mlflow_away, services.mlflow_gone),
    # Expired credentials are a message; with good ones the run goes on.
    services.s3_credentials,
    # One of two retrainings waits.
    services.two_at_once,
    # The run goes on with the new head of the Ray cluster.
    services.ray_head,
)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    folder = tmp_path_factory.mktemp("faults")
    with environment(folder) as variables:
        yield Session(folder, variables)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_what_has_to_follow_a_fault_follows(fault, session):
    """With the same bits as without the fault where it trains."""
    print(fault(session))
