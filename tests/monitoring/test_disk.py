"""Disk space before a run, and errors of a full disk."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from components.cli import main as cli
from components.core.errors import ConfigError, DiskSpaceError, TransientError, disk_full
from components.pipeline.monitoring.disk import Need, check_space, needs
from components.pipeline.stages import STAGES, TRAINING

SIZES = {"ingest@domain": 100, "adapt@ulmfit": 50, "adapt@bert": 400, "evaluate@t": 3}


def estimate(*stages: str, cache: Path | None = None, checkpoints: Path | None = Path("ck")) -> dict[str, int]:
    result = needs(stages, SIZES, data=1000, out=Path("out"), cache=cache, checkpoints=checkpoints)
    return {need.what.partition(" (")[0]: need.size for need in result}


def test_the_last_outputs_of_a_stage_or_of_another_item_or_the_data_are_the_estimate():
    both = estimate("ingest@domain", "adapt@ulmfit")
    assert both == {"outputs": 150, "checkpoints": 450, "temporary files": 50}
    cached = estimate("ingest@domain", cache=Path("cache"), checkpoints=None)
    assert cached == {"outputs": 100, "DVC cache": 100, "temporary files": 0}
    expected = {"adapt@gpt": 400, "tokenize@domain": 1500, "report": 0}
    assert {stage: estimate(stage)["outputs"] for stage in expected} == expected


def test_too_little_space_is_refused_with_numbers_and_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5_000_000_000))
    small = [Need("outputs (run.out)", tmp_path / "a" / "b", 1_500_000_000), Need("DVC cache", tmp_path, 2_000_000_000)]
    check_space(small, spare=1_500_000_000)
    with pytest.raises(DiskSpaceError) as caught:
        check_space(small, spare=1_600_000_000)
    assert str(caught.value) == (
        f"{tmp_path}: 5.0 GB are free, but the run needs about 3.5 GB (1.5 GB of outputs (run.out), "
        "2.0 GB of DVC cache) and 1.6 GB to spare\n"
        "free space: `headstart gc` lists what can be deleted; or move the folder to a larger disk"
    )


def test_a_full_disk_is_final_and_found_below_other_errors():
    full = OSError(errno.ENOSPC, "No space left on device", "/out/weights")
    try:
        try:
            raise full
        except OSError as error:
            raise RuntimeError("the writer failed") from error
    except RuntimeError as error:
        result = disk_full(error)
    assert result is not None and not isinstance(result, TransientError) and result.exit_code == 2
    assert str(result).startswith("/out/weights: No space left on device; `headstart gc` lists")
    assert disk_full(OSError(errno.EACCES, "no access")) is None


def test_a_stage_on_a_full_disk_ends_with_one_message(monkeypatch, capsys):
    def fill(*arguments, **keywords):
        raise OSError(errno.ENOSPC, "No space left on device", "shard-0")

    monkeypatch.setattr("sys.argv", ["headstart", "check", "--params", "nowhere.yaml"])
    monkeypatch.setattr("components.pipeline.checks.check_file", fill)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("error: shard-0: No space left on device;") and "Traceback" not in message
    monkeypatch.undo()
    with pytest.raises(ConfigError):
        CliRunner().invoke(cli.app, ["check", "--params", "nowhere.yaml"], catch_exceptions=False)


def test_stages_that_train_are_those_whose_jobs_have_a_cluster():
    jobs = {name: stage.load()[1][0] for name, stage in STAGES.items()}
    of_corpora = ("components.data", "components.tokenization")  # they run steps, and keep no checkpoints
    trained = {name for name, job in jobs.items() if not job.__module__.startswith(of_corpora)}
    assert {name for name in trained if "cluster" in jobs[name].model_fields} == TRAINING
