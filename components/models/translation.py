"""Base class of translation models, CoVe and the Transformer: the objective and greedy decoding.

    loss = -sum_t log softmax(W_out h_t + b)[w^z_t]        h_t from the source and w^z_1 .. w^z_{t-1}

Shape suffixes: B batch rows, T source positions, U target positions, H width of the decoder's outputs, N targets, V
vocabulary.
"""

from abc import abstractmethod

import torch
from torch import Tensor, nn

from components.models.base import Batch, Carry, LanguageModel, Losses, count_tensor
from components.models.layers.softmax import linear_cross_entropy
from components.tokenization.special import END, START

#: What the decoder reads of the sources.
Memory = tuple[Tensor, ...]
#: What the decoder keeps of the previous words; empty at the first word.
State = tuple[Tensor, ...]


class TranslationModel(LanguageModel):
    """A translation model; tasks use its encoder only.

    `losses` reads `tokens` (B, T) and `lengths` (B,) of the sources, `decoder_tokens` (B, U), `targets` and `places`
    (N,), `whole` (B, 2): see `components.training.pretraining.translation`. It has no carry."""

    bias: nn.Parameter

    @abstractmethod
    def read(self, tokens: Tensor, lengths: Tensor) -> Memory:
        """Encode sources (B, T), which end with END, of lengths (B,)."""

    @abstractmethod
    def decode(self, tokens: Tensor, memory: Memory, state: State = ()) -> tuple[Tensor, State]:
        """The outputs (B, U, H) from which the words after `tokens` (B, U) are predicted, and the state after them."""

    @abstractmethod
    def output_table(self) -> nn.Parameter:
        """W_out, (V, H)."""

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        outputs_BUH, _ = self.decode(batch["decoder_tokens"], self.read(batch["tokens"], batch["lengths"]))
        # `places` are indices in the global batch. Every row has a target at its first position, so the first entry is
        # the offset of this worker's rows.
        indices_N = batch["places"] - batch["places"][0]
        picked_NH = outputs_BUH.flatten(0, 1).index_select(0, indices_N)
        total = linear_cross_entropy(picked_NH, self.output_table(), self.bias, batch["targets"])
        # Workers have different numbers of targets. The quotient of the numbers of rows is the number of workers, so
        # the mean of the workers' losses is the mean over all targets of the global batch.
        targets, rows = batch["whole"][0]
        return Losses(
            loss=total * (rows / len(batch["tokens"])) / targets,
            sums={"tokens": (total.detach(), count_tensor(len(indices_N), total))},
        )

    def special_tokens(self, pieces: list[int]) -> list[int]:
        # Sources end with END.
        return [*pieces, END]

    @torch.no_grad()
    def translate(self, tokens: Tensor, lengths: Tensor, *, most: int = 64) -> Tensor:
        """Translate (B, T) sources, as `special_tokens` returns them, padded, of lengths (B,), by greedy decoding until
        every row has ended: (B, U) int64, U <= `most` and the model's positions; filled with END after a row's last
        word."""
        memory, table_VH = self.read(tokens, lengths), self.output_table()
        state: State = ()
        word_B = torch.full((len(tokens),), START, device=tokens.device)
        ended_B = torch.zeros_like(word_B, dtype=torch.bool)
        words: list[Tensor] = []
        while len(words) < min(most, self.max_tokens or most) and not ended_B.all():
            outputs_B1H, state = self.decode(word_B.unsqueeze(1), memory, state)
            best_B = torch.addmm(self.bias, outputs_B1H[:, 0].to(table_VH.dtype), table_VH.t()).argmax(-1)
            word_B = best_B.masked_fill(ended_B, END)
            ended_B = ended_B | (word_B == END)
            words.append(word_B)
        return torch.stack(words, dim=1)
