"""Push this checkout's version of the data to a bucket that need not be a remote: `python -m infra.stack.data
s3://bucket/prefix`."""

import sys

from dvc.repo import Repo

from infra.stack.compose import ROOT


def push(remote: str) -> int:
    """Push the data of data.dvc; returns the number of transferred files."""
    settings = {"core": {"remote": "s3"}, "remote": {"s3": {"url": remote}}}
    with Repo(str(ROOT), config=settings) as repo:
        return int(repo.push(targets=["data.dvc"]))


if __name__ == "__main__":
    print(f"{push(sys.argv[1])} file(s) pushed to {sys.argv[1]}")
