from __future__ import annotations

from tests.example_task import make_encoder, make_task, settings  # noqa: F401
