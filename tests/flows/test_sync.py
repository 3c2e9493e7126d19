"""Retraining in step with a shared repository: two clones, a DVC remote, and an upstream branch."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import chdir
from pathlib import Path

import pytest

from components.core.artifacts import write_atomic
from components.core.errors import ConfigError, TransientError
from flows import sync
from flows.terminal import StageError

from .conftest import ROOT, change, dvc, git, ran

IDENTITY = ("user.name=test", "user.email=test@example.org")


@pytest.fixture
def clones(project: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The project with an upstream and a record, without DVC's remote; and a colleague's clone."""
    folder = tmp_path_factory.mktemp("clones")
    (project / "dvc.lock").write_text("schema: '2.0'\n")
    git(project, "add", "dvc.lock")
    git(project, "commit", "-q", "-m", "first run")
    return project, upstream_of(project, folder)


def upstream_of(project: Path, folder: Path) -> Path:
    """Make a bare repository in `folder` the upstream of the project, and return a colleague's clone of it."""
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder / "git")], check=True)
    git(project, "remote", "add", "origin", str(folder / "git"))
    git(project, "push", "-q", "-u", "origin", "main")
    clone = folder / "clone"
    subprocess.run(["git", "clone", "-q", str(folder / "git"), str(clone)], check=True)
    for root in (project, clone):
        for setting in IDENTITY:
            git(root, "config", *setting.split("="))
    return clone


@pytest.fixture
def shared(project: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The project with an upstream and a DVC remote, after a first run; and a colleague's clone."""
    folder = tmp_path_factory.mktemp("shared")
    text = (project / "dvc.yaml").read_text()
    before, _, after = text.partition("  unwanted:\n")
    (project / "dvc.yaml").write_text(before + "  register:" + after.partition("  register:")[2])
    dvc(project, "remote", "add", "-q", "-d", "shared", str(folder / "dvc"))
    dvc(project, "add", "-q", "data")
    dvc(project, "repro", "-q", "register")
    dvc(project, "push", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "first run")
    clone = upstream_of(project, folder)
    dvc(clone, "pull", "-q", "data.dvc")
    ran(project)
    return project, clone


def pull(clone: Path) -> list[str]:
    with chdir(clone):
        return sync.pull()


def publish(clone: Path, *decisions: str) -> list[str]:
    with chdir(clone):
        return sync.publish(decisions=decisions, push=True)


def colleague(clone: Path, *, text: str = "more domain text\n") -> None:
    """A commit with new data and another setting."""
    (clone / "data/domain/aws/b.txt").write_text(text)
    dvc(clone, "add", "-q", "data")
    dvc(clone, "push", "-q", "data.dvc")
    change(clone / "params.yaml", "min_characters: 1 ", "min_characters: 3 ")
    git(clone, "commit", "-q", "-a", "-m", "more text")
    git(clone, "push", "-q")


def test_code_and_data_are_pulled(shared, capsys):
    project, clone = shared
    pull(project)
    assert capsys.readouterr().out.splitlines() == [
        "sync | code: no new commits of origin/main",
        "sync | data: no new version",
    ]
    colleague(clone)
    pull(project)
    assert (project / "data/domain/aws/b.txt").read_text() == "more domain text\n"
    assert "min_characters: 3 " in (project / "params.yaml").read_text()
    code, data = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"sync \| code: 1 new commit\(s\) of origin/main: [0-9a-f]+ more text \(test\)", code)
    assert data == "sync | data: new version, 6 files, 0.0 MB"


def test_outputs_are_pushed_and_records_committed(shared):
    project, clone = shared
    (project / "data/domain/aws/c.txt").write_text("own text\n")
    dvc(project, "add", "-q", "data")
    dvc(project, "repro", "-q", "register")
    assert publish(project, "task: promote", "other: unchanged") == [
        "outputs: pushed to the DVC remote",
        "commit: data.dvc, dvc.lock",
        "push: to origin/main",
    ]
    assert git(project, "status", "--porcelain", "--untracked-files=no") == ""
    git(clone, "pull", "-q")
    assert git(clone, "log", "-1", "--format=%B").splitlines()[:3] == ["Retrain: task: promote", "", "other: unchanged"]
    dvc(clone, "pull", "-q")
    assert "own text" in (clone / "artifacts/scores").read_text()
    head = git(project, "rev-parse", "HEAD")
    assert publish(project)[1:] == ["commit: none, nothing has changed"]
    assert git(project, "rev-parse", "HEAD") == head


