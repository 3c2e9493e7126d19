"""Buckets in an S3 store. The only module that imports boto3.

Endpoint and credentials come from the environment variables that DVC, MLflow and Ray read as well: AWS_ENDPOINT_URL,
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_DEFAULT_REGION.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, NoCredentialsError
from botocore.exceptions import ConnectionError as UnreachableError

from components.core.errors import StorageError, StorageUnavailableError

#: Error codes for a bucket that does not exist.
ABSENT = ("404", "NoSuchBucket", "NotFound")
#: Error codes for a bucket that exists.
PRESENT = ("BucketAlreadyOwnedByYou", "BucketAlreadyExists")


def ensure_bucket(bucket: str) -> bool:
    """Create a bucket unless it exists.

    Returns:
        True if it was created.

    Raises:
        StorageError: no credentials, or no permission.
        StorageUnavailableError: no store at the endpoint.
    """
    client = _client()
    with _translated(f"s3://{bucket}"):
        try:
            client.head_bucket(Bucket=bucket)
            return False
        except ClientError as error:
            if error.response["Error"]["Code"] not in ABSENT:
                raise
        region = client.meta.region_name
        # Every region requires a location constraint except us-east-1, which rejects it.
        constraint = {"CreateBucketConfiguration": {"LocationConstraint": region}}
        try:
            client.create_bucket(Bucket=bucket, **({} if region in (None, "us-east-1") else constraint))
        except ClientError as error:
            if error.response["Error"]["Code"] in PRESENT:  # another process has created it meanwhile
                return False
            raise
        return True


def remove_objects(address: str, *, pattern: str) -> int:
    """Remove objects of a bucket with all of their versions.

    Args:
        pattern: regular expression that the rest of an object's name has to match; other objects stay.

    Returns:
        Number of removed objects and versions.

    Raises:
        StorageError: no credentials, or no permission.
        StorageUnavailableError: no store at the endpoint.
    """
    bucket, _, prefix = address.removeprefix("s3://").rstrip("/").partition("/")
    prefix = f"{prefix}/" if prefix else ""
    client, count = _client(), 0
    with _translated(address):
        for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix):
            objects = [
                {"Key": item["Key"], "VersionId": item["VersionId"]}
                for item in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
                if re.fullmatch(pattern, item["Key"].removeprefix(prefix))
            ]
            if not objects:
                continue
            answer = client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
            if errors := answer.get("Errors"):
                raise StorageError(f"{address}/{errors[0]['Key']}: cannot be removed ({errors[0]['Code']})")
            count += len(objects)
    return count


def _client() -> Any:
    return boto3.client(
        "s3", config=Config(connect_timeout=5, read_timeout=60, retries={"total_max_attempts": 3, "mode": "standard"})
    )


@contextmanager
def _translated(what: str) -> Iterator[None]:
    endpoint = (
        os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "AWS (no AWS_ENDPOINT_URL)"
    )
    try:
        yield
    except (UnreachableError, HTTPClientError) as error:  # no connection, or no answer in time
        raise StorageUnavailableError(
            f"{what}: no store at {endpoint}; start it, or correct AWS_ENDPOINT_URL ({error})"
        ) from error
    except NoCredentialsError as error:
        raise StorageError(f"{what}: no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") from error
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"].get("Message", "")
        raise StorageError(
            f"{what}: {endpoint} rejects the request ({code}: {message}); check the credentials and their permissions"
        ) from error
    except BotoCoreError as error:
        raise StorageError(f"{what}: {endpoint}: {error}") from error
