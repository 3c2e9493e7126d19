"""What a person asks and decides: champion, history, choice of a version, and that no lock is waited for."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from components.cli import main as cli
from components.core.errors import ConfigError, RegistryError
from components.registry.explain import describe_champion, history, parse_time
from components.registry.ledger import Ledger, assign, rollback
from flows import promote as promotion
from flows.repository import locked
from tests.registry.aliases import A, M, add, number, observed, promote, set_by_hand

ROOT = Path(__file__).parents[2]
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


def matches(lines: list[str], *patterns: str) -> None:
    assert len(lines) == len(patterns), lines
    for line, pattern in zip(lines, patterns, strict=True):
        assert re.fullmatch(pattern, line), line


def test_champion_answers_who_was_and_why(registry):
    settings = registry.settings
    with pytest.raises(RegistryError, match=rf"^{M}@{A} at .*: no version; run the stages register and promote first$"):
        describe_champion(settings, "letters")
    first_version = add(registry, "a")
    with pytest.raises(RegistryError, match=r"1 version\(s\), none promoted; .* --task letters --version 1; choose"):
        describe_champion(settings, "letters")
    promote(registry, first_version)
    first = datetime.now(UTC)
    promote(registry, add(registry, "b"))

    who = r"\S+@\S+"
    matches(
        describe_champion(settings, "letters"),
        f"{M}@{A}: version 2 since {TIME}",
        f"  {M}@{A}: version 2 promoted over version 1 by {who}: better",
    )
    matches(
        describe_champion(settings, "letters", at=first.isoformat()),
        f"{M}@{A}: version 1 since {TIME} until {TIME}",
        f"  {M}@{A}: version 1 promoted as the first one by {who}: better",
    )
    with pytest.raises(
        RegistryError, match=rf"had no champion at 2020-01-01 23:59:59 UTC; the first one is of {TIME}$"
    ):
        describe_champion(settings, "letters", at="2020-01-01")

    set_by_hand(registry, "1")
    assert describe_champion(settings, "letters")[-1] == f"{M}@{A}: now points to version 1, set by hand in MLflow"
    observed(registry)
    matches(
        describe_champion(settings, "letters"),
        f"{M}@{A}: version 1 since {TIME}",
        rf"  {M}@{A}: version 1 set by hand in MLflow over version 2, found by {who}: .*",
        f"  the move itself took place after {TIME} and before {TIME}, when it was found",
    )
    registry.client.delete_model_version(M, "1")
    assert describe_champion(settings, "letters")[0].startswith(f"{M}@{A}: version 1 (deleted since) since ")
    assert describe_champion(settings, "letters")[-1] == f"{M}@{A}: the alias or its version was deleted in MLflow"


def test_dates_are_utc_and_include_the_whole_day():
    assert parse_time("2026-11-24") == datetime(2026, 11, 25, tzinfo=UTC) - timedelta(microseconds=1)
    assert parse_time("2026-11-24T03:00") == datetime(2026, 11, 24, 3, tzinfo=UTC)
    assert parse_time("2026-11-24T03:00+02:00") == datetime(2026, 11, 24, 1, tzinfo=UTC)
    with pytest.raises(ConfigError, match="^--at: 'yesterday' is no date or time; write 2026-11-24 or"):
        parse_time("yesterday")


def test_history_is_in_words(registry):
    settings = registry.settings
    versions = [add(registry, digest) for digest in "ab"]
    decision = {"verdict": "promote", "reasons": ["better by 0.1"], "candidate": {"version": "1"}, "champion": None}
    decision |= {"against": "most frequent class"}
    Ledger(registry).append("decision", model=M, facts={"key": "k", "decision": decision})
    for version in versions:
        promote(registry, version)
    rollback(settings, "letters", reason="too slow")
    assign(settings, "letters", version="2", reason="fresher data")
    who = r"\S+@\S+"
    expected = [
        f"version 1 against most frequent class: promote, decided by {who}: better by 0.1",
        f"version 1 promoted as the first one by {who}: better",
        f"version 2 promoted over version 1 by {who}: better",
        f"version 1 restored, version 2 rolled back by {who}: too slow",
        f"version 2 chosen over version 1 by {who}: fresher data",
    ]
    matches(history(settings, "letters"), *(f"{TIME}  {M}@{A}: {line}" for line in expected))
    assert history(settings) == history(settings, "letters")
    assert history(settings, "other") == []


def test_a_chosen_version_must_exist_and_differ(registry):
    settings = registry.settings
    promote(registry, add(registry, "a"))
    add(registry, "b")
    add(registry, "c", kind="encoder")
    for version, reason, message in [
        ("1", "why", rf"^{M}@{A}: version 1 is the champion already$"),
        ("7", "why", rf"^{M}: has no version 7; existing versions: 1, 2, 3$"),
        ("3", "why", rf"^{M}/3: was not registered by Headstart as a classifier"),
    ]:
        with pytest.raises(RegistryError, match=message):
            assign(settings, "letters", version=version, reason=reason)
    with pytest.raises(ConfigError, match=r"^--reason: is empty"):
        assign(settings, "letters", version="2", reason=" ")
    assert number(registry) == "1"
    assert assign(settings, "letters", version="2", reason="why").endswith("version 2 is the champion, version 1 was")
    assert number(registry) == "2"


def test_the_commands_do_not_wait_for_a_run_that_holds_the_repository(registry, tmp_path, monkeypatch, capsys):
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw["registry"] = {"tracking": "sqlite:///mlflow.db"}
    raw["run"]["tasks"] = ["letters"]
    raw["data"]["tasks"] = {"letters": raw["data"]["tasks"]["aws-type"]}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw))
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "docs").mkdir()
    for digest in "ab":
        promote(registry, add(registry, digest))

    def headstart(*arguments):
        # Commands change to the folder of the project.
        monkeypatch.chdir(tmp_path / "docs")
        done = CliRunner().invoke(cli.app, [*arguments, "--params", "../params.yaml"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    with locked(tmp_path, what="a retraining", say=print):
        assert headstart("rollback") == f"{M}@{A}: version 1 restored, version 2 rolled back\n"
        monkeypatch.chdir(tmp_path / "docs")
        promotion.command(version="2", reason="a mistake", params=Path("../params.yaml"))
        assert capsys.readouterr().out == f"{M}@{A}: version 2 is the champion, version 1 was\n"
        assert headstart("champion").startswith(f"{M}@{A}: version 2 since ")
        assert headstart("champion", "--history").count("\n") == 4
    with pytest.raises(RegistryError, match="headstart-other: has no version 3"):
        promotion.command(version="3", reason="cheaper", task="other", params=tmp_path / "params.yaml")
    with pytest.raises(ConfigError, match="--reason, --task and --force belong to --version"):
        promotion.command(reason="fresher")
    assert number(registry) == "2"
    assert not (tmp_path / "docs" / "mlflow.db").exists()
