from __future__ import annotations

from tests.example_task import source, task  # noqa: F401
