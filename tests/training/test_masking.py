"""Masking: whole words, the published fractions, exact values on tiny rows."""

import numpy as np
import pytest

from components.tokenization.special import END, FIRST_ORDINARY, MASK, SPECIAL_PIECES, START
from components.training.pretraining.rows import Masking, inside_words

PLAY, ING, GROUND, A, THE, HASHES = range(5, 11)


ROW = np.array([[START, PLAY, ING, A, PLAY, GROUND, ING, END]])


WORDPIECE = [*SPECIAL_PIECES, "play", "##ing", "##ground", "a", "the", "##"]


@pytest.mark.parametrize(
    ("pieces", "inside"),
    [
        (["play", "##ing", "a", "##"], [False, True, False, False]),
        # "##" is ordinary text here, because another mark is more frequent in the vocabulary.
        (["Ġplay", "ing", "Ġa", "##", "##a", "Ġ"], [False, True, False, True, True, False]),
        (["▁play", "ing", "▁a", "▁"], [False, True, False, False]),
        (["play", "a", "the"], [False, False, False]),
    ],
)
def test_which_pieces_are_inside_a_word(pieces, inside):
    actual = inside_words([*SPECIAL_PIECES, *pieces])
    assert actual.dtype == bool
    assert actual[FIRST_ORDINARY:].tolist() == inside


def noise_of(masking: Masking, order: list[float], fate: float = 0.0, replacement: float = 0.0) -> np.ndarray:
    filling = [fate] * masking.predicted + [replacement] * masking.predicted
    return np.array([[*order, *filling]])


def test_whole_words_are_selected_in_random_order():
    masking = Masking(20, vocabulary=len(WORDPIECE), pieces=WORDPIECE)
    assert masking.predicted == 3
    row = np.array([[START, PLAY, ING, A, PLAY, GROUND, ING, END, *[THE] * 11, END]])
    order = [0.0] * 8 + [0.9] * 12
    for drawn, expected in (
        ({1: 0.1, 3: 0.2, 4: 0.3}, [1, 2, 3]),
        ({1: 0.2, 3: 0.3, 4: 0.1}, [4, 5, 6]),
        # The second word does not fit after the first, the third does.
        ({1: 0.1, 3: 0.3, 4: 0.2}, [1, 2, 3]),
    ):
        local = [drawn.get(place, value) for place, value in enumerate(order)]
        assert masking(row, noise_of(masking, local))[1].tolist() == [expected]


def test_a_word_is_split_only_if_whole_words_do_not_add_up():
    masking = Masking(20, vocabulary=len(WORDPIECE), pieces=WORDPIECE)
    row = np.array([[START, *[PLAY, ING] * 9, END]])
    for seed in range(20):
        noise = np.random.default_rng(seed).random((1, masking.samples))
        first, *rest = masking(row, noise)[1][0].tolist()
        # Three pieces from words of two: one whole word, and the first piece of another.
        assert sum(place % 2 for place in (first, *rest)) == 2


def test_special_pieces_are_predicted_only_without_others():
    for pieces in ((), WORDPIECE):
        masking = Masking(8, vocabulary=len(WORDPIECE), pieces=pieces)
        row = np.array([[START, END, END, A, END, END, END, END]])
        for seed in range(10):
            noise = np.random.default_rng(seed).random((1, masking.samples))
            assert masking(row, noise)[1].tolist() == [[3]]


def test_fractions_of_masked_replaced_and_kept_pieces():
    masking = Masking(8, vocabulary=len(WORDPIECE))
    order = [0, 0.9, 0.8, 0.1, 0.7, 0.6, 0.5, 0]
    for fate, replacement, shown in ((0.79, 0.0, MASK), (0.81, 0.0, PLAY), (0.89, 0.99, HASHES), (0.91, 0.0, A)):
        tokens, _, targets = masking(ROW, noise_of(masking, order, fate, replacement))
        assert (int(tokens[0, 3]), targets.tolist()) == (shown, [[A]])
        assert ROW[0, 3] == A
