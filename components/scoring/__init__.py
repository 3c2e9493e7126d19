"""How each kind of task is scored: one file a kind and one line in SCORINGS. Every score is a function of sums over
rows, so that a bootstrap over rows is one matrix product (see `components.scoring.base`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from components.errors import ConfigError, nearest
from components.scoring.base import LOWER_IS_BETTER, Draws, Scoring, resampled, title
from components.scoring.classification import Choice, Classification
from components.scoring.multilabel import Multilabel
from components.scoring.questions import Questions
from components.scoring.similarity import Similarity
from components.scoring.tagging import Tagging

#: Kind of task -> (labels, calibration bins) -> its scoring.
SCORINGS: dict[str, Callable[[Sequence[str], int], Scoring]] = {
    "classification": Classification,
    "pair": Classification,
    "choice": lambda _, bins: Choice(bins),
    "multilabel": lambda labels, _: Multilabel(labels),
    "similarity": lambda *_: Similarity(),
    "tagging": lambda labels, _: Tagging(labels),
    "questions": lambda *_: Questions(),
}


def scoring_for(kind: str, labels: Sequence[str] = (), *, bins: int = 15) -> Scoring:
    """The scoring of a kind of task.

    Args:
        kind: of the task, a key of SCORINGS.
        labels: names of its labels or tags, by number.
        bins: of the calibration curve.

    Raises:
        ConfigError: there is no such kind.
    """
    if kind not in SCORINGS:
        raise ConfigError(f"kind: unknown task kind {kind!r}{nearest(kind, SCORINGS)}")
    return SCORINGS[kind](labels, bins)


def deciding(kind: str) -> tuple[str, ...]:
    """The scores of a kind of task by which a promotion may be decided, the usual one first.

    Raises:
        ConfigError: there is no such kind.
    """
    # Whether tags are spans is known with the data; until then both may be asked for.
    scorings = (scoring_for(kind), scoring_for(kind, ["B-X"]) if kind == "tagging" else scoring_for(kind))
    names = dict.fromkeys(name for scoring in reversed(scorings) for name in scoring.names)
    return tuple(name for name in names if name not in LOWER_IS_BETTER)


__all__ = ["SCORINGS", "Draws", "Scoring", "deciding", "resampled", "scoring_for", "title"]
