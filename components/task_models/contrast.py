"""Contrastive loss on the labelled texts of a batch.

Shapes: B rows of a batch, F features, X labels of a row (padding included).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from components.task_models.heads import precise


def label_overlap(targets: Tensor) -> tuple[Tensor, Tensor]:
    """Overlap of the labels of all pairs of rows: |A and B| / |A or B|, which is 1 or 0 for rows with one label.

    Args:
        targets: (B, X) label indices, padded with nan.

    Returns:
        (B, B) overlap, and (B, B) whether the pair counts: not a row with itself, and not two rows without labels.
    """
    # nan is not equal to itself.
    both = (targets[:, None, :, None] == targets[None, :, None, :]).sum((2, 3))
    count = (~targets.isnan()).sum(1)
    either = count[:, None] + count[None, :] - both
    others = ~torch.eye(len(targets), dtype=torch.bool, device=targets.device)
    return both / either.clamp(min=1), others & (either > 0)


def pair_loss(vectors: Tensor, targets: Tensor) -> Tensor:
    """(cosine similarity - label overlap)^2 over all pairs of a batch (SetFit; Reimers and Gurevych 2019).

    The mean over pairs with a common label and the mean over pairs without have the same weight, as in SetFit, which
    samples both equally often.

    Args:
        vectors: (B, F).
        targets: (B, X) label indices, padded with nan.
    """
    with torch.autocast(vectors.device.type, enabled=False):
        overlap, counts = label_overlap(targets)
        unit = F.normalize(precise(vectors), dim=1)
        errors = (unit @ unit.T - overlap).square()
        kinds = torch.stack([counts & (overlap > 0), counts & (overlap == 0)])
        sizes = kinds.sum((1, 2))
        means = (errors * kinds).sum((1, 2)) / sizes.clamp(min=1)
        return means.sum() / (sizes > 0).sum().clamp(min=1)
