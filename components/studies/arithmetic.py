"""Arithmetic problems whose answers are checked exactly (Brown et al. 2020, section 3.9.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np

from components.training.rng import counter_rng


class Problem(NamedTuple):
    """A question, such as `What is 48 plus 76?`, and its answer."""

    question: str
    answer: int


SIGNS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
}


def _binary(word: str, sign: str, digits: int) -> Callable[[np.random.Generator], Problem]:
    def make(rng: np.random.Generator) -> Problem:
        a, b = rng.integers(0, 10**digits, 2).tolist()
        return Problem(f"What is {a} {word} {b}?", SIGNS[sign](a, b))

    return make


def _composite(rng: np.random.Generator) -> Problem:
    a, b, c = rng.integers(0, 10, 3).tolist()
    first, second = (list(SIGNS)[number] for number in rng.integers(0, 3, 2))
    return Problem(f"What is {a}{first}({b}{second}{c})?", SIGNS[first](a, SIGNS[second](b, c)))


#: Name -> (random numbers -> problem). Operands are uniform; differences may be negative.
OPERATIONS: Final[Mapping[str, Callable[[np.random.Generator], Problem]]] = {
    "1 digit, plus": _binary("plus", "+", 1),
    "2 digits, plus": _binary("plus", "+", 2),
    "2 digits, minus": _binary("minus", "-", 2),
    "3 digits, plus": _binary("plus", "+", 3),
    "3 digits, minus": _binary("minus", "-", 3),
    "2 digits, times": _binary("times", "*", 2),
    "1 digit, composite": _composite,
}


def asked_and_shown(operation: str, *, rows: int, shots: int, seed: int) -> tuple[list[Problem], list[Problem]]:
    """Different problems to ask, as many as there are up to `rows`, and demonstrations that are none of them.

    The demonstrations come first, so that there are some even where an operation has few problems.
    """
    different: dict[str, Problem] = {}
    for number in range(20 * (rows + shots)):
        problem = OPERATIONS[operation](counter_rng(seed, "arithmetic", operation, number))
        different.setdefault(problem.question, problem)
        if len(different) == rows + shots:
            break
    problems = list(different.values())
    return problems[shots:], problems[:shots]
