"""`serve`: the prediction server."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from components.settings.section import Positive, Section


class ServeSettings(Section):
    """The prediction server. No key changes a prediction."""

    #: Seconds between two checks of the alias `champion`.
    poll_seconds: Annotated[float, Field(gt=0)] = 10
    #: Maximum number of rows of a batch; requests that wait together share a batch, longer ones have several.
    batch_rows: Positive = 64
    #: Maximum number of rows of a request (status 413), and of waiting rows (status 503).
    queue_rows: Positive = 4096
    #: Maximum seconds from receiving a request to its answer; then status 504.
    timeout_seconds: Annotated[float, Field(gt=0)] = 30
    #: Maximum size of a request's body in megabytes; larger ones are answered with status 413.
    body_megabytes: Annotated[float, Field(gt=0)] = 8
    #: Maximum number of characters of a row; longer rows are refused.
    row_characters: Positive = 200_000
    #: Seconds that running requests get to end after SIGTERM.
    shutdown_seconds: Positive = 8
