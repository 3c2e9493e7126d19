"""Base class of ELMo and FLAIR: a forward and a backward language model that are trained together.

    loss = mean_t [-log p(w_{t+1} | w_1 .. w_t) - log p(w_{t-1} | w_t .. w_T)]

The backward model reads the reversed text. A hidden state is [forward; backward] at the same position of the text.

Shape suffixes: B batch rows, T positions, H width of one direction, N pairs of a state and its target.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from components.models.base import Carry, LanguageModel, Losses, at_columns, count_tensor
from components.tokenization.special import END


class BidirectionalModel(LanguageModel):
    """`losses` reads `tokens` and `targets` (B, T) of the text, and `backward_tokens` and `backward_targets` (B, T) of
    the reversed text. The carry is the forward model's state, then the backward model's."""

    carries_state = True

    @abstractmethod
    def predict_backward(self, tokens: Tensor) -> Tensor:
        """Logits (B, T, V) of the piece before each position, given this and all later ones; `tokens` (B, T) in reading
        order, without padding."""

    def joint_losses(self, forward: tuple[Tensor, Carry], backward: tuple[Tensor, Carry], targets_BT: Tensor) -> Losses:
        """Combine the directions' (summed loss in nats, state after the window) into the losses of one batch."""
        (loss_forward, carry_forward), (loss_backward, carry_backward) = forward, backward
        count = count_tensor(targets_BT.numel(), loss_forward)
        return Losses(
            loss=(loss_forward + loss_backward) / count,
            sums={
                "tokens": ((loss_forward + loss_backward).detach(), 2 * count),
                "forward": (loss_forward.detach(), count),
                "backward": (loss_backward.detach(), count),
            },
            carry=carry_forward + carry_backward,
        )

    def summary(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        # Between the special pieces at both ends: the forward state after the last piece, the backward one after the
        # first.
        ahead_BTH, back_BTH = hidden.chunk(2, dim=-1)
        rows = torch.arange(hidden.shape[0], device=hidden.device)
        return torch.cat([ahead_BTH[rows, lengths - 2], back_BTH[rows, torch.ones_like(lengths)]], dim=-1)

    def unit_states(self, hidden: Tensor, units: Tensor) -> Tensor:
        # Each direction after it has read the whole unit (Akbik et al. 2018, equation 6).
        ahead_BTH, back_BTH = hidden.chunk(2, dim=-1)
        return torch.cat([at_columns(ahead_BTH, units[..., 1]), at_columns(back_BTH, units[..., 0])], dim=-1)

    def special_tokens(self, pieces: list[int]) -> list[int]:
        # In pretraining every document is between two ENDs, in either reading direction.
        return [END, *pieces, END]
