"""Limits of the prediction server. None changes a prediction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of the prediction server.

    Attributes:
        poll_seconds: seconds between two checks of the alias `champion`.
        batch_rows: maximum number of rows of a batch; requests that wait together share one, longer ones have several.
        queue_rows: maximum number of rows of a request (status 413), and of waiting rows (status 503).
        timeout_seconds: maximum seconds from receiving a request to its answer; then status 504.
        body_megabytes: maximum size of a request's body; larger ones are answered with status 413.
        row_characters: maximum number of characters of a row; longer rows are refused.
        shutdown_seconds: seconds that running requests get to end after SIGTERM.
    """

    poll_seconds: float = 10
    batch_rows: int = 64
    queue_rows: int = 4096
    timeout_seconds: float = 30
    body_megabytes: float = 8
    row_characters: int = 200_000
    shutdown_seconds: int = 8


LIMITS = Limits()
