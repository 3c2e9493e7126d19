"""Neighbours and analogies on tables whose geometry is known."""

from __future__ import annotations

import pytest
import torch

from components.errors import DataError
from components.inference.neighbours import analogy, nearest_words
from components.tokenization.special import SPECIAL_PIECES

#: Two axes: royal, and man against woman. Lengths differ: only directions count.
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
    without = nearest_words(TABLE, PIECES, TABLE[0], count=10, without=["king", "nobody"])
    assert without[0][0] == "man" and len(without) == 4


def test_special_pieces_are_nobodys_neighbours() -> None:
    table = torch.cat([TABLE[:1].expand(5, -1), TABLE])
    found = nearest_words(table, [*SPECIAL_PIECES, *PIECES], TABLE[0], count=20)
    assert found[0][0] == "king" and len(found) == 5


def test_king_is_to_man_as_queen_to_woman() -> None:
    vectors = torch.stack([TABLE[PIECES.index(word)] for word in ("man", "king", "woman")])
    (best, score), *others = analogy(TABLE, PIECES, vectors, ("man", "king", "woman"))
    assert best == "queen" and score > 0.9
    assert {word for word, _ in others} == {"tree"}


def test_3cosadd_on_a_drawn_table() -> None:
    torch.manual_seed(0)
    table, pieces = torch.randn(50, 6), [str(number) for number in range(50)]
    unit = table / table.norm(dim=1, keepdim=True)
    scores = unit @ unit[7] - unit @ unit[3] + unit @ unit[11]
    expected = [str(place) for place in scores.argsort(descending=True).tolist() if place not in (3, 7, 11)]
    found = analogy(table, pieces, table[[3, 7, 11]], ("3", "7", "11"), count=47)
    assert [word for word, _ in found] == expected


def test_what_has_no_direction() -> None:
    with pytest.raises(DataError, match="a zero vector points nowhere"):
        nearest_words(TABLE, PIECES, torch.zeros(3))
    with pytest.raises(DataError, match="'man' has a zero vector: it says nothing"):
        analogy(TABLE, PIECES, torch.cat([torch.zeros(1, 3), TABLE[:2]]), ("man", "king", "woman"))
    with pytest.raises(DataError, match="5 vectors for 4 pieces; take both from the same model"):
        nearest_words(TABLE, PIECES[:4], TABLE[0])
