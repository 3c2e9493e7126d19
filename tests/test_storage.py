"""Buckets, on a moto server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace

import boto3
import pytest
from botocore.exceptions import ClientError

from components import storage
from components.errors import StorageError
from components.storage import ensure_bucket


@pytest.fixture
def store(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    _set_environment(monkeypatch, s3_server)
    yield
    # Other tests have buckets on this server.
    boto3.client("s3").delete_bucket(Bucket="models")


def _set_environment(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("store")
def test_a_bucket_is_created_once() -> None:
    assert ensure_bucket("models") is True
    assert ensure_bucket("models") is False


def test_no_store_at_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
    _set_environment(monkeypatch, endpoint)

    with pytest.raises(StorageError, match=rf"^s3://models: no store at {endpoint}; start it, or correct AWS_"):
        ensure_bucket("models")


@pytest.mark.parametrize(
    ("code", "at_creation", "result"),
    [("BucketAlreadyOwnedByYou", True, "False"), ("AccessDenied", True, "rejects"), ("403", False, "rejects")],
)
def test_refused_requests(monkeypatch: pytest.MonkeyPatch, code: str, at_creation: bool, result: str) -> None:
    class Client:
        meta = SimpleNamespace(region_name="us-east-1")

        def head_bucket(self, **request: str) -> None:
            raise ClientError({"Error": {"Code": "404" if at_creation else code}}, "HeadBucket")

        def create_bucket(self, **request: str) -> None:
            assert request == {"Bucket": "models"}
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, "CreateBucket")

    monkeypatch.setattr(storage, "_client", Client)
    if result == "False":
        assert ensure_bucket("models") is False
    else:
        with pytest.raises(StorageError, match=rf"^s3://models: .* rejects the request \({code}: .*check the cred"):
            ensure_bucket("models")
