"""ROUGE-L by hand."""

from __future__ import annotations

import pytest

from components.scoring.rouge import common_subsequence, rouge_l


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("a b c", "a b c", 3),
        ("a b c", "c b a", 1),
        ("a x b y c", "a b c", 3),
        ("a b", "c d", 0),
        ("", "a", 0),
        ("a a", "a", 1),
    ],
)
def test_the_longest_common_subsequence(first: str, second: str, expected: int) -> None:
    assert common_subsequence(first.split(), second.split()) == expected
    assert common_subsequence(second.split(), first.split()) == expected


def test_the_examples_of_the_paper() -> None:
    # Lin 2004, section 3.1: recall 3/4 and 2/4 of references and candidates with four words.
    reference = ["police", "killed", "the", "gunman"]
    assert rouge_l(["police", "kill", "the", "gunman"], reference) == 0.75
    assert rouge_l(["the", "gunman", "kill", "police"], reference) == 0.5
    assert rouge_l(["the", "gunman", "police", "killed"], reference) == 0.5
    assert rouge_l(["police"], reference) == pytest.approx(2 * 1 * 0.25 / 1.25)
    assert rouge_l([], reference) == rouge_l(["other"], reference) == 0
