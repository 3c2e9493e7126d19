"""Thread counts: a process computes with what it owns and no more (contract 14).

OpenMP threads that wait for each other spin. With more threads than free cores, a spinning thread holds the core that
the one it waits for needs, and a step takes many times longer. So a process is told how many threads it owns, and
waiting threads are told to sleep. The latter is read once, when the OpenMP library is loaded: `environment` is for the
processes one starts, and `prepare` for the own process before torch is imported.
"""

from __future__ import annotations

import os
from pathlib import Path


def cores() -> int:
    """Processors that this process may use: its affinity, cut down to a container's CPU quota."""
    owned = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            owned = min(owned, max(1, int(quota) // int(period)))
    except (OSError, ValueError):
        pass
    return owned


def environment(threads: int) -> dict[str, str]:
    """Variables for a child process that owns `threads` cores. What the user has set stays."""
    wanted = {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        # Results that do not depend on which work space cuBLAS happens to get (contract 7 on GPUs).
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    return {name: os.environ.get(name, value) for name, value in wanted.items()}


def prepare(threads: int | None = None) -> None:
    """Set the variables in this process; of use only before torch or NumPy is imported."""
    os.environ.update(environment(threads or cores()))


def own(threads: int) -> None:
    """Let torch compute with `threads` threads in this process from now on."""
    import torch

    torch.set_num_threads(threads)
