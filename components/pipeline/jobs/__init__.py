"""The settings of a run as arguments of each stage's jobs: one function per stage, settings -> item (DVC's `${key}`) ->
arguments; and names and paths that all of them use."""

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
