"""Measurements of the machine during a run."""

from __future__ import annotations

from contextlib import suppress
from typing import Any


def machine_monitors() -> list[Any]:
    """MLflow's monitors of processor, memory, disk, network and NVIDIA GPUs that work on this machine."""
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
    from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
    from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

    found: list[Any] = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]
    with suppress(ImportError, RuntimeError):  # there is no GPU
        found.append(GPUMonitor())
    return found
