"""Nearest neighbours in a table with known geometry."""

from __future__ import annotations

import pytest
import torch

from components.core.errors import DataError
from components.serving.generation import nearest_words
from components.tokenization.special import SPECIAL_PIECES

#: First axis: royal; second axis: male and female. The lengths differ, since only directions matter.
GRID = {
    "king": (1.0, 1.0, 0),
    "queen": (2.0, -2.0, 0),
    "man": (0.0, 3.0, 0.1),
    "woman": (0.0, -1.0, 0.1),
    "tree": (0, 0, 5.0),
}
PIECES = list(GRID)
TABLE = torch.tensor(list(GRID.values()))


def test_neighbours_by_cosine() -> None:
    found = nearest_words(TABLE, PIECES, torch.tensor([0.0, 10.0, 0.0]), count=3)
    assert [piece for piece, _ in found] == ["man", "king", "tree"]
    assert [cosine for _, cosine in found] == pytest.approx([0.99944, 2**-0.5, 0], abs=1e-4)
    without = nearest_words(TABLE, PIECES, TABLE[0], count=10, without=["king", "other"])
    assert without[0][0] == "man" and len(without) == 4


def test_special_pieces_are_excluded() -> None:
    table = torch.cat([TABLE[:1].expand(5, -1), TABLE])
    found = nearest_words(table, [*SPECIAL_PIECES, *PIECES], TABLE[0], count=20)
    assert found[0][0] == "king" and len(found) == 5


def test_a_zero_query_and_pieces_of_another_table() -> None:
    with pytest.raises(DataError, match="the query is a zero vector"):
        nearest_words(TABLE, PIECES, torch.zeros(3))
    with pytest.raises(DataError, match="5 vectors for 4 pieces; use those of the same model"):
        nearest_words(TABLE, PIECES[:4], TABLE[0])
