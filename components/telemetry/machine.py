"""Processor, memory, disk, network and GPUs of this machine, as MLflow's own monitor measures them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from components.telemetry.curves import Point
from components.telemetry.spool import now_ms
from components.tracking import machine_monitors

#: Seconds between the first measurements. After every `PER_INTERVAL` of them the interval is doubled, so that a long
#: training has a few hundred.
FIRST_S = 5.0
PER_INTERVAL = 120


class Machine:
    """Measures at growing intervals."""

    def __init__(self) -> None:
        self._monitors = machine_monitors()
        self._count = 0
        self._due = time.monotonic()

    def sample(self) -> Sequence[Point]:
        """Measurements, if they are due; keys begin with `system/`, which MLflow's page shows on a page of its own."""
        if time.monotonic() < self._due:
            return ()
        self._due = time.monotonic() + FIRST_S * 2 ** (self._count // PER_INTERVAL)
        points = []
        for monitor in self._monitors:
            monitor.collect_metrics()
            for name, value in monitor.aggregate_metrics().items():
                points.append(Point(f"system/{name}", float(value), now_ms(), self._count))
            monitor.clear_metrics()
        self._count += 1
        return points
