"""The notebooks-as-scripts of docs/notebooks run as they are, in quick mode."""

import os
import re
import runpy
from pathlib import Path

import pytest

from tests.example_task import in_process  # noqa: F401

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.py"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory, and temporary folders, of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook, monkeypatch, capsys):
    monkeypatch.setenv("HEADSTART_NOTEBOOK", "quick")
    before = Path.cwd()
    result = runpy.run_path(str(notebook), run_name="__main__")
    os.chdir(before)
    if "accuracy" in result:
        assert result["accuracy"] > 0.6
    if notebook.stem == "own_language_model":
        assert result["after"] < result["before"] / 2
        assert result["predicted"]["label"].tolist() == ["danger", "safe"]
    if notebook.stem == "tagging":
        assert '"label": [[0, 12, "PERSON"], [22, 30, "PLACE"]]' in capsys.readouterr().out
    if notebook.stem == "thai":
        assert "".join(result["words"]) == result["text"] and len(result["words"]) > 3


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nightly_retraining_retrains(monkeypatch, capsys):
    monkeypatch.delenv("HEADSTART_NOTEBOOK", raising=False)
    runpy.run_path(str(FOLDER / "nightly_retraining.py"), run_name="__main__")
    assert len(re.findall(r"^report: ", capsys.readouterr().out, re.MULTILINE)) == 2
