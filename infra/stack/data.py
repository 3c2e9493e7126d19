"""Puts this checkout's version of the data into the bucket: `python -m infra.stack.data s3://bucket/prefix`.

What `dvc push data.dvc` does, without a remote written into the checkout's settings.
"""

from __future__ import annotations

import sys

from dvc.repo import Repo

from infra.stack.compose import ROOT


def push(remote: str) -> int:
    """Push what data.dvc names; returns how many files went over."""
    settings = {"core": {"remote": "s3"}, "remote": {"s3": {"url": remote}}}
    with Repo(str(ROOT), config=settings) as repo:
        return int(repo.push(targets=["data.dvc"]))


if __name__ == "__main__":
    print(f"{push(sys.argv[1])} file(s) pushed to {sys.argv[1]}")
