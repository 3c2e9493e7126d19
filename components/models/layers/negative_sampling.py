"""Skip-gram and CBOW with negative sampling, as batched matrix products.

Mikolov et al. 2013b (Distributed Representations of Words and Phrases and their Compositionality), equation 4:

    log s(o_c . i_w) + k E_{n ~ P} [log s(-o_n . i_w)]      for a centre w and each word c of its context, s the sigmoid

The expectation is estimated by S noise words that all pairs of a row share, so the noise part is one matrix product per
row (Ji, Satish, Li and Dubey 2016, Parallelizing Word2Vec in Shared and Distributed Memory, section 3; also
BlazingText, Gupta and Khare 2017). The true pairs are a band of the product of all words of a row. The expected
objective is unchanged; each noise word has the weight k / S.

Shape suffixes: B batch rows, T words per row, S noise words per row, U = T + S, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def contexts(left_BT: Tensor, right_BT: Tensor) -> Tensor:
    """(B, T, T) bool: whether word j is in the context of centre i, which has `left` and `right` words."""
    positions_T = torch.arange(left_BT.shape[1], device=left_BT.device)
    distance_TT = positions_T - positions_T.unsqueeze(1)
    return (distance_TT <= right_BT.unsqueeze(2)) & (-distance_TT <= left_BT.unsqueeze(2)) & (distance_TT != 0)


def skip_gram(in_BTD: Tensor, out_BUD: Tensor, left_BT: Tensor, right_BT: Tensor, *, negatives: int) -> Tensor:
    """Sum over all pairs of -log s(o_c . i_w) - k mean_n log s(-o_n . i_w), in nats, float32.

    Args:
        in_BTD: input vectors of the centres.
        out_BUD: output vectors of the row's words, then of its noise words.
        left_BT, right_BT: number of context words on each side of each centre.
        negatives: k.
    """
    words = in_BTD.shape[1]
    scores_BTU = torch.bmm(in_BTD, out_BUD.transpose(1, 2)).float()
    true = F.softplus(-scores_BTU[..., :words]) * contexts(left_BT, right_BT)
    noise_BT = F.softplus(scores_BTU[..., words:]).mean(-1) * (left_BT + right_BT)
    return true.sum() + negatives * noise_BT.sum()


def cbow(in_BTD: Tensor, out_BUD: Tensor, left_BT: Tensor, right_BT: Tensor, *, negatives: int) -> Tensor:
    """The same sum with one pair per centre: i is the mean of the context's input vectors, c the centre."""
    words = in_BTD.shape[1]
    many_BT1 = (left_BT + right_BT).unsqueeze(-1)
    weights_BTT = contexts(left_BT, right_BT) / many_BT1.clamp_min(1)
    mean_BTD = torch.bmm(weights_BTT.to(in_BTD.dtype), in_BTD)
    true_BT = F.softplus(-(mean_BTD * out_BUD[:, :words]).float().sum(-1))
    noise_BT = F.softplus(torch.bmm(mean_BTD, out_BUD[:, words:].transpose(1, 2)).float()).mean(-1)
    return ((true_BT + negatives * noise_BT) * (many_BT1.squeeze(-1) > 0)).sum()
