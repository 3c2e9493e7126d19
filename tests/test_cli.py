"""The command line: verbs from functions, one message and exit code 2 for what a user got wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from components.cli import common
from components.cli import main as cli
from components.core.errors import ConfigError

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("verb", "section", "key", "value", "message"),
    [
        ("check", "run", "out", 3, "run.out: must be a valid string (found 3)"),
        ("serve", "registry", "tracking", "sqlite:///{folder}/empty.db", "no model is registered yet"),
    ],
)
def test_a_users_error_is_one_message_without_traceback(
    verb, section, key, value, message, tmp_path, monkeypatch, capsys
):
    raw = yaml.safe_load((ROOT / "params.yaml").read_text())
    raw[section][key] = value.format(folder=tmp_path) if isinstance(value, str) else value
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(raw))
    monkeypatch.setattr(sys, "argv", ["headstart", verb, "--params", str(tmp_path / "params.yaml")])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert said.err.startswith("error: ") and message in said.err and "Traceback" not in said.err


@pytest.mark.parametrize("output", [".", "..", "/"])
def test_an_output_without_a_name_is_one_message(output, tmp_path):
    (tmp_path / "t.csv").write_text("text\na\n")
    result = CliRunner().invoke(cli.app, ["predict", str(tmp_path / "t.csv"), output])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith(f"{output}: is a folder; name a file, such as ")


def test_windows_users_are_sent_to_wsl():
    """Without fcntl, which Windows lacks, every command ends at once with one sentence."""
    script = "import sys; sys.modules['fcntl'] = None; from components.cli.main import main; main()"
    command = [sys.executable, "-c", script, "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: Headstart needs Linux or macOS; on Windows, install and run it in WSL: wsl --install\n"
    )


def test_a_defect_keeps_its_traceback(monkeypatch):
    def broken():
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_the_help_shows_at_most_thirty_commands_in_panels_by_purpose():
    names = [name for names in cli.PANELS.values() for name in names.split()]
    assert len(names) <= 30
    shown = CliRunner().invoke(cli.app, ["--help"]).output
    places = [shown.index(f"╭─ {name} ─") for name in cli.PANELS]
    assert places == sorted(places) and all(f" {name} " in shown for name in names)


def test_a_model_goes_in_and_out_and_is_tried(tmp_path):
    (tmp_path / "words.txt").write_text("king 1 1 0\nqueen 0 1 1\nman 1 0 0\nwoman 0 0 1\n")
    run = CliRunner()
    encoder = str(tmp_path / "encoder")
    done = run.invoke(cli.app, ["import", str(tmp_path / "words.txt"), "--output", encoder])
    assert done.exit_code == 0
    assert "4 vectors of 3 numbers -> family 'word2vec'" in done.output
    done = run.invoke(cli.app, ["try", encoder, "king - man + woman", "--count", "1"])
    assert "queen" in done.output
    done = run.invoke(cli.app, ["export", encoder, "--output", str(tmp_path / "out"), "--format", "vectors"])
    assert done.output == "vectors.txt: 4 vectors\n"
    done = run.invoke(cli.app, ["try", encoder, "king", "--top-p", "2"])
    assert str(done.exception) == "sampling: top-p must be above 0 and at most 1"


def test_commands_of_runs_say_what_is_not_installed(monkeypatch):
    monkeypatch.setattr(common, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"prefect is not installed; install it: pip install 'headstart\[pipeline\]'"):
        CliRunner().invoke(cli.app, ["retrain"], catch_exceptions=False)


def test_drift_retrains_by_the_program_of_the_subcommand(monkeypatch):
    """The module `flows.retrain` is the flow, which does nothing as a program."""
    called: list[str] = []
    monkeypatch.setattr(os, "execv", lambda _, arguments: called.extend(arguments[1:]))
    common.run_flow("retrain", ["--rebuild"])
    assert called == ["-m", "components.cli", "retrain", "--rebuild"]
