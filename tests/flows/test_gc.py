"""`headstart gc`: lists first, deletes with --yes, never during a run."""

import os
import time
from pathlib import Path

import pytest

from components.core.errors import ConfigError
from flows import gc
from flows.repository import locked

from .conftest import dvc

#: The folder of a checkpoint.
RUN = f".headstart/checkpoints/finetune-{'a' * 24}"


def cached(project: Path) -> set[str]:
    folder = project / ".dvc" / "cache" / "files"
    return {path.read_text() for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".dir")}


@pytest.fixture
def used(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project after two runs of a stage, with an old checkpoint and the output of a former stage."""
    monkeypatch.chdir(project)
    monkeypatch.setattr(gc, "old_versions", lambda params: iter(()))
    dvc(project, "repro", "-s", "ingest@general")
    (project / "data/general/a.txt").write_text("other text\n")
    dvc(project, "repro", "-s", "ingest@general")
    checkpoint = project / RUN / "step-1/state.json"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_text("{}")
    os.utime(checkpoint, (time.time() - 9 * 86400,) * 2)
    (project / "artifacts/encoder").mkdir(parents=True)
    (project / "artifacts/encoder/old").write_text("weights")
    lock = project / "dvc.lock"
    lock.write_text(
        lock.read_text() + "  pretrain@old:\n    cmd: train\n    outs:\n    - path: artifacts/encoder/old\n"
    )
    return project


def test_without_yes_everything_is_listed_and_nothing_deleted(used, capsys):
    before = cached(used)
    gc.command(params=Path("params.yaml"))
    printed = capsys.readouterr().out
    assert "last written 9 days ago" in printed and "of pretrain@old, which the settings no longer have" in printed
    assert "used by no commit and not by the working tree" in printed
    assert "can be deleted: `headstart gc --yes`" in printed
    assert before == cached(used) == {"general text\n", "other text\n"}
    assert (used / RUN).exists() and (used / "artifacts/encoder/old").exists()


def test_with_yes_it_is_deleted_and_the_outputs_stay(used, capsys):
    gc.command(yes=True, params=Path("params.yaml"))
    assert " deleted\n" in capsys.readouterr().out
    assert cached(used) == {"other text\n"}
    assert not (used / RUN).exists() and not (used / "artifacts/encoder/old").exists()
    assert (used / "artifacts/corpus/general").read_text() == "other text\n"
    dvc(used, "repro", "-s", "ingest@general")
    assert (used / "ran.log").read_text().count("ingest") == 2
    capsys.readouterr()
    gc.command(yes=True, params=Path("params.yaml"))
    assert capsys.readouterr().out == "nothing to delete\n"


def test_nothing_is_deleted_during_a_run(used):
    with (
        locked(used, what="retrain params.yaml", say=print),
        pytest.raises(
            ConfigError, match=r"retrain params.yaml .* holds the lock .*; run `headstart gc --yes` when it has"
        ),
    ):
        gc.command(yes=True, params=Path("params.yaml"))
    assert (used / RUN).exists()


def test_a_cache_that_other_repositories_share_is_left_alone(used, tmp_path_factory, capsys):
    shared = tmp_path_factory.mktemp("shared")
    dvc(used, "cache", "dir", "--local", str(shared))
    assert list(gc.unused_cache()) == []
    assert "the DVC cache is outside of the repository; it is left alone" in capsys.readouterr().out
