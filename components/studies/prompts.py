"""Prompts of a language model: templates, and demonstrations before the row that is answered.

Demonstrations are labelled rows of train (Brown et al. 2020, few-shot), a function of the seed. N demonstrations are N
labels that are spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from components.errors import ConfigError
from components.inference.generation import GAP
from components.models.encoder import Encoder
from components.tasks.data import Fields
from components.training.rng import counter_rng

#: Between the demonstrations, and before the row that is answered.
SEPARATOR: Final = "\n\n"


@dataclass(frozen=True)
class Prompt:
    """A template: the texts before and after the answer; {text} and {second} are the parts of a row."""

    before: str
    after: str

    @classmethod
    def of(cls, template: str, *, parts: Sequence[str] = ("text", "second")) -> Prompt:
        """Parse a text. The answer replaces its [MASK], or follows the text if there is none.

        Args:
            template: the text.
            parts: allowed names in braces.

        Raises:
            ConfigError: several [MASK], or another name in braces.
        """
        before, *after = template.split(GAP)
        if len(after) > 1:
            raise ConfigError(f"--prompt: {template!r} has {len(after)} {GAP}; write one or none")
        try:
            named = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
            template.format(text="", second="")
        except (LookupError, ValueError, TypeError, AttributeError):
            named = {""}
        if not named <= set(parts):
            allowed = " and ".join(f"{{{part}}}" for part in parts)
            raise ConfigError(f"--prompt: {template!r}: only {allowed} may be in braces; write {{{{ for a brace")
        return cls(before.rstrip(), after[0] if after else "")

    def fill(self, parts: Fields) -> tuple[str, str]:
        """The texts before and after the answer for a row."""
        named = {"text": parts[0], "second": parts[1] if len(parts) > 1 else ""}
        return self.before.format(**named), self.after.format(**named)


def label_words(labels: Sequence[str], answers: str) -> dict[str, str]:
    """Label -> its answer: the words of its name, unless `answers` has another.

    Raises:
        ConfigError: an entry without "=" or with an unknown label.
    """
    words = {label: label.replace("_", " ").replace("-", " ") for label in labels}
    for entry in filter(str.strip, answers.split(";")):
        label, _, answer = (part.strip() for part in entry.partition("="))
        if not answer or label not in words:
            raise ConfigError(f"--answers: {entry.strip()!r}: write label=words for labels among {', '.join(labels)}")
        words[label] = answer
    return words


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
    numbers = np.zeros(rows, dtype=np.int64) if strata is None else strata
    left = {
        stratum: counter_rng(seed, "demonstrations", stratum).permutation(np.flatnonzero(numbers == stratum)).tolist()
        for stratum in np.unique(numbers).tolist()
    }
    chosen: list[int] = []
    turn = 0
    while len(chosen) < shots:
        names = sorted(stratum for stratum, remaining in left.items() if remaining)
        order = counter_rng(seed, "demonstrations of a round", turn).permutation(len(names))
        chosen += [left[names[index]].pop() for index in order[: shots - len(chosen)]]
        turn += 1
    return chosen


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
    before = [[f"{text}{SEPARATOR}" for text in row] for row in shown]
    parts = list(dict.fromkeys([*asked, *(part for row in before for part in row)]))
    pieces = encoder.tokenizer.encode_batch(parts) if most is not None else []
    sizes = {part: len(ids) for part, ids in zip(parts, pieces, strict=False)}
    if most is not None:
        for row, text, needed in zip(before, asked, reserved, strict=True):
            room = most - needed - sizes[text] - len(encoder.model.special_tokens([]))
            while row and sum(sizes[part] for part in row) > room:
                row.pop(0)
    texts = ["".join([*row, text]) for row, text in zip(before, asked, strict=True)]
    return texts, sum(map(len, before)) / max(1, len(before))
