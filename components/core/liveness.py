"""Whether a process runs: neither ended, nor a zombie, nor another process with its pid."""

import psutil

#: Start times of processes are rounded; seconds by which a process may seem to be younger than it is.
PRECISION_S = 0.1


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def was_running(pid: int, moment: float) -> bool:
    """Whether the process with this pid is alive and ran at `moment` (seconds since the epoch): a younger one reuses
    the pid of one that has ended."""
    try:
        process = psutil.Process(pid)
        return is_alive(process) and process.create_time() <= moment + PRECISION_S
    except psutil.NoSuchProcess:
        return False
