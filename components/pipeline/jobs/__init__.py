"""The settings of a run as arguments of each stage's jobs, and names and paths that all of them use.

One function per stage: settings -> item -> arguments of the job. An item is what dvc.yaml calls `${key}`. The paths
that a stage reads and writes are in dvc.yaml too, which is written from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.settings.params import Params

CORPORA = ("general", "domain")
#: `pretrain.<family>.tokenizer` of families that are trained on pairs of texts; also the suffix of the directories of
#: pairs.
PARALLEL = "parallel"
#: Kind of the vocabulary that both sides of pairs share.
PAIRS_KIND = "word"
#: Name of the item of a stage with a single item.
WHOLE = ""
Arguments = Mapping[str, Any]


def out(params: Params, *parts: str) -> Path:
    """A path in the run's output folder."""
    return Path(params.run.out, *parts)
