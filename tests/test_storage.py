"""Buckets, on a moto server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from components.cluster import storage
from components.cluster.storage import ensure_bucket
from components.core.errors import StorageError


def test_a_bucket_is_created_once(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    assert ensure_bucket("models") is True
    assert ensure_bucket("models") is False
    # Other tests have buckets on this server.
    s3.delete_bucket(Bucket="models")


def test_no_store_at_the_endpoint(s3: Any, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = f"http://127.0.0.1:{port}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
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
