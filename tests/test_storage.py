"""The object store, against moto's server."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from components.artifacts import read_manifest, writing
from components.errors import ArtifactError, StorageError
from components.storage import ensure_bucket, get_folder, put_folder, split_address


@pytest.fixture
def store(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    _set_environment(monkeypatch, s3_server)
    yield
    client = boto3.client("s3")
    for bucket in client.list_buckets()["Buckets"]:
        for entry in client.list_objects_v2(Bucket=bucket["Name"]).get("Contents", []):
            client.delete_object(Bucket=bucket["Name"], Key=entry["Key"])
        client.delete_bucket(Bucket=bucket["Name"])


def _set_environment(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)


def folder(path: Path, **contents: str) -> Path:
    with writing(path, kind="numbers") as draft:
        for name, content in contents.items():
            file = draft.path / name.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
    return path


def keys(bucket: str) -> list[str]:
    return [entry["Key"] for entry in boto3.client("s3").list_objects_v2(Bucket=bucket).get("Contents", [])]


@pytest.mark.usefixtures("store")
def test_a_bucket_is_made_once() -> None:
    assert ensure_bucket("models") is True
    assert ensure_bucket("models") is False


@pytest.mark.usefixtures("store")
def test_a_folder_comes_back_as_it_was(tmp_path: Path) -> None:
    ensure_bucket("models")
    source = folder(tmp_path / "source", a="1", deep__b="2")

    assert put_folder(source, to="s3://models/some/prefix") == 3
    fetched = get_folder("s3://models/some/prefix/", to=tmp_path / "fetched")

    assert (fetched / "deep" / "b").read_text() == "2"
    assert read_manifest(fetched, verify=True).digest == read_manifest(source).digest


@pytest.mark.usefixtures("store")
def test_only_what_changed_is_sent_and_what_is_gone_is_removed(tmp_path: Path) -> None:
    ensure_bucket("models")
    put_folder(folder(tmp_path / "x", a="1", b="2"), to="s3://models/x")
    assert put_folder(tmp_path / "x", to="s3://models/x") == 0

    assert put_folder(folder(tmp_path / "x", a="1", c="3"), to="s3://models/x") == 2  # c and the manifest
    assert keys("models") == ["x/a", "x/c", "x/manifest.json"]
    assert not (get_folder("s3://models/x", to=tmp_path / "x") / "b").exists()


@pytest.mark.usefixtures("store")
def test_a_neighbour_with_a_longer_name_is_left_alone(tmp_path: Path) -> None:
    ensure_bucket("models")
    put_folder(folder(tmp_path / "x2", a="1"), to="s3://models/x2")
    put_folder(folder(tmp_path / "x", a="1"), to="s3://models/x")

    assert keys("models") == ["x/a", "x/manifest.json", "x2/a", "x2/manifest.json"]


@pytest.mark.usefixtures("store")
def test_altered_objects_are_refused_and_the_earlier_folder_stays(tmp_path: Path) -> None:
    ensure_bucket("models")
    put_folder(folder(tmp_path / "source", a="1"), to="s3://models/x")
    target = get_folder("s3://models/x", to=tmp_path / "target")
    boto3.client("s3").put_object(Bucket="models", Key="x/a", Body=b"7")

    with pytest.raises(ArtifactError, match=r"a: altered since it was written \(SHA-256 differs\)"):
        get_folder("s3://models/x", to=target)
    assert (target / "a").read_text() == "1"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]


@pytest.mark.usefixtures("store")
def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"^s3://nowhere/x: the bucket or object does not exist at http://127"):
        put_folder(folder(tmp_path / "source", a="1"), to="s3://nowhere/x")
    ensure_bucket("models")
    with pytest.raises(StorageError, match=r"^s3://models/x: there are no objects at this address"):
        get_folder("s3://models/x", to=tmp_path / "target")
    with pytest.raises(
        ArtifactError, match=r"empty: the folder does not exist or is empty; nothing to upload to s3://models/x"
    ):
        put_folder(tmp_path / "empty", to="s3://models/x")
    assert not (tmp_path / "target").exists()


def test_no_store_at_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
    _set_environment(monkeypatch, endpoint)

    with pytest.raises(StorageError, match=rf"^s3://models: no store at {endpoint}; start it, or correct AWS_"):
        ensure_bucket("models")


@pytest.mark.parametrize("address", ["models/x", "s3://", "http://models/x"])
def test_an_address_of_another_kind(address: str) -> None:
    with pytest.raises(StorageError, match=r"not an address in an S3 store; write s3://bucket/prefix"):
        split_address(address)


def test_an_address_is_a_bucket_and_a_prefix() -> None:
    assert split_address("s3://models/some/prefix/") == ("models", "some/prefix")
    assert split_address("s3://models") == ("models", "")
