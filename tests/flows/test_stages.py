"""The order in which the stages of a run begin: one after the other on this machine, several at a time on a cluster."""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components.settings.loading import load_params
from flows import processes, retrain, stages
from flows.plan import Plan, Stage
from flows.stages import Spending
from flows.terminal import StageError

from .conftest import ROOT, change, ran

#: Two corpora, a training on each, and what reads both.
PLAN = (
    Stage("ingest@a", ""),
    Stage("ingest@b", ""),
    Stage("pretrain@a", "", needs=("ingest@a",)),
    Stage("pretrain@b", "", needs=("ingest@b",)),
    Stage("evaluate", "", needs=("pretrain@a", "pretrain@b")),
    Stage("promote", "", needs=("ingest@a",)),
)
ORDER = [stage.name for stage in PLAN]


class Recorder:
    """Monitor of a run: the outcome of every stage, or the error with which it ended."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}

    def run(self, stage: Stage, run: Callable[[Stage], str]) -> str:
        try:
            self.outcomes[stage.name] = run(stage)
        except BaseException as error:
            self.outcomes[stage.name] = type(error).__name__
            raise
        return self.outcomes[stage.name]


class Runs:
    """Runs the plan with an engine that records when stages begin and end."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.monitor = root, Recorder()
        self.events: list[str] = []
        monkeypatch.setattr(stages, "wanted", lambda plan: list(plan.stages))

    def __call__(
        self,
        at_once: int,
        work: Callable[[Stage], Any] = lambda stage: time.sleep(0.01),
        *,
        address: str = "head:6379",
    ) -> list[str]:
        def run(stage: Stage) -> str:
            self.events.append(f"+{stage.name}")
            work(stage)
            self.events.append(f"-{stage.name}")
            return "Completed"

        params = load_params(ROOT / "params.yaml")
        cluster = params.cluster.model_copy(
            update={"launcher": "ray", "address": address, "workers": 1, "stages": at_once}
        )
        project: Any = SimpleNamespace(settings=params.model_copy(update={"cluster": cluster}), root=self.root)
        changed = tuple(Stage(each.name, "", needs=each.needs, reasons=("changed",)) for each in PLAN)
        done = stages.run_stages(
            Plan(stages=changed),
            run=run,
            monitor=self.monitor,
            settled=True,
            spending=Spending(project),
        )
        return done["Completed"]

    @property
    def most(self) -> int:
        """The largest number of stages that ran at the same time."""
        counts = [0]
        for event in self.events:
            counts.append(counts[-1] + (1 if event[0] == "+" else -1))
        return max(counts)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(tmp_path, monkeypatch)


def test_on_this_machine_stages_run_one_after_the_other_in_topological_order(runs):
    assert runs(4, address="local") == ORDER
    assert runs.events == [f"{sign}{name}" for name in ORDER for sign in "+-"]


def test_on_a_cluster_independent_stages_overlap(runs):
    together = threading.Barrier(2)

    def work(stage):
        if stage.needs in ((), ("ingest@b",)) or stage.name == "pretrain@a":
            together.wait(timeout=30)

    assert sorted(runs(2, work)) == sorted(ORDER)
    assert runs.events[-4:] == ["+evaluate", "-evaluate", "+promote", "-promote"], "what acts on the registry is last"
    for stage in PLAN:
        for needed in stage.needs:
            assert runs.events.index(f"-{needed}") < runs.events.index(f"+{stage.name}")


def test_the_number_of_stages_is_limited_and_trainings_run_beside_trainings_only(runs):
    def work(stage):
        # The other corpus takes longer than the training that does not need it.
        time.sleep(0.2 if stage.name == "ingest@b" else 0.01)

    runs(3, work)
    assert runs.most == 2
    assert runs.events.index("+pretrain@a") > runs.events.index("-ingest@b")


def test_after_a_failure_nothing_begins_and_what_runs_is_waited_for(runs):
    together = threading.Barrier(2)

    def work(stage):
        together.wait(timeout=30)
        if stage.name == "ingest@a":
            raise StageError("ingest@a: no text", final=True)
        time.sleep(0.1)

    with pytest.raises(StageError, match="^ingest@a: no text$"):
        runs(2, work)
    assert sorted(runs.events) == ["+ingest@a", "+ingest@b", "-ingest@b"]
    assert runs.monitor.outcomes == {"ingest@a": "StageError", "ingest@b": "Completed"}


def test_an_interrupted_run_ends_commands_and_waits_of_all_stages(runs, monkeypatch):
    begun: list[str] = []

    def work(stage):
        if stage.name == "ingest@b":  # before its retry
            begun.append(stage.name)
            processes.pause(600)
        processes.run(
            [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(600)"],
            directory=runs.root,
            environment={},
            limit_s=600,
            on_line=begun.append,
        )

    def interrupted(futures, **options):
        while len(begun) < 2:
            time.sleep(0.01)
        monkeypatch.undo()
        raise SystemExit(143)

    monkeypatch.setattr(stages, "wait", interrupted)
    began = time.monotonic()
    with pytest.raises(SystemExit):
        runs(2, work)
    assert time.monotonic() - began < 60
    assert runs.monitor.outcomes == {"ingest@a": "SystemExit", "ingest@b": "SystemExit"}


@pytest.mark.slow
def test_stages_of_a_flow_overlap_as_prefect_tasks(project, prefect_server, monkeypatch):
    """Each of two stages waits until the other one runs."""
    monkeypatch.setattr(stages, "run_headstart", lambda *arguments, **keywords: None)
    for name, value in {"RAY_ADDRESS": "head:6379", "HEADSTART_STAGES": "2", "HEADSTART_GPUS": "1"}.items():
        monkeypatch.setenv(name, value)
    change(
        project / "work.py",
        "trouble = ",
        "if stage == 'ingest':\n"
        "    for _ in range(600):\n"
        "        if Path('ran.log').read_text().count('ingest') == 2:\n"
        "            break\n"
        "        time.sleep(0.1)\n"
        "    else:\n"
        "        sys.exit('alone')\n"
        "trouble = ",
    )
    done = retrain.retrain(str(project / "params.yaml"))
    assert sorted(done["Completed"]) == ["evaluate", "ingest@domain", "ingest@general", "pretrain", "register"]
    assert ran(project)[2:] == ["pretrain model", "evaluate scores", "register registry"]
