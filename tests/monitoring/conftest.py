"""The registered models of `tests.registry`."""

from tests.registry.conftest import (  # noqa: F401
    empty_database,
    finished,
)
