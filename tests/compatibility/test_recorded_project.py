"""A project that the code of commit f5ecce13 has made (`fit`, `retrain` with more rows, `promote --version 2`): present
code goes on with its settings, data version, stages, registry and ledger.

The archive holds its files; `mlflow.sql` is the dump of its database, in which /project stands for its folder.
"""

import csv
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent / "project-f5ecce13.tar.gz"


def unpack(folder: Path) -> None:
    with tarfile.open(PROJECT) as archive:
        archive.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        if path.name == "MLmodel" or path.suffix in {".sql", ".json", ".yaml"}:
            path.write_text(path.read_text("utf-8").replace("/project", str(folder)), "utf-8")
    with sqlite3.connect(folder / "mlflow.db") as database:
        database.executescript((folder / "mlflow.sql").read_text("utf-8"))
    (folder / "mlflow.sql").unlink()
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_project_of_an_earlier_version_goes_on(tmp_path):
    unpack(tmp_path)

    def headstart(*arguments: str) -> str:
        command = [sys.executable, "-m", "components.cli", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def answers() -> list[str]:
        headstart("predict", "texts.csv", "answers.csv", "--task", "mail", "--overwrite")
        with (tmp_path / "answers.csv").open(newline="") as file:
            return [row["prediction"] for row in csv.DictReader(file)]

    (tmp_path / "texts.csv").write_text("text\nthe invoice and refund today\nthe parcel and courier today\n")
    assert "params.yaml: ok" in headstart("check")
    assert "version 2 chosen over version 1" in headstart("champion")
    assert answers() == ["billing", "delivery"]

    headstart("retrain")
    assert "version 2 since" in headstart("champion")
    assert "version 1 restored, version 2 rolled back" in headstart("rollback", "--task", "mail", "--overwrite")
    assert answers() == ["billing", "delivery"]
    # What a person has decided before and after is not undone.
    headstart("promote")
    assert "version 1 since" in headstart("champion")
