"""The pipeline of a settings file, and the locks of a repository."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from components.cli.onboarding.repository import make_project
from components.core.errors import ConfigError
from flows.repository import Project, active_run, find_root, locked, pipeline_of, release_dvc_locks
from tests.conftest import until

HOLD = """
import sys, time
from pathlib import Path
from flows.repository import locked
with locked(Path(sys.argv[1]), what="retrain a", say=print):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".dvc").mkdir()
    (tmp_path / "params.yaml").write_text("run: {}\n")
    return tmp_path


def test_the_root_is_the_nearest_repository(root, tmp_path_factory):
    (root / "a" / "b").mkdir(parents=True)
    assert find_root(root / "a" / "b") == root
    outside = tmp_path_factory.mktemp("outside")
    with pytest.raises(ConfigError, match="no params.yaml here; run the command in .* headstart fit FILE"):
        find_root(outside)
    # The first run makes it a repository.
    (outside / "params.yaml").write_text("run: {}\n")
    assert find_root(outside) == outside


def test_settings_files_that_are_missing_or_have_another_name(root):
    (root / "other.yaml").write_text("run: {}\n")
    for file, message in (
        ("missing/params.yaml", "does not exist; name the settings file"),
        ("other.yaml", "must be called params.yaml and be in"),
    ):
        with pytest.raises(ConfigError, match=f"{file}: {message}"):
            pipeline_of(Project(root / file))


def test_a_second_run_waits_and_names_the_holder(root):
    first = subprocess.Popen([sys.executable, "-c", HOLD, str(root)], stdout=subprocess.PIPE, text=True)
    printed: list[str] = []
    entered = threading.Event()

    def second():
        with locked(root, what="retrain b", say=printed.append, poll_s=0.05):
            entered.set()

    waiting = threading.Thread(target=second)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        waiting.start()
        until(lambda: printed, limit_s=20)
        assert not entered.is_set()
        run = active_run(root)
        assert run is not None and run.startswith(f"retrain a (process {first.pid}, since 20")
    finally:
        # SIGKILL of the holder releases the lock.
        first.kill()
        first.wait()
    waiting.join(timeout=20)
    assert entered.is_set()
    assert len(printed) == 1
    assert printed[0].startswith(f"waiting: retrain a (process {first.pid}, since 20")
    assert active_run(root) is None


def test_locks_that_dvc_has_left_are_removed_unless_it_runs(root):
    table = root / ".dvc" / "tmp" / "rwlock"
    table.parent.mkdir(exist_ok=True)
    program = root / "dvc"
    program.write_text("#!/bin/sh\nsleep 600\n")
    program.chmod(0o755)
    for folder, kept in ((root, True), (root.parent, False)):
        holder = subprocess.Popen([program], cwd=folder, start_new_session=True)
        try:
            while not psutil.Process(holder.pid).cmdline()[1:]:
                time.sleep(0.01)
            for text in ('{"read": {"a', json.dumps({"write": {"c": {"pid": holder.pid, "cmd": "dvc repro"}}})):
                table.write_text(text)
                with locked(root, what="a", say=print):
                    assert table.exists() is kept
        finally:
            os.killpg(holder.pid, signal.SIGKILL)
            holder.wait()
    table.write_text("{}")
    release_dvc_locks(root)
    assert not table.exists(), "its processes have ended"


SETTINGS = "data:\n  tasks:\n    t: {path: data, train: train.csv, text: text, label: label}\n"


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a params.yaml as the README shows it, and data; neither git nor DVC."""
    (tmp_path / "data").mkdir()
    rows = [f"text {number} of {label},{label}" for number in range(12) for label in "ab"]
    (tmp_path / "data" / "train.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    (tmp_path / "params.yaml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_plan_needs_no_repository(written):
    from flows.why import explain, plan_to_explain

    plan = plan_to_explain(Project(written / "params.yaml"))
    assert {stage.reasons for stage in plan.stages} == {("has not run yet",)} and plan.data == "changed"
    assert "examples@t: out of date" in list(explain(plan))
    assert not (written / ".dvc").exists() and not (written / ".git").exists()


def test_a_run_makes_the_repository_and_its_first_commit(written, capfd):
    from flows.run import begin

    with begin(Project(written / "params.yaml")) as plan:
        assert not plan.problem
    assert "made a git repository" in capfd.readouterr().out
    files = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.split()
    assert {"params.yaml", "dvc.yaml", ".gitignore", ".dvc/config"} <= {*files}
    assert not any(name.startswith("data/") for name in files)


def test_without_a_git_that_makes_repositories_dvc_uses_none(written, monkeypatch):
    broken = written / "bin" / "git"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o700)
    monkeypatch.setenv("PATH", str(broken.parent))
    assert make_project(written) == []
    assert "no_scm = true" in (written / ".dvc" / "config").read_text()


def test_code_outside_of_the_repository_that_has_changed_is_a_reason(tmp_path, monkeypatch):
    """As after an update of an installed Headstart."""
    from flows.plan import read_plan

    project, code = tmp_path / "project", tmp_path / "installed" / "components"
    project.mkdir()
    code.mkdir(parents=True)
    (code / "a.py").write_text("1")
    (project / "dvc.yaml").write_text(f"stages:\n  s:\n    cmd: 'true'\n    deps: [{code}]\n")
    monkeypatch.chdir(project)
    # In processes of their own: DVC logs to the stderr that was open when it was first imported.
    for command in (["init", "-q", "--no-scm"], ["repro", "-q"]):
        subprocess.run([sys.executable, "-m", "dvc", *command], check=True)
    (code / "a.py").write_text("2")
    (stage,) = read_plan(project / "dvc.yaml", root=project, files=True).stages
    assert stage.reasons == (f"{code} modified",)
