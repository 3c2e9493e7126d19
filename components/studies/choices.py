"""The choice of a language model among answers, against the most frequent one."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Final

import numpy as np

from components.data.scoring.base import Floats
from components.data.scoring.intervals import Interval, Ints
from components.data.tasks.data import Split
from components.models.encoder import Encoder
from components.studies.answers import SCORES, answer_scores
from components.studies.frame import Row, rate
from components.studies.templates import NEUTRAL, Prompt
from components.tokenization.special import UNK

#: Column of the difference to the most frequent answer.
GAIN: Final = "calibrated minus trivial"


def share(hits_N: Floats, clusters: Ints | None = None, *, least: float = 0.0) -> Interval:
    """The mean of N values between `least` and 1, with its interval over items (`clusters`: of them)."""
    groups = np.arange(len(hits_N)) if clusters is None else clusters
    sums, counts = (np.bincount(groups, of).astype(np.float64) for of in (hits_N, np.ones(len(hits_N))))
    return rate(sums, counts, within=(least, 1.0))


def choice(
    encoder: Encoder, split: Split, template: Prompt, shown: str, words: Sequence[str], *, left: bool = False
) -> tuple[Row, Floats]:
    """The choice by each score among `words`, or the row's own choices without any, against the most frequent one; and
    whether the calibrated one is right for each row. `left`: only the text before the answer is read."""
    rights, candidates = [int(target[0]) for target in split.targets], [words or fields[1:] for fields in split.fields]
    prompts, neutral = (
        [(f"{shown}{before}", "" if left else after) for before, after in map(template.fill, parts)]
        for parts in (split.fields, [(text, text) for text in NEUTRAL])
    )
    scores, hits = answer_scores(encoder, prompts, candidates, neutral=neutral), dict[str, Floats]()
    for name in SCORES:
        # A tie is wrong.
        judged = (
            (of[name][right] > np.delete(of[name], right)).all() for of, right in zip(scores, rights, strict=True)
        )
        hits[name] = np.fromiter(judged, float)
    usual, count = Counter(rights).most_common(1)[0]
    nats = -np.mean([of["sum"][right] for of, right in zip(scores, rights, strict=True)])
    ids = encoder.tokenizer.encode_batch([f" {answer}" for answer in dict.fromkeys(chain(*candidates))])
    row: Row = {"items": len(split), "unknown": sum(bool((of == UNK).any()) for of in ids)}
    row |= {"trivial": count / len(split) if words else None}
    row |= {name: share(of, split.clusters) for name, of in hits.items()}
    row |= {"guessing": float(np.mean([1 / len(of) for of in candidates])), "perplexity": math.exp(min(nats, 700.0))}
    # A score that is chosen by its hits on these items would be too good.
    gains = hits["calibrated"] - np.equal(rights, usual)
    return row | {GAIN: share(gains, split.clusters, least=-1.0) if words else None}, hits["calibrated"]