def test_a_clone_takes_the_outputs_of_another_one_and_trains_nothing(shared):
    project, clone = shared
    dvc(project, "push", "-q", "--run-cache")
    assert pull(clone)[-1] == "outputs: those of the last run are pulled"
    assert (clone / "artifacts/scores").read_text() == (project / "artifacts/scores").read_text()
    dvc(clone, "repro", "-q", "evaluate")
    assert ran(clone) == []


@pytest.mark.parametrize("decides", [True, False])
def test_an_earlier_decision_is_not_reported_as_a_new_one(decides, tmp_path, monkeypatch, capsys):
    (tmp_path / ".dvc").mkdir()
    shutil.copyfile(ROOT / "params.yaml", tmp_path / "params.yaml")
    file = tmp_path / "artifacts/registry/decision.json"
    file.parent.mkdir(parents=True)
    result = {"verdict": "promote", "reasons": ["better"], "alias_after": "3", "story": "version 3 is served"}

    def retrain(*_, **__):
        if decides:
            write_atomic(file, json.dumps({"decisions": {"aws-type": result}}))

    file.write_text(json.dumps({"decisions": {"aws-type": result}}))
    os.utime(file, (1e9, 1e9))
    monkeypatch.setattr(sync, "pull", list)
    monkeypatch.setattr(sync, "run_command", retrain)
    monkeypatch.setattr(sync, "publish", lambda *, decisions, push: [f"commit: {decisions[0]}"])
    sync.sync.fn(str(tmp_path / "params.yaml"))
    line = "version 3 is served" if decides else "nothing new to compare; champion: version 3"
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"sync | aws-type: {line}",
        f"sync | commit: aws-type: {line}",
    ]


def test_without_permission_commits_stay_here_and_give_way_to_the_records_of_others(clones, monkeypatch):
    project, clone = clones
    for root, text in ((project, "own text\n"), (clone, "other text\n")):
        lock = root / "dvc.lock"
        lock.write_text(lock.read_text() + f"# {text}")
    monkeypatch.setenv("HEADSTART_PUSH", "false")
    done = publish(project, "task: reject")
    assert done[-1] == "push: none, the commits stay in this clone (HEADSTART_PUSH=false)"
    git(clone, "commit", "-q", "-a", "-m", "their run")
    git(clone, "push", "-q")
    pull(project)
    assert git(project, "rev-parse", "HEAD") == git(clone, "rev-parse", "HEAD")
    assert git(project, "status", "--porcelain", "--untracked-files=no") == ""


def record_of(root: Path, *, name: str, digest: str) -> None:
    """The records that a run in this clone writes."""
    (root / "dvc.lock").write_text(f"schema: '2.0'\n# {name}\n")
    (root / "dvc.yaml").write_text(f"stages: {name}\n")
    (root / "data-checks.json").write_text(versions(*read_versions(root), digest))


def versions(*digests: str) -> str:
    entries = [{"digest": digest, "time": digest, "by": "a@b", "reason": "r"} for digest in digests]
    return json.dumps({"t train": entries})


def read_versions(root: Path) -> list[str]:
    path = root / "data-checks.json"
    return [each["digest"] for each in json.loads(path.read_text())["t train"]] if path.exists() else []


