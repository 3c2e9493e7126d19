"""Times that were missed: one run makes up for all of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest

from flows.missed import Record, Times, skip_missed

NIGHTLY = Times(cron="0 3 * * *", timezone="Europe/Berlin")
HOURLY = Times(cron="", timezone="UTC", every=3600)
NOON = datetime(2026, 11, 24, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("times", "after", "until", "first"),
    [
        (NIGHTLY, NOON, NOON + timedelta(hours=13), None),
        # 03:00 in Berlin is 02:00 UTC.
        (NIGHTLY, NOON, NOON + timedelta(hours=14), NOON + timedelta(hours=14)),
        (NIGHTLY, NOON, NOON + timedelta(days=30), NOON + timedelta(hours=14)),
        (NIGHTLY, NOON + timedelta(hours=14), NOON + timedelta(hours=20), None),
        (HOURLY, NOON, NOON + timedelta(minutes=59), None),
        (HOURLY, NOON, NOON + timedelta(hours=7), NOON + timedelta(hours=1)),
    ],
)
def test_the_first_time_in_an_interval(times: Times, after: datetime, until: datetime, first: datetime | None) -> None:
    assert times.first(after=after, until=until) == first


def test_a_missed_time_is_owed_once(tmp_path: Path) -> None:
    path = tmp_path / "nightly.json"
    first = Record(path, NIGHTLY)
    assert first.owed(NOON) == ""
    first.passed(NOON)
    week = NOON + timedelta(days=7)
    # The process was away for a week.
    later = Record(path, NIGHTLY)
    assert later.owed(week).startswith("the run of 2026-11-25 ")
    later.started(week)
    later.finished()
    assert later.owed(week) == Record(path, NIGHTLY).owed(week) == ""


def test_a_run_that_did_not_end_is_owed(tmp_path: Path) -> None:
    path = tmp_path / "nightly.json"
    Record(path, NIGHTLY).started(NOON)
    assert Record(path, NIGHTLY).owed(NOON) == "the last run did not end"


def test_a_full_disk_does_not_end_a_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    record = Record(tmp_path / "nightly.json", NIGHTLY)
    with monkeypatch.context() as context:
        context.setattr(os, "fsync", full)
        record.started(NOON)
    assert capsys.readouterr().out == (
        f"warning: {tmp_path / 'nightly.json'}: cannot be written (No space left on device); free space or choose "
        "another location\n"
    )
    record.finished()
    assert Record(tmp_path / "nightly.json", NIGHTLY).owed(NOON) == ""


def test_the_record_of_another_schedule_or_a_damaged_one_owes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "nightly.json"
    Record(path, NIGHTLY).started(NOON)
    assert Record(path, HOURLY).owed(NOON + timedelta(days=7)) == ""
    path.write_text('{"times": ')
    assert Record(path, NIGHTLY).owed(NOON + timedelta(days=7)) == ""


def test_a_scheduled_run_does_for_those_that_are_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a work pool starts them: the first of several late runs is started, and cancels the others."""
    deployment = uuid4()
    late = [SimpleNamespace(id=uuid4(), auto_scheduled=auto) for auto in (True, True, False)]
    cancelled: dict[UUID, str] = {}

    @contextmanager
    def client(*, sync_client: bool) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(
            get_scheduled_flow_runs_for_deployments=lambda ids, scheduled_before: late if ids == [deployment] else [],
            set_flow_run_state=lambda run, state, force: cancelled.update({run: state.name}),
        )

    monkeypatch.setattr("prefect.client.orchestration.get_client", client)
    assert skip_missed() == 0  # outside of a run
    run = SimpleNamespace(id=uuid4(), deployment_id=deployment, auto_scheduled=True)
    monkeypatch.setattr("prefect.context.FlowRunContext.get", lambda: SimpleNamespace(flow_run=run))
    assert skip_missed() == 2
    assert cancelled == {late[0].id: "Missed", late[1].id: "Missed"}
    run.auto_scheduled = False
    assert skip_missed() == 0
