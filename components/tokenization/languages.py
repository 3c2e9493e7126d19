"""Shares of the languages of a corpus in several languages."""

from __future__ import annotations

from collections.abc import Mapping


def repetitions(sizes: Mapping[str, int], exponent: float) -> dict[str, float]:
    """How often the text of each language is read while that of the largest language is read once.

    Languages are read with the probabilities p_i of Conneau and Lample (2019, section 3.1), with alpha = 0.7 as in
    multilingual BERT: p_i = n_i^alpha / sum_j n_j^alpha, so a language is repeated (max_j n_j / n_i)^(1 - alpha) times.

    Args:
        sizes: language -> n_i, in tokens or bytes.
        exponent: alpha; 1: as in the text, 0: all languages equally.
    """
    largest = max(sizes.values())
    return {language: (largest / size) ** (1 - exponent) for language, size in sizes.items() if size}
