"""A process that ends, as if by kill -9, before a given change of the file system."""

import itertools
import os
from collections.abc import Callable


def exit_at(step: int) -> None:
    """Let this process end with code 9 before its call number `step` that renames or removes something; from 0."""
    calls = itertools.count()

    def exiting(real: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object, **options: object) -> None:
            if next(calls) == step:
                os._exit(9)
            real(*arguments, **options)

        return call

    for name in ("rename", "replace", "unlink", "rmdir"):
        setattr(os, name, exiting(getattr(os, name)))