@pytest.mark.slow
def test_clones_that_publish_and_the_commits_of_colleagues_converge(clones, tmp_path_factory):
    first, second = clones
    third = tmp_path_factory.mktemp("third") / "clone"
    subprocess.run(["git", "clone", "-q", git(first, "remote", "get-url", "origin").strip(), str(third)], check=True)
    for setting in IDENTITY:
        git(third, "config", *setting.split("="))
    for turn in range(3):
        # Each has run before it sees the others' commits, and a person has committed in a clone and elsewhere.
        for number, root in enumerate((first, second)):
            record_of(root, name=root.name, digest=f"{turn}{number}")
        (second / f"own-{turn}.txt").write_text("in a clone that publishes\n")
        git(second, "add", f"own-{turn}.txt")
        git(second, "commit", "-q", "-m", f"own {turn}")
        (third / f"notes-{turn}.txt").write_text("elsewhere\n")
        (third / "dvc.lock").write_text(f"schema: '2.0'\n# by hand {turn}\n")
        git(third, "add", "-A")
        git(third, "commit", "-q", "-m", f"notes {turn}")
        git(third, "pull", "-q", "--rebase", "-X", "theirs")
        git(third, "push", "-q")
        for root in (first, second):
            assert publish(root, "task: promote")[-1] == "push: to origin/main"
        for root in (first, second):
            pull(root)
            publish(root)
        pull(first)
        assert git(first, "rev-parse", "HEAD") == git(second, "rev-parse", "HEAD")
        assert {git(root, "status", "--porcelain") for root in (first, second)} == {""}
        assert read_versions(first) == [f"{number}{side}" for number in range(turn + 1) for side in (0, 1)]
        assert (first / f"own-{turn}.txt").exists() and (first / f"notes-{turn}.txt").exists()


def test_records_of_an_earlier_run_that_nobody_has_committed_give_way(clones):
    first, second = clones
    record_of(first, name="first", digest="1")
    record_of(second, name="second", digest="2")
    publish(first, "task: promote")
    # In the second they are untracked (data-checks.json, dvc.yaml) or changed (dvc.lock).
    pull(second)
    assert "first" in (second / "dvc.lock").read_text() and "first" in (second / "dvc.yaml").read_text()
    assert read_versions(second) == ["1", "2"]


def test_a_rebase_that_was_interrupted_is_undone(clones, monkeypatch):
    first, second = clones
    for root, text in ((first, "one\n"), (second, "two\n")):
        (root / "dvc.lock").write_text(text)
    publish(first, "task: promote")
    git(second, "commit", "-q", "-a", "-m", "second")

    class Killed(BaseException):
        pass

    def killed(path):
        raise Killed

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(sync, "_resolve", killed)
        pull(second)
    pull(second)
    assert not (second / sync.REBASING).exists()
    assert git(first, "rev-parse", "HEAD") == git(second, "rev-parse", "HEAD")
    assert git(second, "branch", "--show-current").strip() == "main"


def test_a_git_command_that_does_not_end_is_a_transient_error(clones):
    project, _ = clones
    # A shell that git starts, which starts another process and keeps git's pipes open.
    git(project, "config", "alias.hang", "!sleep 60 & sleep 60")
    began = time.monotonic()
    with chdir(project), pytest.raises(TransientError, match=r"git hang: no end within 0\.5 seconds"):
        sync.git("hang", limit_s=0.5)
    assert time.monotonic() - began < 30


def test_a_server_that_does_not_answer_is_a_transient_error(clones, monkeypatch):
    project, _ = clones
    monkeypatch.setattr(sync, "DELAYS_S", (0.0,))
    git(project, "remote", "set-url", "origin", "http://127.0.0.1:9/repository.git")
    with pytest.raises(TransientError, match="git fetch: .*Failed to connect"):
        pull(project)
    # Refused for good: not repeated.
    git(project, "remote", "set-url", "origin", str(project / "nowhere"))
    with pytest.raises(ConfigError, match="git fetch: .*does not appear to be a git repository"):
        pull(project)


