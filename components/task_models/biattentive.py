"""The biattentive classification network, for one text and for pairs.

McCann, Bradbury, Xiong and Socher 2017 (Learned in Translation: Contextualized Word Vectors), section 5, with w the
vectors of the pieces, [GloVe(w); CoVe(w)] over the family cove:

    X = biLSTM(f(w^x)),  Y = biLSTM(f(w^y))        f a linear layer with ReLU, the same for both
    A = X Y^T                                      C_y = softmax(A) Y       C_x = softmax(A^T) X
    X|y = biLSTM([X; X - C_y; X * C_y])            Y|x = biLSTM([Y; Y - C_x; Y * C_x])
    x_pool = [max(X|y); mean(X|y); min(X|y); (softmax(X|y v + d))^T X|y], likewise y_pool
    three batch-normalised maxout layers on [x_pool; y_pool]

A single text is both x and y. For a symmetric task both texts share the second biLSTM and v, and the task's combination
of two texts (`components.task_models.inputs.likened`) replaces the concatenation.

Shapes: S sequences, U pieces, F features of a piece, H width of a biLSTM's output, P pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from components.task_models.norms import BatchNorm
from components.task_models.pooling import mask, masked_max, masked_mean
from components.task_models.taggers import BiLSTM

#: Number of linear functions of which a maxout layer takes the maximum.
PIECES = 4
#: Widths of the maxout layers relative to the width of their first input.
REDUCTIONS = (4, 8)


class Maxout(nn.Linear):
    """The maximum of several linear functions for each output (Goodfellow et al. 2013).

    Args:
        inputs: F.
        outputs: G.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs * PIECES)

    def forward(self, x: Tensor) -> Tensor:
        """(S, F) -> (S, G)."""
        found: Tensor = super().forward(x).unflatten(-1, (-1, PIECES)).amax(-1)
        return found


class Integrator(nn.Module):
    """From a text's states and the other text's summary at each of them to one vector.

    Args:
        states: H of the states.
        hidden: width of each direction of the biLSTM.
    """

    def __init__(self, states: int, hidden: int) -> None:
        super().__init__()
        self.lstm = BiLSTM(3 * states, hidden)
        self.scores = nn.Linear(2 * hidden, 1)

    def forward(self, own_SUH: Tensor, other_SUH: Tensor, lengths: Tensor) -> Tensor:
        """(S, 4 * 2 * hidden): maximum, mean, minimum and self-attentive mean."""
        inputs = torch.cat([own_SUH, own_SUH - other_SUH, own_SUH * other_SUH], dim=-1)
        x_SUH = self.lstm(inputs, lengths).float()
        inside_SU = mask(lengths, x_SUH.shape[1])
        weights_SU = self.scores(x_SUH).squeeze(-1).float().masked_fill(~inside_SU, float("-inf")).softmax(-1)
        pooled = torch.einsum("suh,su->sh", x_SUH.masked_fill(~inside_SU[..., None], 0), weights_SU)
        return torch.cat(
            [masked_max(x_SUH, lengths), masked_mean(x_SUH, lengths), -masked_max(-x_SUH, lengths), pooled], dim=1
        )


class Biattention(nn.Module):
    """The network up to the last maxout layer, which is the output layer of the head.

    Args:
        inputs: F.
        hidden: width of f and of each direction of the biLSTMs (paper: 300).
        dropout: rate at the inputs and before each maxout layer.
        pairs: whether sequences 2p and 2p + 1 are the two texts of row p; else each is a text.
        symmetric: whether both texts have the same second biLSTM, and the result is one vector per sequence.
    """

    def __init__(self, inputs: int, hidden: int, *, dropout: float, pairs: bool, symmetric: bool = False) -> None:
        super().__init__()
        self.pairs, self.symmetric = pairs, symmetric
        self.dropout = nn.Dropout(dropout)
        self.feed = nn.Linear(inputs, hidden)
        self.lstm = BiLSTM(hidden, hidden)
        self.integrators = nn.ModuleList(Integrator(2 * hidden, hidden) for _ in range(1 if symmetric else 2))
        pooled = 4 * 2 * hidden * len(self.integrators)
        widths = [pooled, *(max(4, pooled // part) for part in REDUCTIONS)]
        self.layers = nn.ModuleList(
            nn.Sequential(BatchNorm(before), nn.Dropout(dropout), Maxout(before, after))
            for before, after in zip(widths[:-1], widths[1:], strict=True)
        )
        self.norm = BatchNorm(widths[-1])
        self.width = widths[-1]

    def forward(self, x_SUF: Tensor, lengths: Tensor) -> Tensor:
        """(S, U, F), 0 at padding, and (S,) lengths -> (S, G); (P, G) for the pairs of a task that is not symmetric."""
        states_SUH = self.lstm(self.feed(self.dropout(x_SUF)).relu(), lengths).float()
        inside_SU = mask(lengths, states_SUH.shape[1])
        states_SUH = states_SUH.masked_fill(~inside_SU[..., None], 0)
        others = torch.arange(len(lengths), device=lengths.device)
        if self.pairs:
            others = others ^ 1
        scores_SUU = states_SUH @ states_SUH[others].transpose(1, 2)
        weights_SUU = scores_SUU.masked_fill(~inside_SU[others][:, None], float("-inf")).softmax(-1)
        summaries_SUH = weights_SUU @ states_SUH[others]
        if self.symmetric:
            vectors = self.integrators[0](states_SUH, summaries_SUH, lengths)
        else:
            steps = (slice(0, None, 2), slice(1, None, 2)) if self.pairs else (slice(None), slice(None))
            vectors = torch.cat(
                [
                    integrate(states_SUH[part], summaries_SUH[part], lengths[part])
                    for integrate, part in zip(self.integrators, steps, strict=True)
                ],
                dim=1,
            )
        for layer in self.layers:
            vectors = layer(vectors)
        found: Tensor = self.norm(vectors)
        return found
