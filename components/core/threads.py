"""Thread counts: a process computes with the cores it owns and no more (contract 14).

With more OpenMP threads than idle cores, a spinning thread occupies the core that the awaited thread needs. So every
process sets its number of threads, and waiting threads sleep after a short spin. The OpenMP library reads this wait
policy when it is loaded: `environment` sets it for child processes, `prepare` for this one before torch is imported.

OMP_NUM_THREADS in the environment of a command is the user's upper limit of threads per process, on every node. It must
not be set machine-wide (in an image or a manifest), because it would limit every process on the machine.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from components.core.processors import cores

QUIET = {
    # Two threads next to busy processes: 9.2 s per step with spinning threads, 0.7 s with sleeping threads.
    "OMP_WAIT_POLICY": "PASSIVE",
    # Spin about 200 microseconds before sleeping: on a virtual machine, sleeping and waking between two operators takes
    # a considerable part of a step (measured with 1,000 to 10,000 turns, alone and next to a busy process).
    "GOMP_SPINCOUNT": "4000",
    # Freed memory stays in the process instead of being returned to the kernel, which zeroes it again at the next
    # allocation: page faults took a third to a half of an LSTM's training step. One arena, because the arenas of
    # further threads cannot hold large blocks.
    "MALLOC_MMAP_THRESHOLD_": str(2**32 - 1),
    "MALLOC_TRIM_THRESHOLD_": str(2**32 - 1),
    "MALLOC_ARENA_MAX": "1",
    # torch requests huge pages for large tensors, which saves page faults: about 3 percent of a step.
    "THP_MEM_ALLOC_ENABLE": "1",
    # Deterministic results of cuBLAS (contract 7 on GPUs).
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}
#: The same for a running process: parameters of glibc's mallopt (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_ARENA_MAX).
MALLOPT = {-3: 2**31 - 1, -1: 2**31 - 1, -8: 1}


def environment(threads: int) -> dict[str, str]:
    """Variables of a child process that owns `threads` cores. Variables that the user has set keep their values."""
    counts = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(_allowed(threads)))
    return counts | {name: os.environ.get(name, value) for name, value in _quiet().items()}


def prepare() -> None:
    """Set the variables of this process, for libraries that are imported afterwards.

    OMP_NUM_THREADS stays unset, because children (Ray workers on other nodes, too) read it as the user's limit; `use`
    sets torch's number of threads.
    """
    for name, value in (_quiet() | {"OPENBLAS_NUM_THREADS": str(_allowed(cores()))}).items():
        os.environ.setdefault(name, value)


def _quiet() -> dict[str, str]:
    """`QUIET`; without GOMP_SPINCOUNT if the user has set another wait policy, over which it would take precedence."""
    own_policy = os.environ.get("OMP_WAIT_POLICY", QUIET["OMP_WAIT_POLICY"]) != QUIET["OMP_WAIT_POLICY"]
    return {name: value for name, value in QUIET.items() if not (own_policy and name == "GOMP_SPINCOUNT")}


def _allowed(threads: int) -> int:
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    return min(threads, int(allowed)) if allowed.isdigit() and int(allowed) else threads


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """A block (or a decorated function) in which torch, if it is loaded, uses this number of threads."""
    if (torch := sys.modules.get("torch")) is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def use(threads: int) -> None:
    """Set torch's number of threads (at most OMP_NUM_THREADS) and keep freed memory in this process, from now on."""
    # Words models do without torch; the libraries of numpy have read OMP_NUM_THREADS.
    with suppress(ModuleNotFoundError):
        import torch

        torch.set_num_threads(_allowed(threads))
    with suppress(OSError, AttributeError):
        # Without mallopt (another C library) training is slower, not wrong.
        libc = ctypes.CDLL("libc.so.6")
        for parameter, value in MALLOPT.items():
            libc.mallopt(parameter, value)
