"""Create the S3 buckets that do not exist: `python -m infra.buckets headstart mlflow`.

AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be those of an identity that may create buckets.
"""

import sys

from components.cluster.storage import ensure_bucket

if __name__ == "__main__":
    for bucket in sys.argv[1:]:
        print(f"bucket {bucket}: {'created' if ensure_bucket(bucket) else 'exists'}")
