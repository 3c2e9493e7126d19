"""Bidirectional attention flow for extractive question answering.

Seo, Kembhavi, Farhadi and Hajishirzi 2017 (Bidirectional Attention Flow for Machine Comprehension), section 2, with the
states of an encoder as the vectors of the pieces:

    H = biLSTM(context),  U = biLSTM(question)               the same biLSTM, each text on its own
    S_tj = w [h_t; u_j; h_t * u_j]
    u'_t = sum_j softmax_j(S_tj) u_j                         context to question
    h' = sum_t softmax_t(max_j S_tj) h_t                     question to context, the same at all t
    G = [h; u'; h * u'; h * h']                              M = biLSTM(biLSTM(G)),  M_2 = biLSTM(M)
    start = w_1 [G; M]                                       end = w_2 [G; M_2]

Unit 0, which stands for the whole sequence and for no answer, is part of the context. Encoders without attention relate
question and context through their state only; here every piece of the context sees every piece of the question.

Shapes: S sequences, U units (unit 0, the question, the context), F features, H width of a biLSTM's output.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from components.models.base import Batch
from components.settings.finetune import FinetuneSettings
from components.task_models.pooling import mask
from components.task_models.span_head import NEVER, Answering
from components.task_models.taggers import BiLSTM


class AttentionFlow(Answering):
    """Scores of starts and ends; `NEVER` at the units of the question.

    Args:
        features: F.
        settings: `answering_hidden`, and those of `Answering` (without a hidden layer of the head).
    """

    def __init__(self, features: int, settings: FinetuneSettings) -> None:
        super().__init__(features, settings.model_copy(update={"head_hidden": 0}))
        hidden = settings.answering_hidden
        self.lstm = BiLSTM(features, hidden)
        self.similarity = nn.Linear(6 * hidden, 1, bias=False)
        self.modeling = nn.ModuleList([BiLSTM(8 * hidden, hidden), BiLSTM(2 * hidden, hidden)])
        self.ending = BiLSTM(2 * hidden, hidden)
        self.output = nn.Linear(10 * hidden, 1)
        self.end = nn.Linear(10 * hidden, 1)

    def of_batch(self, features: Tensor, batch: Batch) -> Tensor:
        """(S, U, F) -> scores (S, U, 2), 0 at padding."""
        lengths = batch["unit_lengths"]
        inside_SU = mask(lengths, features.shape[1])
        question_SU = question_units(batch["offsets"], lengths)
        x_SUF = self.dropout(self.norm(features)).masked_fill(~inside_SU[..., None], 0)
        context_SU = inside_SU & ~question_SU
        own_SUH, context_lengths, places_SU = self._read(x_SUF, context_SU)
        other_SUH, question_lengths, _ = self._read(x_SUF, question_SU)
        flow_SUG = self._attend(own_SUH, context_lengths, other_SUH, question_lengths)
        modeled_SUH = self.dropout(flow_SUG)
        for layer in self.modeling:
            modeled_SUH = layer(modeled_SUH, context_lengths)
        ended_SUH = self.ending(self.dropout(modeled_SUH), context_lengths)
        scores_SU2 = torch.cat(
            [
                self.output(self.dropout(torch.cat([flow_SUG, modeled_SUH.to(flow_SUG.dtype)], dim=-1))),
                self.end(self.dropout(torch.cat([flow_SUG, ended_SUH.to(flow_SUG.dtype)], dim=-1))),
            ],
            dim=-1,
        ).float()
        # Back from the places among the context's units to those of all units.
        back_SU2 = torch.zeros_like(scores_SU2).scatter(1, places_SU[..., None].expand_as(scores_SU2), scores_SU2)
        return back_SU2.masked_fill(question_SU[..., None], NEVER).masked_fill(~inside_SU[..., None], 0)

    def _read(self, x_SUF: Tensor, chosen_SU: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The states (S, U, H) of the chosen units by the biLSTM, moved to the front in their order and 0 behind; their
        numbers (S,), at least 1; and the places (S, U) that they come from."""
        places_SU = (~chosen_SU).int().argsort(dim=1, stable=True)
        lengths_S = chosen_SU.sum(1).clamp(min=1)
        front_SU = mask(lengths_S, chosen_SU.shape[1])
        moved_SUF = x_SUF.gather(1, places_SU[..., None].expand_as(x_SUF)).masked_fill(~front_SU[..., None], 0)
        states_SUH = self.lstm(moved_SUF, lengths_S).float().masked_fill(~front_SU[..., None], 0)
        return states_SUH, lengths_S, places_SU

    def _attend(self, own_SUH: Tensor, own_S: Tensor, other_SJH: Tensor, other_S: Tensor) -> Tensor:
        """G (S, U, 4 H), from the states of context and question and their numbers."""
        first, second, both = self.similarity.weight.float().chunk(3, dim=1)
        scores_SUJ = (own_SUH * both) @ other_SJH.transpose(1, 2)
        scores_SUJ = scores_SUJ + (own_SUH @ first.t()) + (other_SJH @ second.t()).transpose(1, 2)
        scores_SUJ = scores_SUJ.float().masked_fill(~mask(other_S, other_SJH.shape[1])[:, None], float("-inf"))
        seen_SUH = scores_SUJ.softmax(-1) @ other_SJH
        inside_SU = mask(own_S, own_SUH.shape[1])
        weights_SU = scores_SUJ.amax(-1).masked_fill(~inside_SU, float("-inf")).softmax(-1)
        summary_S1H = weights_SU[:, None] @ own_SUH
        return torch.cat([own_SUH, seen_SUH, own_SUH * seen_SUH, own_SUH * summary_S1H], dim=-1)


def question_units(offsets: Tensor, lengths: Tensor) -> Tensor:
    """(S, U) whether a unit belongs to the question, which has no offsets in the context: (0, 0) as unit 0.

    Args:
        offsets: (S, U, 2).
        lengths: (S,) number of units.
    """
    found = (offsets[..., 1] == 0) & mask(lengths, offsets.shape[1])
    found[:, 0] = False
    return found
