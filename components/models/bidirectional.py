"""Base class of ELMo and FLAIR: a forward and a backward language model that are trained together.

    loss = mean_t [-log p(w_{t+1} | w_1 .. w_t) - log p(w_{t-1} | w_t .. w_T)]

The backward model reads the reversed text. A hidden state is [forward; backward] at the same position of the text. With
static word vectors, which the language models do not read, it is [vector of the word; forward; backward].

Shape suffixes: B batch rows, T positions, H width of one direction, S width of the static vectors.
"""

from abc import abstractmethod

import torch
from torch import Tensor
from torch.nn import functional as F

from components.models.base import Carry, LanguageModel, Losses, at_columns, count_tensor
from components.tokenization.special import END


class BidirectionalModel(LanguageModel):
    """`losses` reads `tokens` and `targets` (B, T) of the text, and `backward_tokens` and `backward_targets` (B, T) of
    the reversed text. The carry is the forward model's state, then the backward model's."""

    carries_state = True
    static: Tensor | None

    @abstractmethod
    def predict_backward(self, tokens: Tensor) -> Tensor:
        """Logits (B, T, V) of the piece before each position; `tokens` (B, T) in reading order, without padding."""

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

    def static_vectors(self) -> Tensor | None:
        return self.static

    def beside_static(self, rows_BT: Tensor, states: list[Tensor]) -> list[Tensor]:
        """Every layer's states with the rows of `static` in front of them; row -1 is the zero vector."""
        assert self.static is not None
        static_BTS = F.embedding(rows_BT.clamp(min=0), self.static).masked_fill(rows_BT.unsqueeze(-1) < 0, 0)
        return [torch.cat([static_BTS.to(state_BTD.dtype), state_BTD], dim=-1) for state_BTD in states]

    def _parts(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        width = 0 if self.static is None else self.static.shape[1]
        ahead_BTH, back_BTH = hidden[..., width:].chunk(2, dim=-1)
        return hidden[..., :width], ahead_BTH, back_BTH

    def summary(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        # The mean of the static vectors without the special pieces at both ends.
        static_BTS, ahead_BTH, back_BTH = self._parts(hidden)
        columns_T = torch.arange(hidden.shape[1], device=hidden.device)
        inside_BT1 = ((columns_T > 0) & (columns_T < lengths.unsqueeze(1) - 1)).unsqueeze(-1)
        mean_BS = (static_BTS * inside_BT1).sum(1) / (lengths - 2).clamp(min=1).unsqueeze(1)
        # Between the special pieces at both ends: the forward state after the last piece, the backward one after the
        # first.
        rows = torch.arange(hidden.shape[0], device=hidden.device)
        ends = (ahead_BTH[rows, lengths - 2], back_BTH[rows, torch.ones_like(lengths)])
        return torch.cat([mean_BS.to(hidden.dtype), *ends], dim=-1)

    def unit_states(self, hidden: Tensor, units: Tensor) -> Tensor:
        # Each direction after it has read the whole unit (Akbik et al. 2018, equation 6).
        static_BTS, ahead_BTH, back_BTH = self._parts(hidden)
        first, last = units[..., 0], units[..., 1]
        return torch.cat(
            [at_columns(static_BTS, first), at_columns(ahead_BTH, last), at_columns(back_BTH, first)], dim=-1
        )

    def special_tokens(self, pieces: list[int]) -> list[int]:
        # In pretraining every document is between two ENDs, in either reading direction.
        return [END, *pieces, END]
