"""A decision has the same bytes whatever the clocks say and however many processors there are."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
import torch

from components.core.processors import cores
from tests.registry.conftest import Pipeline
from tests.registry.promoting import run

CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time", "time_ns", "perf_counter_ns")


def decided(finished: Path, folder: Path, *, slower: int, processors: int) -> str:
    """decision.json of a first champion and of a challenger, without the times of the events."""
    shutil.copytree(finished, folder)
    pipeline = Pipeline(folder)
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        for name in CLOCKS:
            real = getattr(time, name)
            patch.setattr(time, name, lambda real=real: slower * real())
        patch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
        assert cores() <= processors
        torch.set_num_threads(processors)
        try:
            decisions = [run(pipeline, latency_ms=None, knows=knows) for knows in (16, 24)]
        finally:
            torch.set_num_threads(before)
    return json.dumps(decisions)


def test_a_decision_does_not_depend_on_clocks_or_processors(finished, tmp_path):
    usual = decided(finished, tmp_path / "usual", slower=1, processors=1)
    assert [each["verdict"] for each in json.loads(usual)] == ["promote", "promote"]
    assert decided(finished, tmp_path / "slow", slower=10, processors=1) == usual
    assert decided(finished, tmp_path / "many", slower=1, processors=4) == usual
