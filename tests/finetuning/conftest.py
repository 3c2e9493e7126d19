from __future__ import annotations

import pytest

from components.settings import contrastive
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


@pytest.fixture
def few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contrastive training in small steps at a high rate."""
    monkeypatch.setattr(contrastive, "ROWS", 6)
    monkeypatch.setattr(contrastive, "RATE", 0.01)
