"""What tests of several packages need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

#: Tests that fork training processes come before Prefect has run in their process; then the flows, which take longest:
#: the last tests, which processes take from each other, are short ones.
FIRST = ("adaptation", "pretraining", "training", "flows")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {folder: place for place, folder in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path.parent.name, len(FIRST)))


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    """The address of an S3 test server of this module's own, with nothing in it."""
    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}"
    moto.stop()
