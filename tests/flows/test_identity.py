"""The shipped pipeline in DVC: an edit makes exactly the stages out of date whose result it could change."""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flows.plan import Plan, Stage
from flows.why import explain
from tests.raw_data import write_raw_data

from .conftest import ROOT, change, git

STAGES = ("identity", "examples@aws-type", "ingest@general", "ingest@domain")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped pipeline, settings and code on a few lines of data; its first stages have run."""
    root = tmp_path_factory.mktemp("clone")
    for name in ("dvc.yaml", "params.yaml", "requirements.lock", ".dvc/config", ".dvcignore"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    for folder in ("components", "flows"):
        shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
    write_raw_data(root)
    (root / ".gitignore").write_text("/data\n/artifacts\n")
    git(root, "init", "-q")
    dvc(root, "add", "-q", "data")
    dvc(root, "repro", *STAGES)
    return root


def run(root: Path, *command: str) -> str:
    """A command that takes the code of the clone; its output."""
    binaries = str(Path(sys.executable).parent)
    environment = {**os.environ, "PYTHONPATH": str(root), "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def dvc(root: Path, *arguments: str) -> str:
    return run(root, sys.executable, "-m", "dvc", *arguments)


def plan(root: Path) -> Plan:
    script = (
        "from pathlib import Path; from flows.plan import read_plan\n"
        "print(read_plan(Path('dvc.yaml').resolve(), root=Path.cwd(), files=True))"
    )
    return eval(run(root, sys.executable, "-c", script), {"Plan": Plan, "Stage": Stage, "inf": math.inf})


def reasons(root: Path) -> dict[str, tuple[str, ...]]:
    """Those of the stages that have run, but for the identity's own."""
    return {stage.name: stage.reasons for stage in plan(root).stages if stage.name in STAGES[1:] and stage.reasons}


def stale(root: Path) -> set[str]:
    """The stages that plain DVC runs once it has looked at the code, of those that have run before."""
    dvc(root, "repro", "--single-item", "identity")
    actual = json.loads(dvc(root, "status", "--json", *STAGES))
    return set(actual)


@pytest.mark.slow
def test_an_edit_makes_the_stages_that_reach_it_out_of_date(clone):
    assert reasons(clone) == {}
    assert stale(clone) == set()

    cleaning = clone / "components/data/ingestion/cleaning.py"
    cleaning.write_text("# A comment.\n" + cleaning.read_text())
    (clone / "components/models/bert.py").write_text(
        (clone / "components/models/bert.py").read_text() + "\nADDED = 1\n"
    )
    assert [stage.name for stage in plan(clone).stages if stage.reasons and stage.name in STAGES] == ["identity"]
    assert reasons(clone) == {} == reasons(clone)
    assert stale(clone) == set()

    cleaning.write_text(cleaning.read_text() + "\nADDED = 1\n")
    expected = dict.fromkeys(STAGES[2:], ("code components/data/ingestion/cleaning.py: changed",))
    assert reasons(clone) == expected
    assert stale(clone) == set(expected)
    assert reasons(clone) == expected
    assert "Running stage 'ingest@domain'" in dvc(clone, "repro", *STAGES)
    assert reasons(clone) == {}


@pytest.mark.slow
def test_a_setting_a_default_and_a_file(clone):
    change(clone / "params.yaml", "min_characters: 1 ", "min_characters: 2 ")
    change(clone / "params.yaml", "workers: auto ", "workers: 1 ")
    expected = dict.fromkeys(STAGES[2:], ("setting ingest.min_characters: 1 -> 2",))
    assert reasons(clone) == expected
    assert stale(clone) == set(expected)
    change(clone / "params.yaml", "min_characters: 2 ", "min_characters: 1 ")
    assert reasons(clone) == {}
    assert stale(clone) == set()

    (clone / "data/domain/aws/b.jsonl").write_text('{"text": "one more"}')
    assert reasons(clone) == {"ingest@domain": ("data/domain/aws modified: b.jsonl (new)",)}
    lines = list(explain(plan(clone), ["ingest"]))
    assert lines == [
        "ingest@general: up to date",
        "ingest@domain: out of date",
        "  data/domain/aws modified: b.jsonl (new)",
    ]
