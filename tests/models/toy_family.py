"""A family outside of all tables, for `test_new_family`: each state combines a piece with the mean of the text so far.

    x_t = E[w_t]        h_t = tanh(W [x_t; mean(x_1 .. x_t)] + b)        p(w_{t+1}) = softmax(E h_t + c)

Shape suffixes: B batch rows, T time, D width.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.base import Batch, Carry, LanguageModel, Losses, ModelConfig, ModelFamily, last_states
from components.models.layers.linear import Linear
from components.tokenization.special import END


class ToyConfig(ModelConfig):
    """Sizes."""

    width: int = 64


class Toy(LanguageModel):
    """Causal language model without a carry; `losses` reads `tokens` and `targets` (B, T)."""

    config: ToyConfig
    piece_parameters = ("embedding", "bias")

    def __init__(self, config: ToyConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.mix = Linear(2 * config.width, config.width)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))
        nn.init.normal_(self.embedding, std=0.1)

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        states_BTD, targets_BT = self._layers(batch["tokens"])[-1], batch["targets"]
        logits_BTV = F.linear(states_BTD.float(), self.embedding.float(), self.bias.float())
        total = F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), reduction="sum")
        count = torch.tensor(targets_BT.numel(), device=total.device)
        return Losses(total / count, {"tokens": (total.detach(), count)})

    def hidden_states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        return self._layers(tokens)

    def summary(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        return last_states(hidden, lengths)

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [[self.embedding], list(self.mix.parameters())]

    def special_tokens(self, pieces: list[int]) -> list[int]:
        return [END, *pieces]

    def piece_embedding(self) -> nn.Parameter:
        return self.embedding

    def _layers(self, tokens_BT: Tensor) -> list[Tensor]:
        x_BTD = self.embedding[tokens_BT]
        count_T1 = torch.arange(1, x_BTD.shape[1] + 1, device=x_BTD.device).unsqueeze(1)
        mean_BTD = (x_BTD.float().cumsum(1) / count_T1).to(x_BTD.dtype)
        return [x_BTD, torch.tanh(self.mix(torch.cat([x_BTD, mean_BTD], dim=-1)))]


FAMILY = ModelFamily(
    name="toy",
    config=ToyConfig,
    build=Toy,
    objective="causal",
    sampler="stream",
    tokenizers=("wordpiece",),
    tiny={"width": 32},
)
