"""Demonstrations in a prompt: labelled rows of train before the row that is answered (Brown et al. 2020, few-shot).

The demonstrations are a function of the seed. They are labels that are spent: N demonstrations, the same for every row,
are N labels; the nearest rows are searched in all labelled rows of train.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from components.errors import ConfigError
from components.models.encoder import Encoder
from components.training.rng import counter_rng
from components.words.text import tfidf

#: Between the demonstrations, and before the row that is answered.
SEPARATOR: Final = "\n\n"


def balanced(strata: NDArray[np.int64] | None, rows: int, shots: int, *, seed: int) -> list[int]:
    """The rows of N demonstrations, in their order in the prompt.

    The strata take turns, in a random order of each round, so that their counts differ by at most 1 while all of them
    have rows left.

    Args:
        strata: (rows,) the label of each row; None for kinds without labels.
        rows: number of rows of train.
        shots: N.
        seed: of the choice.

    Raises:
        ConfigError: train has fewer than N rows.
    """
    if shots > rows:
        raise ConfigError(f"--shots: {shots} demonstrations, but train has {rows} rows; lower it")
    given = np.zeros(rows, dtype=np.int64) if strata is None else strata
    left = {}
    for stratum in np.unique(given).tolist():
        own = np.flatnonzero(given == stratum)
        left[stratum] = counter_rng(seed, "demonstrations", stratum).permutation(own).tolist()
    found: list[int] = []
    turn = 0
    while len(found) < shots:
        names = sorted(stratum for stratum, own in left.items() if own)
        order = counter_rng(seed, "demonstrations of a round", turn).permutation(len(names))
        found += [left[names[index]].pop() for index in order[: shots - len(found)]]
        turn += 1
    return found


def nearest(train: Sequence[str], texts: Sequence[str], shots: int) -> list[list[int]]:
    """The N rows of train with the highest cosine of their TF-IDF vectors to each text, the nearest last (Liu et al.
    2022, "What makes good in-context examples for GPT-3?"). Of equal cosines the earlier row is nearer.

    Raises:
        ConfigError: train has fewer than N rows.
    """
    if shots > len(train):
        raise ConfigError(f"--shots: {shots} demonstrations, but train has {len(train)} rows; lower it")
    vectorizer = tfidf()
    known = vectorizer.fit_transform(train)
    found = []
    for text in texts:
        cosines = np.asarray((vectorizer.transform([text]) @ known.T).todense()).ravel()
        found.append(np.argsort(-cosines, kind="stable")[:shots][::-1].tolist())
    return found


def fitting(
    encoder: Encoder, shown: Sequence[Sequence[str]], asked: Sequence[str], *, reserved: Sequence[int]
) -> tuple[list[str], float]:
    """The text before each answer: the last demonstrations that fit into the model's positions, then the row.

    Args:
        encoder: counts the pieces, and has the limit.
        shown: the demonstrations of each row.
        asked: the text before the answer of each row.
        reserved: number of pieces that each row needs besides.

    Returns:
        The texts, and the mean number of demonstrations in them.
    """
    most = encoder.model.max_tokens
    parts = list(dict.fromkeys([*asked, *(f"{one}{SEPARATOR}" for row in shown for one in row)]))
    pieces = encoder.tokenizer.encode_batch(parts) if most is not None else []
    sizes = {part: len(ids) for part, ids in zip(parts, pieces, strict=False)}
    found, count = [], 0
    for row, text, needed in zip(shown, asked, reserved, strict=True):
        kept = [f"{one}{SEPARATOR}" for one in row]
        if most is not None:
            room = most - needed - sizes[text] - len(encoder.model.special_tokens([]))
            while kept and sum(sizes[part] for part in kept) > room:
                kept.pop(0)
        found.append("".join([*kept, text]))
        count += len(kept)
    return found, count / max(1, len(found))
