"""Linear-chain conditional random field: joint scores of a sequence of tags.

Lafferty, McCallum and Pereira 2001; on top of a neural network as in Lample et al. 2016 (section 2.2):

    s(x, y) = a[y_1] + sum_t x[t, y_t] + sum_t A[y_{t-1}, y_t] + b[y_T]        p(y | x) = exp(s(x, y)) / Z(x)

Z is computed by the forward algorithm in the log domain, the best y by Viterbi, both for all rows at once. Sums of
exponentials are matrix products in float64, in which scores up to 700 nats below the best one do not underflow
(float32: 88).

Shape suffixes: B rows, T positions, C tags.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

#: Score of an illegal transition in decoding. It is finite, so that decoding finds the sequence with the fewest illegal
#: transitions if no sequence of this length is legal (such as an odd length with only the tags B and E).
ILLEGAL = -1e9
#: Tag at padding, after the last position of a row.
PADDING = -1


@dataclass(frozen=True)
class Legal:
    """Tags (C,) that may come first (`start`) and last (`end`), and whether j may follow i (`step` (C, C) [i, j])."""

    start: Tensor
    step: Tensor
    end: Tensor


def illegal_scores(legal: Legal) -> tuple[Tensor, Tensor, Tensor]:
    """Start (C,), transition (C, C) and end (C,) scores, float64: `ILLEGAL` if illegal, 0 otherwise."""

    def where(allowed: Tensor) -> Tensor:
        zeros = torch.zeros(allowed.shape, dtype=torch.float64, device=allowed.device)
        return zeros.masked_fill(~allowed, ILLEGAL)

    return where(legal.start), where(legal.step), where(legal.end)


@torch.no_grad()
def viterbi(emissions: Tensor, lengths: Tensor, *, start: Tensor, step: Tensor, end: Tensor) -> Tensor:
    """The tags with the highest score (Viterbi 1967).

    Args:
        emissions: (B, T, C) x, ignored after a row's length.
        lengths: (B,) int64, 1 or more.
        start, step, end: a (C,), A (C, C) and b (C,).

    Returns:
        (B, T) int64, `PADDING` after a row's length.
    """
    x_BTC = emissions.double()
    best_BC = start + x_BTC[:, 0]
    own_1C = torch.arange(len(start), device=x_BTC.device).unsqueeze(0)
    came_from: list[Tensor] = []
    for position in range(1, x_BTC.shape[1]):
        # [b, j, i]: from i to j. The maximum over the last dimension is the fastest.
        scores_BC, from_BC = (best_BC.unsqueeze(1) + step.t()).max(2)
        going_B1 = (position < lengths)[:, None]
        best_BC = torch.where(going_B1, scores_BC + x_BTC[:, position], best_BC)
        came_from.append(torch.where(going_B1, from_BC, own_1C))
    tag_B1 = (best_BC + end).argmax(1, keepdim=True)
    path = [tag_B1]
    for from_BC in reversed(came_from):
        tag_B1 = from_BC.gather(1, tag_B1)
        path.append(tag_B1)
    inside_BT = torch.arange(x_BTC.shape[1], device=x_BTC.device) < lengths[:, None]
    return torch.cat(path[::-1], 1).masked_fill(~inside_BT, PADDING)


class LinearChainCRF(nn.Module):
    """Learned transition scores A (C, C), start scores a (C,) and end scores b (C,).

    All scores are initialised with 0, so an untrained layer is a softmax over the tags at each position.

    Args:
        legal: transitions that decoding may use; None: all.
    """

    start_legal: Tensor
    step_legal: Tensor
    end_legal: Tensor

    def __init__(self, tags: int, *, legal: Legal | None = None) -> None:
        super().__init__()
        self.tags = tags
        self.start = nn.Parameter(torch.zeros(tags))
        self.transition = nn.Parameter(torch.zeros(tags, tags))
        self.end = nn.Parameter(torch.zeros(tags))
        every = torch.ones(tags, dtype=torch.bool)
        legal = legal or Legal(every, torch.ones(tags, tags, dtype=torch.bool), every.clone())
        # Not stored with the weights: derived from the tags' names.
        self.register_buffer("start_legal", legal.start, persistent=False)
        self.register_buffer("step_legal", legal.step, persistent=False)
        self.register_buffer("end_legal", legal.end, persistent=False)

    def log_likelihood(self, emissions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """log p(y | x) of every row.

        Args:
            emissions: (B, T, C) x, ignored after a row's length, but finite there.
            tags: (B, T) int64, ignored after a row's length.
            lengths: (B,) int64, 1 or more.

        Returns:
            (B,) float64.
        """
        return self.score(emissions, tags, lengths) - self.log_partition(emissions, lengths)

    def score(self, emissions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """s(x, y) of every row, (B,) float64; arguments as of `log_likelihood`."""
        start_C, step_CC, end_C = self.start.double(), self.transition.double(), self.end.double()
        inside_BT = torch.arange(tags.shape[1], device=tags.device) < lengths[:, None]
        tags = tags.masked_fill(~inside_BT, 0)
        chosen_BT = emissions.double().gather(2, tags.unsqueeze(2)).squeeze(2)
        steps_BT = step_CC[tags[:, :-1], tags[:, 1:]]
        last_B = tags.gather(1, (lengths - 1).unsqueeze(1)).squeeze(1)
        return (
            start_C[tags[:, 0]]
            + chosen_BT.masked_fill(~inside_BT, 0).sum(1)
            + steps_BT.masked_fill(~inside_BT[:, 1:], 0).sum(1)
            + end_C[last_B]
        )

    def log_partition(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """log Z(x), (B,) float64, over all sequences."""
        start_C, step_CC, end_C = self.start.double(), self.transition.double(), self.end.double()
        x_BTC = emissions.double()
        # The largest score is factored out, so that no exponential overflows.
        largest = step_CC.detach().amax()
        weights_CC = (step_CC - largest).exp()
        tiny = torch.finfo(torch.float64).tiny
        alpha_BC = start_C + x_BTC[:, 0]
        for position in range(1, x_BTC.shape[1]):
            best_B1 = alpha_BC.detach().amax(1, keepdim=True)
            sums_BC = (alpha_BC - best_B1).exp() @ weights_CC
            # If all sums underflow, the clamp makes the logarithm finite and the gradient zero.
            ahead_BC = sums_BC.clamp_min(tiny).log() + best_B1 + largest + x_BTC[:, position]
            alpha_BC = torch.where((position < lengths)[:, None], ahead_BC, alpha_BC)
        return (alpha_BC + end_C).logsumexp(1)

    def decode(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """The best legal tags, (B, T) int64, `PADDING` after a row's length; arguments as of `log_likelihood`."""
        start_C, step_CC, end_C = illegal_scores(Legal(self.start_legal, self.step_legal, self.end_legal))
        return viterbi(
            emissions, lengths, start=self.start + start_C, step=self.transition + step_CC, end=self.end + end_C
        )
