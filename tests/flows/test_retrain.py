"""The flow `retrain` on a miniature DVC project: which stages run, failures, killed runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import chdir, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from components.core.errors import ConfigError
from flows import execution, processes, retrain, stages
from flows.execution import failure
from flows.plan import Plan, Stage
from flows.repository import locked
from flows.run import wanted
from flows.terminal import StageError
from tests.conftest import until

from .conftest import ROOT, change, dvc, is_running, ran

STAGES = ["ingest@general", "ingest@domain", "pretrain", "evaluate", "register"]


@pytest.fixture
def run(
    project: Path, prefect_server: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """`run()` runs the flow on the project and returns stage -> outcome. `run.checked` collects the arguments of
    `headstart check`, which is mocked."""
    checked: list[tuple[str, ...]] = []
    monkeypatch.setattr(stages, "run_headstart", lambda *arguments, **keywords: checked.append(arguments))
    monkeypatch.setattr(retrain, "RETRY_DELAYS_S", [0])

    def once(params: str = "params.yaml") -> dict[str, str]:
        done = retrain.retrain(str(project / params))
        return {name: outcome for outcome, names in done.items() for name in names}

    once.checked = checked
    return once


def test_changed_stages_and_their_dependents_run(project, run, capsys):
    assert run() == dict.fromkeys(STAGES, "Completed")
    assert ran(project) == ["ingest general", "ingest domain", "pretrain model", "evaluate scores", "register registry"]
    version = yaml.safe_load((project / "data.dvc").read_text())["outs"][0]
    assert version["nfiles"] == 5
    shown = capsys.readouterr().out
    assert "ingest@general | ingest reads data/general\n" in shown
    assert "Running stage" not in shown
    assert re.search(r"^pretrain \| completed in \d+\.\d s \(2 stages left, time unknown\)$", shown, flags=re.MULTILINE)

    # Nothing has changed: only the stage that always runs is executed.
    assert run.checked == [("check", "--params", "params.yaml")]
    run.checked.clear()
    assert run() == dict.fromkeys(STAGES, "Skipped") | {"register": "Completed"}
    assert ran(project) == ["register registry"]
    assert capsys.readouterr().out.count("| up to date\n") == 4
    assert not run.checked

    # More domain text: stages that depend on the general text only are skipped.
    (project / "data/domain/aws/b.txt").write_text("more\n")
    done = run()
    assert done == dict.fromkeys(STAGES, "Completed") | {"ingest@general": "Skipped", "pretrain": "Skipped"}
    assert ran(project) == ["ingest domain", "evaluate scores", "register registry"]
    assert yaml.safe_load((project / "data.dvc").read_text())["outs"][0]["md5"] != version["md5"]
    assert "ingest@domain | reason: data/domain modified\n" in capsys.readouterr().out

    # More general text that gives the same model: the stages below the model are skipped.
    (project / "data/general/b.txt").write_text("general too\n")
    done = run()
    assert done["pretrain"] == "Completed"
    assert done["evaluate"] == "Skipped"
    assert ran(project) == ["ingest general", "pretrain model", "register registry"]

    # A setting is changed and restored: DVC restores the earlier output from its cache.
    change(project / "params.yaml", "min_characters: 1 ", "min_characters: 2 ")
    assert run()["pretrain"] == "Completed"
    change(project / "params.yaml", "min_characters: 2 ", "min_characters: 1 ")
    ran(project)
    assert run()["pretrain"] == "Cached"
    assert ran(project) == ["register registry"]


@pytest.mark.slow
def test_the_registry_stages_are_skipped_while_the_registry_is_unchanged(project, run, monkeypatch):
    database = project / "registry.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///registry.db")
    database.write_text("a model")
    run()
    ran(project)
    assert run() == dict.fromkeys(STAGES, "Skipped")
    assert ran(project) == []

    database.write_text("a model, another model")
    assert run()["register"] == "Completed"

    # Changed inputs: the stage runs although the registry is unchanged.
    (project / "data/domain/aws/b.txt").write_text("more")
    assert run()["register"] == "Completed"


@pytest.mark.slow
def test_an_error_of_the_user_is_printed_once_and_not_retried(project, run, capsys):
    (project / "trouble").write_text("pretrain refuse")
    with pytest.raises(StageError) as caught:
        run()
    message = "pretrain: artifacts/corpus/general: line 3: no text\n  put some there"
    assert str(caught.value) == message
    shown = capsys.readouterr()
    assert shown.err.endswith(f"error: {message}\n")
    assert "line 3: no text" not in shown.out
    assert ran(project) == ["ingest general", "ingest domain", "pretrain model"]
    assert not (project / "artifacts/model").exists()

    # The next run resumes at the failed stage.
    (project / "trouble").unlink()
    assert run() == dict.fromkeys(STAGES, "Completed") | {"ingest@general": "Skipped", "ingest@domain": "Skipped"}


@pytest.mark.slow
def test_a_crash_is_retried(project, run):
    (project / "trouble").write_text("pretrain crash-once")
    assert run()["pretrain"] == "Completed"
    assert ran(project).count("pretrain model") == 2

    (project / "trouble").write_text("evaluate crash")
    (project / "data/domain/aws/b.txt").write_text("more\n")
    with pytest.raises(StageError, match=r"^evaluate: ZeroDivisionError: a defect \(exit code 1\)$"):
        run()


@pytest.mark.slow
def test_the_time_limit_of_a_stage(project, run):
    (project / "trouble").write_text("pretrain hang")
    change(project / "dvc.yaml", "{minutes: 1, retries: 1}", "{minutes: 0.3, retries: 0}")
    with pytest.raises(StageError, match=r"pretrain: exceeded its time limit of 0.3 minutes \(dvc.yaml: meta.min"):
        run()
    assert not is_running(int((project / "child").read_text()))


@pytest.mark.slow
def test_settings_in_experiments_have_a_pipeline_and_outputs_of_their_own(project, run):
    row = project / "experiments/more"
    row.mkdir(parents=True)
    text = (project / "params.yaml").read_text()
    # A pipeline of the user's own, as the root's.
    pipeline = (project / "dvc.yaml").read_text().replace("root: .", "root: ../..")
    pipeline = pipeline.replace("params_file: params", "params_file: experiments/more/params")
    (row / "dvc.yaml").write_text(pipeline)
    (row / "params.yaml").write_text(text.replace("out: artifacts", "out: artifacts/more", 1))
    change(row / "params.yaml", "min_characters: 1 ", "min_characters: 4 ")
    assert run("experiments/more/params.yaml") == dict.fromkeys(STAGES, "Completed")
    assert (project / "artifacts/more/scores").read_text() == "domain text\n"
    assert not (project / "artifacts/scores").exists()
    assert (row / "dvc.lock").is_file()
    assert not (project / "dvc.lock").exists()
    # `dvc status` agrees.
    assert "experiments/more/dvc.yaml:pretrain" not in dvc(project, "status", "experiments/more/dvc.yaml:pretrain")
    assert run("experiments/more/params.yaml")["evaluate"] == "Skipped"


def test_a_pipeline_that_dvc_cannot_read(project, run):
    change(project / "dvc.yaml", "    cmd: python work.py evaluate", "    command: python work.py evaluate")
    with pytest.raises(ConfigError, match=r"dvc\.yaml.*'dvc.yaml' is invalid|dvc\.yaml.*validation failed"):
        run()
    # The settings are checked first: their errors may be the cause.
    assert run.checked


def test_stages_that_no_score_depends_on_are_omitted():
    chain = [
        Stage("ingest@a", ""),
        Stage("examples@unused", ""),
        Stage("examples@gone", "", present=False),
        Stage("pretrain@a", "", needs=("ingest@a",)),
        Stage("pretrain@b", "", needs=("ingest@a",)),
        Stage("evaluate@t", "", needs=("pretrain@a",)),
        Stage("report", "", needs=("evaluate@t", "pretrain@b")),
    ]
    chosen = [stage.name for stage in wanted(Plan(tuple(chain)))]
    assert chosen == ["ingest@a", "examples@unused", "pretrain@a", "evaluate@t", "report"]


@pytest.mark.parametrize(
    ("code", "lines", "message", "final"),
    [
        (1, ["Traceback (most recent call last):", "ValueError: no", " "], "a: ValueError: no (exit code 1)", False),
        (1, ["ERROR: of a library", "worker 1 ended"], "a: worker 1 ended (exit code 1)", False),
        (-15, [], "a: no output (ended by signal 15)", False),
    ],
)
def test_the_message_of_a_failure(code, lines, message, final):
    error = failure("a", code, lines)
    assert (str(error), error.final) == (message, final)
    refused = failure("a", 1, ["collecting", "ERROR: 'dvc.yaml' is invalid.", "line 3"], of_dvc=True)
    assert (str(refused), refused.final) == ("a: 'dvc.yaml' is invalid.\nline 3", True)


@pytest.mark.parametrize(
    ("imports", "needed", "refused"),
    [
        (
            "import flows.retrain, flows.promote, flows.schedule",
            "prefect",
            {"torch", "ray", "mlflow", "dvc", "pyarrow", "transformers"},
        ),
        # The stages that run every time.
        (
            "import components.registry.register, components.registry.contest",
            "mlflow",
            {"torch", "ray", "sklearn", "scipy.stats", "scipy.optimize", "transformers"},
        ),
        # Importing torch._dynamo takes a second, and most stages do not train.
        (
            "from importlib import import_module; from components.pipeline.stages import STAGES\n"
            "from components.models import FAMILIES\n"
            "for stage in STAGES.values(): import_module(stage.module)\n"
            "families = list(FAMILIES.values())",
            "components.models.cove",
            {"torch._dynamo", "ray", "transformers"},
        ),
    ],
)
def test_processes_load_what_they_need(imports: str, needed: str, refused: set[str]) -> None:
    script = f"{imports}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert needed in loaded and not loaded & refused


@pytest.mark.parametrize("killed", ["dvc", pytest.param("both", marks=pytest.mark.slow)])
def test_a_stage_runs_again_at_once_after_sigkill_during_dvc_repro(project, killed):
    """The killed process is not reaped, so its pid is still in use when the stage runs again."""
    dvc(project, "repro", "-q", "ingest@general")
    ran(project)
    (project / "trouble").write_text("pretrain hang")
    # In the place of the flow: a process that runs DVC with the mark of a run.
    script = (
        "import subprocess, sys; from pathlib import Path; from flows.repository import environment\n"
        "dvc = subprocess.Popen(sys.argv[1:], env=environment(Path().resolve()))\n"
        "Path('child.dvc').write_text(str(dvc.pid))\n"
        "__import__('time').sleep(600)"
    )
    repro = [sys.executable, "-m", "dvc", "repro", "--single-item", "pretrain"]
    flow = subprocess.Popen([sys.executable, "-c", script, *repro], cwd=project, start_new_session=True)
    try:
        stage = wait_for_child(project, flow)
        pids = {"dvc": int((project / "child.dvc").read_text()), "flow": flow.pid}
        for name in ("dvc", "flow") if killed == "both" else (killed,):
            os.kill(pids[name], signal.SIGKILL)
            while is_running(pids[name]):
                time.sleep(0.01)
        (project / "trouble").unlink()
        if killed == "dvc":
            # The flow, which is alive, ends the processes of the stage.
            processes.end(each for each in processes.members(flow.pid) if each.pid != flow.pid)
        with chdir(project), locked(project, what="test", say=print):
            assert not is_running(stage)
            lines = execution.run_command(repro, source="pretrain", limit_s=60)
        assert "pretrain reads artifacts/corpus/general" in lines
        assert (project / "artifacts/model").read_text() == "g"
    finally:
        processes.end(processes.descendants(flow.pid))
        flow.wait()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_after_a_killed_run_ends_its_processes_and_resumes(project, prefect_server):
    """The program with its worker: first run ended by SIGKILL, second by SIGTERM, third completes."""
    environment = dict(os.environ)
    # The marks of this process do not apply.
    environment.pop(processes.MARK, None)

    def start():
        command = [sys.executable, "-m", "components.cli", "retrain"]
        return subprocess.Popen(
            command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    (project / "trouble").write_text("pretrain hang")
    killed = start()
    child = wait_for_child(project, killed)
    left = processes_of(project)
    killed.kill()
    killed.wait()
    assert is_running(child)

    ended = start()
    second = wait_for_child(project, ended, other=child)
    assert not is_running(child)
    assert not any(is_running(process.pid) for process in left)
    ended.terminate()
    output, _ = ended.communicate(timeout=120)
    assert ended.returncode == 143, output
    # The worker has ended with its run.
    assert re.search(r"ending \d+ processes of a run that was killed", output)
    assert not is_running(second)
    assert processes_of(project) == []
    assert ran(project) == ["ingest general", "ingest domain", "pretrain model", "pretrain model"]

    (project / "trouble").unlink()
    last = start()
    output, _ = last.communicate(timeout=120)
    assert last.returncode == 0, output
    assert ran(project) == ["pretrain model", "evaluate scores", "register registry"]
    assert processes_of(project) == []


def wait_for_child(project: Path, run: subprocess.Popen[str], *, other: int = 0) -> int:
    child = project / "child"

    def started() -> bool:
        assert run.poll() is None, run.communicate()[0]
        return child.exists() and child.read_text() not in ("", str(other))

    until(started, limit_s=300)
    return int(child.read_text())


def processes_of(project: Path) -> list[psutil.Process]:
    """Every live process of a run on the project."""
    result = []
    for process in processes.having(processes.MARK, ""):
        with suppress(psutil.Error):
            result += [process] * process.environ()[processes.MARK].endswith(f" {project}")
    return result


def test_a_requested_rebuild_runs_a_stage_that_is_up_to_date(project, monkeypatch):
    monkeypatch.chdir(project)
    dvc(project, "repro", "-q", "pretrain")
    stage = Stage(name="pretrain", address="dvc.yaml:pretrain")
    assert stages.reproduce(stage) == "Skipped"
    assert stages.reproduce(replace(stage, force=True)) == "Completed"
