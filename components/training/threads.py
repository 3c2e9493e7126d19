"""Thread counts: a process computes with what it owns and no more (contract 14).

OpenMP threads that wait for each other spin. With more threads than free cores, a spinning thread holds the core that
the one it waits for needs, and a step takes many times longer. So a process is told how many threads it owns, and
waiting threads are told to sleep soon. The latter is read once, when the OpenMP library is loaded: `environment` is
for the processes one starts, and `prepare` for the own process before torch is imported.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

QUIET = {
    # Two threads beside busy neighbours: 9.2 s a step with waiting threads that spin, 0.7 s with ones that sleep.
    "OMP_WAIT_POLICY": "PASSIVE",
    # But not at once: falling asleep and being woken between two operators costs a virtual machine a part of a step. So
    # many turns are some 200 microseconds. An LSTM's training step, two threads on two cores: against 1,000 turns 9
    # percent more tokens a second alone, some 15 percent fewer beside one busy process; 10,000: 12 more, 32 fewer.
    "GOMP_SPINCOUNT": "4000",
    # Memory is kept by the process instead of being given back and zeroed anew for every large temporary: page faults
    # were a third to a half of an LSTM's training step. One arena, for that of a second thread holds no large blocks.
    "MALLOC_MMAP_THRESHOLD_": str(2**32 - 1),
    "MALLOC_TRIM_THRESHOLD_": str(2**32 - 1),
    "MALLOC_ARENA_MAX": "1",
    # torch asks for huge pages for large tensors: fewer page faults again, some 3 percent of a step.
    "THP_MEM_ALLOC_ENABLE": "1",
    # Results that do not depend on which work space cuBLAS happens to get (contract 7 on GPUs).
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}
#: The same for a process that runs already: parameters of glibc's mallopt.
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_ARENA_MAX = -3, -1, -8


def environment(threads: int) -> dict[str, str]:
    """Variables for a child process that owns `threads` cores. What the user has set stays."""
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(_allowed(threads)))
    return counts | {name: os.environ.get(name, value) for name, value in _quiet().items()}


def prepare() -> None:
    """Set the variables in this process; of use only before torch is imported."""
    for name, value in _quiet().items():
        os.environ.setdefault(name, value)


def _quiet() -> dict[str, str]:
    """`QUIET`; without the turns, which would overrule it, where the user wants threads to wait in another way."""
    own_way = os.environ.get("OMP_WAIT_POLICY", QUIET["OMP_WAIT_POLICY"]) != QUIET["OMP_WAIT_POLICY"]
    return {name: value for name, value in QUIET.items() if not (own_way and name == "GOMP_SPINCOUNT")}


def _allowed(threads: int) -> int:
    """No more than the user allows by OMP_NUM_THREADS."""
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    return min(threads, int(allowed)) if allowed.isdigit() and int(allowed) else threads


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Let torch compute with so many threads meanwhile."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def own(threads: int) -> None:
    """Let torch compute with `threads` threads in this process from now on, and keep the memory it has used."""
    import torch

    torch.set_num_threads(_allowed(threads))
    with suppress(OSError, AttributeError):
        # Not every C library has mallopt; without it training is slower, not wrong.
        libc = ctypes.CDLL("libc.so.6")
        for parameter, value in ((M_MMAP_THRESHOLD, 2**31 - 1), (M_TRIM_THRESHOLD, 2**31 - 1), (M_ARENA_MAX, 1)):
            libc.mallopt(parameter, value)
