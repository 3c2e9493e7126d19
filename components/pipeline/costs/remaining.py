"""The remaining time of a run, from the durations of earlier runs of its stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from components.core.progress import duration


@dataclass(frozen=True)
class Remaining:
    """The stages that have not ended.

    Attributes:
        seconds: stage -> expected seconds until its end; None: no earlier run says how long it takes.
    """

    seconds: Mapping[str, float | None]

    def without(self, stage: str) -> Remaining:
        """What remains when a stage has ended."""
        return Remaining({name: seconds for name, seconds in self.seconds.items() if name != stage})

    def after(self, elapsed: Mapping[str, float]) -> Remaining:
        """What remains when stages have run for so many seconds."""
        return Remaining(
            {
                name: None if seconds is None else max(seconds - elapsed.get(name, 0), 0)
                for name, seconds in self.seconds.items()
            }
        )

    def __str__(self) -> str:
        """The remaining time in words; empty if no stage is left."""
        if not self.seconds:
            return ""
        timed = [seconds for seconds in self.seconds.values() if seconds is not None]
        unknown = len(self.seconds) - len(timed)
        stages = f"{len(self.seconds)} stage{'s' * (len(self.seconds) > 1)} left"
        if not timed:
            return f"{stages}, time unknown"
        more = f" and {unknown} of unknown time" if unknown else ""
        return f"{stages}, about {duration(sum(timed))}{more}"
