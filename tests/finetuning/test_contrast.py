"""The contrastive loss: exact values."""

import math

import pytest
import torch

from components.learners.ways.contrastive import label_overlap, pair_loss

NAN = float("nan")


def test_overlap_is_shared_labels_divided_by_all_labels():
    overlap, counts = label_overlap(torch.tensor([[0.0, 1.0], [1.0, NAN], [2.0, NAN], [NAN, NAN], [NAN, NAN]]))
    assert overlap[0].tolist()[1:] == [0.5, 0.0, 0.0, 0.0]
    # A row is not compared with itself, and two rows without labels are not compared.
    expected = ~torch.eye(5, dtype=torch.bool)
    expected[3, 4] = expected[4, 3] = False
    assert torch.equal(counts, expected)


def test_similar_and_dissimilar_pairs_have_the_same_weight():
    half = math.sqrt(0.5)
    vectors = torch.tensor([[2.0, 0.0], [0.0, 3.0], [half, half]])
    # Cosines: 0 (same label), sqrt(1/2) and sqrt(1/2) (different labels).
    actual = pair_loss(vectors, torch.tensor([[0.0], [0.0], [1.0]]))
    assert float(actual) == pytest.approx((1.0 + 0.5) / 2, rel=1e-6)
