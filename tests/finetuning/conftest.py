from __future__ import annotations

from tests.example_task import (  # noqa: F401
    cluster,
    in_process,
    make_encoder,
    make_job,
    make_task,
    make_things_job,
    settings,
    source,
    task,
)
