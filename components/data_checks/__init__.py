"""Checks of new data against the last accepted version, before training."""

from typing import Final

KIND: Final = "checks"
#: Files of the output directory of the stage `checks`: findings, and statistics of the data of the run.
FILE: Final = "checks.json"
STATISTICS: Final = "statistics.json"
