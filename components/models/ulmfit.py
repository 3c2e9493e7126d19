"""ULMFiT's language model: the AWD-LSTM.

Merity, Keskar and Socher 2017 (Regularizing and Optimizing LSTM Language Models); Howard and Ruder 2018 (Universal
Language Model Fine-tuning for Text Classification):

    e_t = E[w_t]              h_t^l = LSTM_l(h_t^{l-1}, h_{t-1}^l)              p(w_{t+1}) = softmax(E h_t^L + b)

with dropout on rows of E, the input, the hidden-to-hidden weights, between layers, and the output. A backward model
reads the reversed text; the two are combined in an ensemble.

Shape suffixes: B batch rows, T time, D width of the embedding, H hidden width, N = T B, V vocabulary, L layers, S
width of static vectors.
"""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from pydantic import NonNegativeFloat, NonNegativeInt
from torch import Tensor, nn
from torch.nn import functional as F

from components.core.errors import ConfigError
from components.models.base import (
    Batch,
    Carry,
    LanguageModel,
    Losses,
    ModelConfig,
    ModelFamily,
    Rate,
    Size,
    Sum,
    at_columns,
    count_tensor,
    counted,
)
from components.models.layers.chunks import Texts, following, preceding, turn, turned
from components.models.layers.dropout import LockedDropout, RowDropout
from components.models.layers.lstm import LSTM
from components.models.layers.softmax import linear_cross_entropy, looked_up
from components.tokenization.special import END


class AWDLSTMConfig(ModelConfig):
    """Sizes and regularisation; names of the paper's code are in brackets.

    Attributes:
        direction: reading direction; a backward model predicts the previous piece.
        embedding: width of the embedding, and of the last layer (the softmax is tied).
        hidden: width of the layers below the last.
        layers: number of LSTM layers.
        static: width of co-occurrence vectors of the text that are not trained and are concatenated to the states of
        the
            embedding (Kim 2014, CNN-multichannel). The language model does not read them. 0: none.
        dropout_embedding: dropout rate of whole rows of the embedding (dropoute).
        dropout_input: dropout rate of the embedding's output (dropouti).
        dropout_weight: DropConnect rate of the hidden-to-hidden weights (wdrop).
        dropout_hidden: dropout rate between layers (dropouth).
        dropout_output: dropout rate of the last layer's output before the softmax (dropout); features of a text have
            none, as in fastai, where it is the rate of the classifier's first dropout layer.
        activation: AR, weight of the mean square of the output after dropout (alpha).
        slowness: TAR, weight of the mean square of the output's change from step to step (beta).
    """

    penalties = ("activation", "slowness")

    direction: Literal["forward", "backward"] = "forward"
    embedding: Size = 256
    hidden: Size = 512
    layers: Size = 2
    static: NonNegativeInt = 0
    dropout_embedding: Rate = 0.0
    dropout_input: Rate = 0.0
    dropout_weight: Rate = 0.0
    dropout_hidden: Rate = 0.0
    dropout_output: Rate = 0.0
    activation: NonNegativeFloat = 0.0
    slowness: NonNegativeFloat = 0.0


