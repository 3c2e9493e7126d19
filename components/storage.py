"""The only module that imports boto3: S3 buckets, upload and download of folders.

The endpoint and the keys come from the usual variables (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
AWS_DEFAULT_REGION), which DVC, MLflow and Ray read as well.

An output directory is complete if and only if its manifest exists (`components.artifacts`). An upload therefore deletes
the manifest first and writes it last, and a download is verified against the manifest before it is moved into place.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, NoCredentialsError

from components.artifacts import MANIFEST, digest_file, put_in_place, read_manifest
from components.errors import ArtifactError, StorageError

#: Error codes for a bucket or object that does not exist.
ABSENT = ("404", "NoSuchBucket", "NoSuchKey", "NotFound")
#: Error codes for a bucket that exists.
PRESENT = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")
THREADS = 8
DIGEST = "sha256"


def ensure_bucket(bucket: str) -> bool:
    """Create a bucket unless it exists.

    Returns:
        True if it was created.

    Raises:
        StorageError: no store at the endpoint, no credentials, or no permission.
    """
    client = _client()
    with _translated(f"s3://{bucket}"):
        if _exists(lambda: client.head_bucket(Bucket=bucket)):
            return False
        try:
            region = client.meta.region_name
            # Every region requires a location constraint except us-east-1, which rejects it.
            place = (
                {} if region in (None, "us-east-1") else {"CreateBucketConfiguration": {"LocationConstraint": region}}
            )
            client.create_bucket(Bucket=bucket, **place)
        except ClientError as error:
            if error.response["Error"]["Code"] in PRESENT:  # another process was quicker
                return False
            raise
        return True


def put_folder(directory: Path, *, to: str) -> int:
    """Upload a folder, its manifest last. Objects with the same content are not sent again.

    Args:
        directory: any folder; readers see one with a manifest either complete or absent.
        to: `s3://bucket/prefix`. Objects below the prefix that are not in the folder are deleted.

    Returns:
        Number of files sent.

    Raises:
        ArtifactError: the folder does not exist or holds no files.
        StorageError: the bucket does not exist, or the store cannot be reached.
    """
    bucket, prefix = split_address(to)
    directory = Path(directory)
    files = sorted(path for path in directory.rglob("*") if path.is_file()) if directory.is_dir() else []
    if not files:
        raise ArtifactError(f"{directory}: the folder does not exist or is empty; nothing to upload to {to}")
    client = _client()
    names = {_key(prefix, path.relative_to(directory).as_posix()): path for path in files}
    with _translated(to):
        there = set(_keys(client, bucket, prefix))
        digests = {key: digest_file(path) for key, path in names.items()}

        def differs(key: str) -> bool:
            if key not in there:
                return True
            head = client.head_object(Bucket=bucket, Key=key)
            return bool(head["Metadata"].get(DIGEST) != digests[key])

        def send(key: str) -> None:
            client.upload_file(str(names[key]), bucket, key, ExtraArgs={"Metadata": {DIGEST: digests[key]}})

        with ThreadPoolExecutor(THREADS) as pool:
            changed = [key for key, new in zip(names, pool.map(differs, names), strict=True) if new]
            last = _key(prefix, MANIFEST)
            surplus = there - names.keys()
            if (changed or surplus) and last in there:
                client.delete_object(Bucket=bucket, Key=last)
                changed = [*(key for key in changed if key != last), *([last] if last in names else [])]
            list(pool.map(send, (key for key in changed if key != last)))
            list(pool.map(lambda key: client.delete_object(Bucket=bucket, Key=key), surplus - {last}))
        if last in changed:
            send(last)
    return len(changed)


def get_folder(source: str, *, to: Path) -> Path:
    """Download a folder, completely or not at all. An existing folder is replaced.

    Args:
        source: `s3://bucket/prefix`.
        to: the folder to write.

    Raises:
        StorageError: there are no such objects, or the store cannot be reached.
        ArtifactError: the files differ from the folder's manifest, or the disk is full.
    """
    bucket, prefix = split_address(source)
    to = Path(to)
    client = _client()
    aside = to.with_name(f".{to.name}.partial")
    try:
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        with _translated(source):
            keys = list(_keys(client, bucket, prefix))
            if not keys:
                raise StorageError(f"{source}: there are no objects at this address; check it, or upload them first")

            def fetch(key: str) -> None:
                target = aside / key.removeprefix(prefix).lstrip("/")
                if not target.resolve().is_relative_to(aside.resolve()):
                    raise ArtifactError(f"{source}: the object {key!r} points outside of the folder")
                target.parent.mkdir(parents=True, exist_ok=True)
                client.download_file(bucket, key, str(target))

            with ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(fetch, keys))
        if (aside / MANIFEST).is_file():
            read_manifest(aside, verify=True)
        put_in_place(aside, to)
    except OSError as error:
        raise ArtifactError(f"{error.filename or to}: cannot be written ({error.strerror}); free space") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return to


def split_address(address: str) -> tuple[str, str]:
    """`s3://bucket/some/prefix/` -> (`bucket`, `some/prefix`).

    Raises:
        StorageError: the address has another form.
    """
    scheme, _, rest = address.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme != "s3" or not bucket:
        raise StorageError(f"{address}: not an address in an S3 store; write s3://bucket/prefix")
    return bucket, prefix.strip("/")


def _client() -> Any:
    return boto3.client(
        "s3",
        config=Config(connect_timeout=5, read_timeout=60, retries={"total_max_attempts": 3, "mode": "standard"}),
    )


def _key(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name


def _keys(client: Any, bucket: str, prefix: str) -> Iterator[str]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/" if prefix else "")
    for page in pages:
        yield from (entry["Key"] for entry in page.get("Contents", []))


def _exists(ask: Callable[[], Any]) -> bool:
    try:
        ask()
    except ClientError as error:
        if error.response["Error"]["Code"] in ABSENT:
            return False
        raise
    return True


@contextmanager
def _translated(what: str) -> Iterator[None]:
    endpoint = (
        os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "AWS (no AWS_ENDPOINT_URL)"
    )
    try:
        yield
    except EndpointConnectionError as error:
        raise StorageError(f"{what}: no store at {endpoint}; start it, or correct AWS_ENDPOINT_URL") from error
    except NoCredentialsError as error:
        raise StorageError(f"{what}: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") from error
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
        if code in ABSENT:
            raise StorageError(f"{what}: the bucket or object does not exist at {endpoint} ({code})") from error
        raise StorageError(f"{what}: {endpoint} refuses ({code}: {message})") from error
    except BotoCoreError as error:
        raise StorageError(f"{what}: {endpoint}: {error}") from error
