"""Checks of new data against the last accepted version, before training."""

from typing import Final

KIND: Final = "checks"
#: File of the output directory of the stage `checks`: unit -> findings.
FILE: Final = "checks.json"
