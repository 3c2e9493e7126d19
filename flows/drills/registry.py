"""Drills of the registry: a person's hand, two runs at once, a change that a crash has interrupted."""

from __future__ import annotations

import time

from flows.drills.base import Session, expect, registered
from flows.drills.project import Project

#: Moves the alias as MLflow's page does.
BY_HAND = """
import sys
from mlflow.tracking import MlflowClient
MlflowClient("sqlite:///mlflow.db").set_registered_model_alias("headstart-drill", "champion", sys.argv[1])
"""
#: A choice of a champion whose process is killed before or after the alias is set.
TORN = """
import os, signal, sys
from pathlib import Path
from components.registry.commands import assign
from components.settings.loading import load_params
from components.tracking import Registry
set_alias, when = Registry.set_alias, sys.argv[2]
def torn(self, *arguments):
    if when == "after":
        set_alias(self, *arguments)
    os.kill(os.getpid(), signal.SIGKILL)
Registry.set_alias = torn
assign(load_params(Path("params.yaml")).registry, "drill", version=sys.argv[1], reason="a drill")
"""


def _choose(project: Project, version: str) -> None:
    done = project.headstart("promote", "--version", version, "--reason", "a drill")
    expect(done.code == 0, f"headstart promote ended with exit code {done.code}: {done.last}")


def alias_moved(session: Session) -> str:
    """A person moves the alias in MLflow; the next run has no better candidate."""
    project = session.project("alias-moved", state="after")
    _choose(project, "1")
    moved = project.python(BY_HAND, "2")
    expect(moved.code == 0, f"the alias cannot be moved: {moved.last}")
    project.finish()
    seen = registered(project).champion
    expect(seen == "2", f"the run moved the alias back to version {seen}")
    history = project.headstart("history", "--task", "drill").output
    expect("by hand" in history, f"the ledger does not mention the move: {history.strip()}")
    return "the alias stayed where it was put, and the ledger says so"


def two_at_once(session: Session) -> str:
    """Two retrainings of one repository start at the same time."""
    project = session.project("two-retrainings")
    first = project.retrain()
    second = project.retrain()
    ends = [first.ended(), second.ended()]
    for number, done in enumerate(ends, start=1):
        expect(done.code == 0, f"run {number} ended with exit code {done.code}: {done.last}")
    waited = [done for done in ends if "holds the lock of this repository" in done.output]
    expect(len(waited) == 1, f"{len(waited)} of the two runs waited")
    trained = sum(done.output.count("pretrain@ulmfit | completed") for done in ends)
    expect(trained == 1, f"pretraining ran {trained} times")
    return f"one waited for the other and repeated nothing; {session.compare(project)}"


def ledger_torn(session: Session) -> str:
    """A change of the champion is killed between its intent and its end, before and after the alias was set."""
    project = session.project("ledger-torn", state="after")
    _choose(project, "1")
    for version, when in (("2", "before"), ("1", "after")):
        torn = project.python(TORN, version, when)
        expect(torn.code == -9, f"the process that should be killed ended with exit code {torn.code}: {torn.last}")
        began = time.monotonic()
        done = project.headstart("stage", "promote")
        expect(done.code == 0, f"the next decision ended with exit code {done.code}: {done.last}")
        expect("interrupted" in done.output, f"the interrupted change was not noticed: {done.output.strip()}")
        seen = registered(project).champion
        expect(seen == version, f"the champion is version {seen} instead of {version}")
    took = time.monotonic() - began
    return f"the next decision completed the change, in {took:.0f} s, before and after the alias was set"
