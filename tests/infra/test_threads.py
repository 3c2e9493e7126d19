"""No file of infra/ limits the threads of the processes that it starts; each process uses the cores that it owns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from components.training import threads

INFRA = Path(__file__).parents[2] / "infra"
LIMITS = re.compile(r"(OMP|MKL|OPENBLAS|NUMEXPR|RAYON)_NUM_THREADS")


def test_no_file_of_infra_limits_threads() -> None:
    files = [file for file in INFRA.rglob("*") if file.is_file() and file.suffix != ".pyc" and file.name != ".env"]
    assert {"compose.yaml", "settings.yaml", "work-pool.json", "headstart.Dockerfile"} <= {file.name for file in files}
    assert [file.name for file in files if LIMITS.search(file.read_text(encoding="utf-8"))] == []


def test_a_worker_of_a_node_with_eight_cores_computes_with_eight_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert threads.environment(8)["OMP_NUM_THREADS"] == "8"
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert threads.environment(8)["OMP_NUM_THREADS"] == "2", "the user's limit"


def test_preparing_a_process_sets_no_limit_for_its_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for name in (*threads.QUIET, "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "")  # restored at the end
        monkeypatch.delenv(name)
    monkeypatch.setattr(threads, "cores", lambda: 3)
    threads.prepare()
    assert threads.environment(8)["OMP_NUM_THREADS"] == "8"
    assert threads.environment(8)["OPENBLAS_NUM_THREADS"] == "8"