@pytest.mark.slow
def test_data_that_was_named_and_not_pulled_is_pulled_by_the_next_run(shared, monkeypatch, capsys):
    """Neither data that others push during a run nor a pull that fails may end in the old data as a new version."""
    project, clone = shared
    (project / "dvc.lock").write_text((project / "dvc.lock").read_text() + "# own run\n")
    colleague(clone)
    assert publish(project, "task: promote")[-1] == "push: to origin/main"
    named = (project / "data.dvc").read_text()
    assert named == (clone / "data.dvc").read_text() and not (project / "data/domain/aws/b.txt").exists()

    def fail(*_, **__):
        raise StageError("no answer", final=False)

    with monkeypatch.context() as patched, pytest.raises(StageError):
        patched.setattr(sync, "run_command", fail)
        pull(project)
    capsys.readouterr()
    pull(project)
    assert "sync | data: new version" in capsys.readouterr().out
    assert (project / "data/domain/aws/b.txt").read_text() == "more domain text\n"
    assert (project / "data.dvc").read_text() == named
    assert pull(project)[-1] == "data: no new version"


def test_changes_on_both_sides_are_refused(shared):
    project, clone = shared
    change(project / "params.yaml", "min_characters: 1 ", "min_characters: 2 ")
    with pytest.raises(ConfigError, match=r"params.yaml changed here and not committed; commit or restore, then sync"):
        pull(project)
    git(project, "checkout", "-q", "params.yaml")
    colleague(clone)
    (project / "data/domain/aws/d.txt").write_text("mine\n")
    with pytest.raises(ConfigError, match=r"data/ changed here, and data.dvc in origin/main; merge the data by hand"):
        pull(project)
    assert (project / "data/domain/aws/d.txt").exists()
    # A commit of one's own that does not fit is left as it was.
    (project / "data/domain/aws/d.txt").unlink()
    change(project / "params.yaml", "min_characters: 1 ", "min_characters: 2 ")
    git(project, "commit", "-q", "-a", "-m", "mine")
    head = git(project, "rev-parse", "HEAD")
    with pytest.raises(ConfigError, match="git rebase: "):
        pull(project)
    assert git(project, "rev-parse", "HEAD") == head and git(project, "status", "--porcelain") == ""


@pytest.mark.parametrize("folder", ["größe", "my run"])
def test_any_name_of_a_folder_with_settings(clones, folder):
    project, clone = clones
    lock = project / "experiments" / folder / "dvc.lock"
    lock.parent.mkdir(parents=True)
    for number in range(2):
        lock.write_text(f"schema: '2.0'\n# {number}\n")
        pull(project)
        lock.write_text(f"schema: '2.0'\n# {number}\n")
        done = publish(project, "task: reject")
        assert done[-2:] == [f"commit: experiments/{folder}/dvc.lock", "push: to origin/main"]
    git(clone, "pull", "-q")
    assert (clone / "experiments" / folder / "dvc.lock").read_text() == lock.read_text()


def test_a_new_file_that_exists_here_is_named(clones):
    project, clone = clones
    (clone / "notes.txt").write_text("theirs\n")
    git(clone, "add", "notes.txt")
    git(clone, "commit", "-q", "-m", "notes")
    git(clone, "push", "-q")
    (project / "notes.txt").write_text("mine\n")
    with pytest.raises(ConfigError, match=r"git rebase: .*untracked working tree files would be overwritten.*notes"):
        pull(project)
    assert (project / "notes.txt").read_text() == "mine\n"


def test_without_upstream_and_remote_nothing_is_pulled(project, capsys):
    shutil.rmtree(project / "data")
    pull(project)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "sync | code: the branch has no upstream; nothing is pulled",
        "sync | data: there is no DVC remote; nothing is pulled",
    ]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_pulls_retrains_and_commits(shared):
    project, clone = shared
    colleague(clone)
    done = subprocess.run(
        [sys.executable, "-m", "components.cli", "sync"], cwd=project, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ran(project) == ["ingest domain", "pretrain model", "evaluate scores", "register registry"]
    report = [line.removeprefix("sync | ") for line in done.stdout.splitlines() if line.startswith("sync | ")]
    assert [line.partition(":")[0] for line in report] == ["code", "data"] * 2 + ["outputs", "commit", "push"]
    git(clone, "pull", "-q")
    assert git(clone, "log", "-1", "--format=%s").startswith("Retrain: ")
    dvc(clone, "pull", "-q")
    assert "more domain text" in (clone / "artifacts/scores").read_text()