class AWDLSTM(LanguageModel):
    """Causal language model; `losses` reads `tokens` and `targets` (B, T) in reading direction."""

    config: AWDLSTMConfig
    static: Tensor | None
    carries_state = True
    piece_parameters = ("embedding", "bias", "static")

    def __init__(self, config: AWDLSTMConfig) -> None:
        super().__init__()
        self.config = config
        widths = [config.embedding, *[config.hidden] * (config.layers - 1), config.embedding]
        self.embedding = nn.Parameter(torch.empty(config.vocabulary, config.embedding))
        self.lstms = nn.ModuleList(
            LSTM(inputs, hidden, weight_drop=config.dropout_weight)
            for inputs, hidden in zip(widths[:-1], widths[1:], strict=True)
        )
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))
        static = torch.zeros(config.vocabulary, config.static) if config.static else None
        self.register_buffer("static", static)
        self.drop_rows = RowDropout(config.dropout_embedding)
        self.drop_input = LockedDropout(config.dropout_input)
        self.drop_hidden = LockedDropout(config.dropout_hidden)
        self.drop_output = LockedDropout(config.dropout_output)
        # The embedding is also the output layer. With std 0.1 its first logits are small compared with the bias (log
        # unigram frequencies), so the top layer does not saturate at the beginning of training.
        nn.init.normal_(self.embedding, std=0.1)

    @property
    def backward(self) -> bool:
        return self.config.direction == "backward"

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        outputs, carry = self._run(batch["tokens"].t(), carry)
        raw_TBD, dropped_TBD = outputs[-1], self.drop_output(outputs[-1])
        count = dropped_TBD.shape[0] * dropped_TBD.shape[1]
        total = linear_cross_entropy(
            dropped_TBD.flatten(0, 1), self.embedding, self.bias, batch["targets"].t().reshape(-1)
        )
        loss = total / count
        if self.training and self.config.activation:
            loss = loss + self.config.activation * dropped_TBD.float().square().mean()
        if self.training and self.config.slowness and len(raw_TBD) > 1:
            loss = loss + self.config.slowness * raw_TBD.float().diff(dim=0).square().mean()
        return Losses(loss, {"tokens": (total.detach(), count_tensor(count, total))}, carry)

    def hidden_states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        # Padding follows the last piece in reading direction, so it needs no mask.
        turned_BT = turned(lengths, tokens.shape[1]) if self.backward else None
        read_BT = tokens if turned_BT is None else tokens.gather(1, turned_BT)
        outputs, _ = self._run(read_BT.t(), (), self.texts(lengths))
        if self.static is not None:
            static_TBS = F.embedding(read_BT.t(), self.static).to(outputs[0].dtype)
            outputs[0] = torch.cat([outputs[0], static_TBS], dim=-1)
        states = [output.transpose(0, 1) for output in outputs]
        return states if turned_BT is None else [turn(state, turned_BT) for state in states]

    def text_loss(self, batch: Batch, hidden: Sequence[Tensor]) -> Sum:
        pairs = preceding if self.backward else following
        dropped_BTD = self.drop_output(hidden[-1].transpose(0, 1)).transpose(0, 1)
        states_ND, targets_N = pairs(dropped_BTD, batch["tokens"], batch["lengths"])
        return counted(linear_cross_entropy(states_ND, self.embedding, self.bias, targets_N), targets_N)

    def activation_penalty(self, hidden: Sequence[Tensor], lengths: Tensor) -> Tensor:
        # The dropout of the output belongs to the softmax; as in fastai, AR then has the same states as TAR.
        last_BTD = hidden[-1].float()
        inside_BT = torch.arange(last_BTD.shape[1], device=lengths.device) < lengths[:, None]
        penalty = self.config.activation * last_BTD[inside_BT].square().mean()
        if self.config.slowness and bool(inside_BT[:, 1:].any()):
            penalty = penalty + self.config.slowness * last_BTD.diff(dim=1)[inside_BT[:, 1:]].square().mean()
        return penalty

    def summary(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        return hidden[:, 0] if self.backward else super().summary(hidden, lengths)

    def unit_states(self, hidden: Tensor, units: Tensor) -> Tensor:
        # The piece of the unit that is read last.
        return at_columns(hidden, units[..., 0 if self.backward else 1])

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [[self.embedding], *(list(lstm.parameters()) for lstm in self.lstms)]

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        if self.backward:
            raise ConfigError("direction: a backward model predicts the piece before a text; use the forward one")
        outputs, carry = self._run(tokens.t(), carry)
        return F.linear(self.drop_output(outputs[-1]).transpose(0, 1).float(), self.embedding, self.bias), carry

    def piece_embedding(self) -> nn.Parameter:
        return self.embedding

    def static_vectors(self) -> Tensor | None:
        return self.static

    def special_tokens(self, pieces: list[int]) -> list[int]:
        # In pretraining every document follows an END, in either reading direction.
        return [*pieces, END] if self.backward else [END, *pieces]

    def _run(self, tokens_TB: Tensor, carry: Carry, texts: Texts | None = None) -> tuple[list[Tensor], Carry]:
        """Outputs (T, B, .) of the embedding and of every layer, the last one before dropout; and the state after."""
        x_TBD = looked_up(tokens_TB, self.embedding)
        x_TBD = self.drop_rows(tokens_TB, self.embedding, x_TBD)
        x_TBD = self.drop_input(x_TBD)
        outputs, states = [x_TBD], []
        for index, lstm in enumerate(self.lstms):
            x_TBD, state = lstm(x_TBD, carry[2 * index : 2 * index + 2], texts=texts)
            states += state
            if index + 1 < len(self.lstms):
                x_TBD = self.drop_hidden(x_TBD)
            outputs.append(x_TBD)
        return outputs, tuple(states)


def _size(hidden: int, *rates: float) -> dict[str, Any]:
    """Three layers with tied embeddings of 400; dropout of rows, input, weights, layers and output."""
    names = ("dropout_embedding", "dropout_input", "dropout_weight", "dropout_hidden", "dropout_output")
    noise = dict(zip(names, rates, strict=True))
    return {"embedding": 400, "hidden": hidden, "layers": 3, **noise, "activation": 2.0, "slowness": 1.0}


FAMILY = ModelFamily(
    name="ulmfit",
    config=AWDLSTMConfig,
    build=AWDLSTM,
    objective="causal",
    sampler="stream",
    tokenizers=("wordpiece", "word"),
    tiny={"embedding": 32, "hidden": 48, "layers": 2, "dropout_weight": 0.2, "dropout_output": 0.1},
    presets={
        # Merity et al. 2017, section 5, for WikiText-2 (33 million parameters); the Penn Treebank (24 million) has
        # dropout_input 0.4.
        "awd-lstm": _size(1150, 0.1, 0.65, 0.5, 0.3, 0.4),
        # Howard and Ruder 2018, section 4.1: pretrained on WikiText-103.
        "awd-lstm-wt103": _size(1150, 0.05, 0.4, 0.5, 0.3, 0.4),
        # The same with a width that is a multiple of 8, for bf16; the whole recipe is experiments/ulmfit.
        "ulmfit": _size(1152, 0.05, 0.4, 0.5, 0.3, 0.4),
        # fastai's defaults since 2018 and its published weights for WikiText-103, with lower dropout rates for a large
        # corpus.
        "awd-lstm-1152": _size(1152, 0.02, 0.25, 0.2, 0.15, 0.1),
    },
)
