"""Arithmetic problems whose answers are checked exactly (Brown et al. 2020, section 3.9.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from components.training.rng import counter_rng


@dataclass(frozen=True)
class Problem:
    """A question and its answer.

    Attributes:
        operation: name of the kind of problem.
        question: such as `What is 48 plus 76?`.
        answer: the number.
    """

    operation: str
    question: str
    answer: int


def _sum(digits: int) -> Callable[[np.random.Generator], tuple[str, int]]:
    def make(rng: np.random.Generator) -> tuple[str, int]:
        a, b = rng.integers(0, 10**digits, 2).tolist()
        return f"What is {a} plus {b}?", a + b

    return make


def _difference(digits: int) -> Callable[[np.random.Generator], tuple[str, int]]:
    def make(rng: np.random.Generator) -> tuple[str, int]:
        a, b = rng.integers(0, 10**digits, 2).tolist()
        return f"What is {a} minus {b}?", a - b

    return make


def _product(rng: np.random.Generator) -> tuple[str, int]:
    a, b = rng.integers(0, 100, 2).tolist()
    return f"What is {a} times {b}?", a * b


def _composite(rng: np.random.Generator) -> tuple[str, int]:
    a, b, c = rng.integers(0, 10, 3).tolist()
    first, second = rng.integers(0, 3, 2).tolist()

    def applied(operation: int, x: int, y: int) -> int:
        return (x + y, x - y, x * y)[operation]

    return f"What is {a}{'+-*'[first]}({b}{'+-*'[second]}{c})?", applied(first, a, applied(second, b, c))


#: Name -> (random numbers -> question and answer). Operands are uniform; differences may be negative.
OPERATIONS: Final[Mapping[str, Callable[[np.random.Generator], tuple[str, int]]]] = {
    "1 digit, plus": _sum(1),
    "2 digits, plus": _sum(2),
    "2 digits, minus": _difference(2),
    "3 digits, plus": _sum(3),
    "3 digits, minus": _difference(3),
    "2 digits, times": _product,
    "1 digit, composite": _composite,
}


def asked_and_shown(operation: str, *, rows: int, shots: int, seed: int) -> tuple[list[Problem], list[Problem]]:
    """Different problems to ask, as many as there are up to `rows`, and demonstrations that are none of them.

    The demonstrations come first, so that there are some even where an operation has few problems.
    """
    found: dict[str, Problem] = {}
    for number in range(20 * (rows + shots)):
        question, answer = OPERATIONS[operation](counter_rng(seed, "arithmetic", operation, number))
        found.setdefault(question, Problem(operation, question, answer))
        if len(found) == rows + shots:
            break
    different = list(found.values())
    return different[shots:], different[:shots]
