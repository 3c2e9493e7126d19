"""Fixtures of several packages, and the order of the tests."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

#: Folders whose tests run first. Tests that fork training processes run before Prefect is used in their process; then
#: the flows, which take longest, so that the tests that parallel test processes run last are short.
FIRST = ("pretraining", "training", "flows")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ranks = {folder: rank for rank, folder in enumerate(FIRST)}
    items.sort(key=lambda item: ranks.get(item.path.parent.name, len(FIRST)))


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    """The address of an empty S3 test server, one per test module."""
    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}"
    moto.stop()


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the S3 test server, to which the environment refers."""
    import boto3

    names = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "DEFAULT_REGION", "ENDPOINT_URL", "EC2_METADATA_DISABLED")
    for name, value in zip(names, ("test", "test", "us-east-1", s3_server, "true"), strict=True):
        monkeypatch.setenv(f"AWS_{name}", value)
    return boto3.client("s3")


@pytest.fixture
def port() -> int:
    """A port that no program uses."""
    return free_port()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
