"""Durations of the stages that have run on this machine: `.headstart/durations.jsonl`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from components.core.artifacts import write_atomic
from components.core.masking import masked
from components.core.processors import cores, processor_name
from components.settings.cluster import ClusterSettings

FILE = Path(".headstart/durations.jsonl")
#: Name of the stage that is running; left behind by a killed run.
RUNNING = "durations.running"
#: Maximum number of durations, and per stage; older ones are dropped.
KEPT = 2_000
KEPT_PER_STAGE = 20
GPUS = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Duration:
    """A completed stage.

    Attributes:
        stage: as in dvc.yaml, such as `pretrain@ulmfit`.
        machine: processor, cores, GPUs and cluster.
        unit: of the work: `tokens`, `bytes`, `runs`.
        amount: of work.
        seconds: from the start of DVC to its end.
        time: ISO 8601, UTC.
    """

    stage: str
    machine: str
    unit: str
    amount: float
    seconds: float
    time: str = ""

    @property
    def group(self) -> str:
        """The stage without its item."""
        return self.stage.partition("@")[0]

    @property
    def rate(self) -> float:
        """Seconds per unit of work."""
        return self.seconds / max(self.amount, 1e-9)


class History:
    """The durations in a repository. A damaged file counts as empty, because estimates are not worth an error."""

    def __init__(self, root: Path) -> None:
        self.path = root / FILE
        self.marker = self.path.with_name(RUNNING)

    def read(self) -> list[Duration]:
        """All durations, the oldest first."""
        durations = []
        with suppress(OSError):
            for line in self.path.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError, TypeError):
                    durations.append(Duration(**json.loads(line)))
        return durations

    def begin(self, stage: str) -> bool:
        """Note that a stage begins; returns False if its last attempt has not ended, so that it resumes and its
        duration says nothing."""
        try:
            fresh = self.marker.read_text(encoding="utf-8") != stage
        except OSError:
            fresh = True
        self.marker.parent.mkdir(parents=True, exist_ok=True)
        self.marker.write_text(stage, encoding="utf-8")
        return fresh

    def end(self, duration: Duration | None) -> None:
        """Note that a stage has ended, with its duration if it is to be recorded."""
        self.marker.unlink(missing_ok=True)
        if duration is None:
            return
        durations = [*self.read(), duration]
        same = [of for of in durations if (of.stage, of.machine) == (duration.stage, duration.machine)]
        dropped = {id(of) for of in same[:-KEPT_PER_STAGE]}
        kept = [of for of in durations if id(of) not in dropped][-KEPT:]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path, "".join(json.dumps(asdict(of)) + "\n" for of in kept))


def now() -> str:
    """The time, ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def gpus(environment: Mapping[str, str] = os.environ, devices: Path = GPUS) -> int:
    """Number of NVIDIA GPUs that this process may use, without torch."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([name for name in visible.split(",") if name.strip() and name.strip() != "-1"])
    return len(list(devices.iterdir())) if devices.is_dir() else 0


def machine(cluster: ClusterSettings) -> str:
    """The machine on which stages run, as durations are comparable on the same one only."""
    address = os.environ.get("RAY_ADDRESS") or cluster.address
    parts = [processor_name(Path("/proc/cpuinfo")) or "unknown processor", f"{cores()} cores"]
    parts += [f"{gpus()} GPUs"] if gpus() else []
    parts += [f"cluster {masked(address)}"] if cluster.launcher == "ray" and address != "local" else []
    parts += [f"{cluster.workers} workers"] if cluster.workers != "auto" else []
    return ", ".join(parts)
