"""The monitor of a retraining: `python -m components.telemetry ROOT ID`, started by the flow.

It sends the spools of earlier retrainings that MLflow has not received, and that of this one while it runs. It ends
with it: with exit code 0 if MLflow has received everything, otherwise with UNSENT. If the flow is killed, the monitor
records that, or the monitor of the next retraining does.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.masking import masked
from components.settings.registry import RegistrySettings
from components.settings.telemetry import TelemetrySettings
from components.telemetry.curves import Point, Position, read_points
from components.telemetry.gauges import Gauges
from components.telemetry.retraining import Retraining
from components.telemetry.spool import FOLDER, RUNS, spools

if TYPE_CHECKING:
    from components.telemetry.forwarding import Forwarder

#: Exit code: the rest is sent by the next monitor.
UNSENT = 3
POLL_S = 0.5
#: Seconds between two attempts while MLflow gives no answer, and between two updates of the gauges.
RETRY_S = 10.0
GAUGES_S = 2.0
#: Attempts after the end of the retraining, and seconds between them.
FINAL_ATTEMPTS = 3
FINAL_RETRY_S = 1.0
#: Lower priority than training.
NICE = 10


class Sender:
    """Sends a retraining, again and again until MLflow has received it.

    Args:
        retraining: its spool.
    """

    def __init__(self, retraining: Retraining) -> None:
        self.retraining = retraining
        self.forwarder: Forwarder | None = None
        self._due = 0.0

    @property
    def is_complete(self) -> bool:
        """Whether MLflow has received everything."""
        return self.forwarder is not None and self.forwarder.is_complete

    def send(self, samples: Sequence[Point] = (), *, now: bool = False) -> None:
        """Send what is new, unless the last attempt failed a short time ago.

        Args:
            samples: measurements of the machine; dropped if MLflow gives no answer.
            now: whether to try in any case.
        """
        if not self.retraining.run or (not now and time.monotonic() < self._due):
            return
        try:
            if self.forwarder is None:
                # The import of MLflow takes seconds.
                from components.telemetry.forwarding import Forwarder
                from components.tracking import connect

                self.forwarder = Forwarder(
                    self.retraining, connect(self.retraining.settings("registry", RegistrySettings))
                )
            self.forwarder.send()
            for run in self.forwarder.active if samples else ():
                self.forwarder.log(run, samples)
        except Exception:  # whatever it is, the retraining goes on, and the rest is sent later
            print(masked(traceback.format_exc()), file=sys.stderr)
            self._due = time.monotonic() + RETRY_S


class Display:
    """Shows a retraining as gauges."""

    def __init__(self, retraining: Retraining, gauges: Gauges) -> None:
        self.retraining, self.gauges = retraining, gauges
        self._positions: dict[str, Position] = {}
        self._ended: set[str] = set()
        self._due = 0.0

    def show(self, *, now: bool = False) -> None:
        """Update and publish the gauges, at most every `GAUGES_S` seconds unless `now`."""
        retraining, gauges = self.retraining, self.gauges
        if not retraining.run or (not now and time.monotonic() < self._due):
            return
        self._due = time.monotonic() + GAUGES_S
        begun = retraining.run["time"] / 1000
        gauges.begin(begun)
        for stage in retraining.stages.values():
            if stage.name in self._ended:
                continue
            position = self._positions.get(stage.name, Position())
            points, after = read_points(retraining.folder / stage.file, position, history=stage.history)
            self._positions[stage.name] = after
            gauges.measure(stage.name, points)
            if stage.end is None:
                gauges.begin_stage(stage.name)
            else:
                self._ended.add(stage.name)
                gauges.end_stage(stage.name, (stage.end["time"] - stage.start) / 1000)
        if retraining.end is not None:
            gauges.end(retraining.end["status"], begun=begun, time=retraining.end["time"] / 1000)
        gauges.publish()


def send_earlier(root: Path, *, but: Path) -> None:
    """Send the spools of earlier retrainings, which ended while MLflow gave no answer or were killed."""
    for folder in spools(root):
        if folder == but:
            continue
        retraining = Retraining(folder)
        retraining.read()
        if retraining.end is None:
            retraining.interrupt()
        if not retraining.run:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        sender = Sender(retraining)
        sender.send(now=True)
        if sender.is_complete:
            shutil.rmtree(folder, ignore_errors=True)


def watch(root: Path, run: str, *, stopped: Sequence[Any] = ()) -> int:
    """Monitor a retraining until it has ended; returns the exit code.

    Args:
        root: of the repository.
        run: id of the retraining.
        stopped: not empty as soon as this process is asked to end.
    """
    folder = root / FOLDER / RUNS / run
    retraining = Retraining(folder)
    retraining.read()
    settings = retraining.settings("telemetry", TelemetrySettings)
    display = Display(retraining, Gauges(root, retraining.run["tags"]["params"], settings))
    display.gauges.listen()
    sender, earlier = Sender(retraining), False
    measure = _measuring() if settings.mlflow else None
    while retraining.end is None:
        retraining.read()
        if retraining.end is None and (retraining.is_killed or stopped):
            retraining.interrupt()
            break
        if measure is not None:
            sender.send(measure())
            if sender.forwarder is not None and not earlier:
                send_earlier(root, but=folder)
                earlier = True
        display.show()
        time.sleep(POLL_S)
    display.show(now=True)
    for attempt in range(FINAL_ATTEMPTS if settings.mlflow else 0):
        sender.send(now=True)
        if sender.is_complete:
            break
        time.sleep(FINAL_RETRY_S if attempt + 1 < FINAL_ATTEMPTS else 0)
    if settings.mlflow and not sender.is_complete:
        return UNSENT
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def _measuring() -> Callable[[], Sequence[Point]]:
    """Measures the machine where due."""
    from components.telemetry.machine import Machine

    return Machine().sample


def main() -> None:
    """Entry point of the process."""
    stopped: list[Any] = []
    signal.signal(signal.SIGTERM, lambda *arguments: stopped.append(arguments))
    os.nice(NICE)
    sys.exit(watch(Path(sys.argv[1]), sys.argv[2], stopped=stopped))


if __name__ == "__main__":
    main()
