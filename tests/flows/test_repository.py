"""Which pipeline belongs to which settings, and one run at a time."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import yaml

from components.errors import ConfigError
from flows.repository import derive, environment, find_root, locked, pipeline_of

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
    (tmp_path / "dvc.yaml").write_text("vars:\n  - params_file: params.yaml\n  - root: .\nstages: {}\n")
    (tmp_path / "params.yaml").write_text("run: {}\n")
    return tmp_path


def test_the_root_is_found_from_any_folder_below(root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)
    assert find_root(root / "a" / "b") == root


def test_no_root(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither here nor above is a DVC repository"):
        find_root(tmp_path)


def test_the_roots_settings_have_the_roots_pipeline(root: Path) -> None:
    text = (root / "dvc.yaml").read_text()
    assert pipeline_of(root / "params.yaml", root=root) == root / "dvc.yaml"
    assert (root / "dvc.yaml").read_text() == text


def test_a_row_gets_a_pipeline_of_its_own_that_follows_the_roots(root: Path) -> None:
    row = root / "experiments" / "full"
    row.mkdir(parents=True)
    (row / "params.yaml").write_text("run: {}\n")
    assert pipeline_of(row / "params.yaml", root=root) == row / "dvc.yaml"
    assert yaml.safe_load((row / "dvc.yaml").read_text())["vars"] == [
        {"params_file": "experiments/full/params.yaml"},
        {"root": "../.."},
    ]
    written = (row / "dvc.yaml").stat().st_mtime_ns
    pipeline_of(row / "params.yaml", root=root)
    assert (row / "dvc.yaml").stat().st_mtime_ns == written
    (root / "dvc.yaml").write_text((root / "dvc.yaml").read_text() + "metrics: []\n")
    pipeline_of(row / "params.yaml", root=root)
    assert (row / "dvc.yaml").read_text().endswith("metrics: []\n")


def test_settings_elsewhere_or_of_another_name(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(ConfigError, match=r"missing/params.yaml: does not exist; name the file of settings"):
        pipeline_of(root / "missing" / "params.yaml", root=root)
    (root / "other.yaml").write_text("run: {}\n")
    with pytest.raises(ConfigError, match="must be called params.yaml and lie below"):
        pipeline_of(root / "other.yaml", root=root)
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "params.yaml"
    elsewhere.write_text("run: {}\n")
    with pytest.raises(ConfigError, match="must be called params.yaml and lie below"):
        pipeline_of(elsewhere, root=root)


def test_a_pipeline_without_the_two_lines() -> None:
    with pytest.raises(ConfigError, match="`vars` must hold one line `  - root: ...`, found 0"):
        derive("vars:\n  - params_file: params.yaml\n", folder=Path("experiments/a"))


def test_a_stage_finds_this_interpreters_programs_first(root: Path) -> None:
    assert environment(root)["PATH"].split(":")[0] == str(Path(sys.executable).parent)


def test_a_second_run_waits_and_says_for_whom(root: Path) -> None:
    first = subprocess.Popen([sys.executable, "-c", HOLD, str(root)], stdout=subprocess.PIPE, text=True)
    said: list[str] = []
    entered = threading.Event()

    def second() -> None:
        with locked(root, what="retrain b", say=said.append, poll_s=0.05):
            entered.set()

    waiting = threading.Thread(target=second)
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        waiting.start()
        deadline = time.monotonic() + 20
        while not said and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not entered.is_set()
    finally:
        # However the holder ends, its lock ends with it.
        first.kill()
        first.wait()
    waiting.join(timeout=20)
    assert entered.is_set()
    assert len(said) == 1
    assert said[0].startswith(f"waiting: retrain a (process {first.pid}, since 20")


def test_the_lock_is_free_again_after_an_error(root: Path) -> None:
    with pytest.raises(RuntimeError), locked(root, what="a", say=print):
        raise RuntimeError
    with locked(root, what="b", say=pytest.fail):
        pass
