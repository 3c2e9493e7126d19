"""Makes the S3 buckets that do not exist yet: `python -m infra.buckets headstart mlflow`.

The keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must belong to an identity that may make buckets.
"""

from __future__ import annotations

import sys

from components.storage import ensure_bucket

if __name__ == "__main__":
    for bucket in sys.argv[1:]:
        print(f"bucket {bucket}: {'made' if ensure_bucket(bucket) else 'there'}")
