"""GloVe: word vectors whose dot products approximate log co-occurrence counts.

Pennington, Socher and Manning 2014 (GloVe: Global Vectors for Word Representation), equations 8 and 9:

    J = sum_{ij} f(X_ij) (w_i . v_j + b_i + c_j - log X_ij)^2          f(x) = min(1, (x / x_max)^alpha)

X_ij is the number of times that j occurs in the context of i, weighted by 1 / distance. The sampler picks cells (i, j)
with probability proportional to f(X_ij), so the loss of a batch is an unweighted mean of squares, J / sum f. A word's
vector is w + v (section 4.2): with a symmetric X both tables learn the same, and their sum has less noise.

Shape suffixes: B batch rows, T cells per row, D width, V vocabulary.
"""

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.base import Batch, Carry, Losses, ModelConfig, ModelFamily, Size, count_tensor
from components.models.static import StaticVectors


class GloVeConfig(ModelConfig):
    """Settings, named as in the paper.

    Attributes:
        width: D.
        context: number of words on each side that are counted.
        x_max, alpha: count from which on the weight f is 1; exponent of f below it.
    """

    width: Size = 100
    context: Size = 10
    x_max: PositiveFloat = 100.0
    alpha: PositiveFloat = 0.75


class GloVe(StaticVectors):
    """Word and context tables with their biases; `losses` reads `tokens`, `contexts` (B, T; i and j of a cell) and
    `counts` (B, T; X_ij) of `CooccurrenceSampler`. `sums["tokens"]` is the squared error per cell, not a likelihood."""

    config: GloVeConfig
    piece_parameters = ("word", "context", "word_bias", "context_bias")

    def __init__(self, config: GloVeConfig) -> None:
        super().__init__()
        self.config = config
        self.word = nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.context = nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.word_bias = nn.Parameter(torch.empty(config.vocabulary))
        self.context_bias = nn.Parameter(torch.empty(config.vocabulary))
        # As the published code.
        for table in self.parameters():
            nn.init.uniform_(table, -0.5 / (config.width + 1), 0.5 / (config.width + 1))

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        tokens_BT, contexts_BT, counts_BT = batch["tokens"], batch["contexts"], batch["counts"]
        products_BTD = F.embedding(tokens_BT, self.word).float() * F.embedding(contexts_BT, self.context).float()
        biases_BT = self.word_bias[tokens_BT].float() + self.context_bias[contexts_BT].float()
        errors_BT = products_BTD.sum(-1) + biases_BT - counts_BT.log()
        if not self.training:
            # Held-out text is smaller, which lowers all log X by about a constant: subtracting the mean removes it.
            errors_BT = errors_BT - errors_BT.mean()
        total = errors_BT.square().sum()
        cells = count_tensor(tokens_BT.numel(), total)
        return Losses(total / cells, {"tokens": (total.detach(), cells)})

    def embed(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.word) + F.embedding(tokens, self.context)

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [[self.word, self.context]]


FAMILY = ModelFamily(
    name="glove",
    config=GloVeConfig,
    build=GloVe,
    objective="static",
    sampler="cooccurrences",
    tokenizers=("word", "wordpiece"),
    tiny={"width": 32, "context": 2},
    # Section 4.2 and the published vectors: a context of ten words on each side.
    presets={f"glove-{width}": {"width": width} for width in (50, 100, 200, 300)},
)
