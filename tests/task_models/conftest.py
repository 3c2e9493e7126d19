from __future__ import annotations

from tests.example_task import make_encoder, settings  # noqa: F401
