"""BERT: a Transformer encoder that sees both sides, trained to fill in masked pieces.

Devlin, Chang, Lee and Toutanova 2019 (BERT: Pre-training of Deep Bidirectional Transformers):

    x = LN(E_token + E_position + E_segment)      per block:  x = LN(x + attention(x));  x = LN(x + W_2 gelu(W_1 x))
    p(piece) = softmax(E_token LN(gelu(W x)) + b) at the masked positions      p(random next) from tanh(W x_first)

The output layer is computed only where a piece is masked: 15% of the positions.

Shape suffixes: B batch rows, T positions, D width, M masked positions a row, N = B M, V vocabulary.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.base import Batch, Carry, LanguageModel, Losses, ModelConfig, ModelFamily
from components.models.layers.attention import SelfAttention
from components.models.layers.dropout import Dropout
from components.models.layers.linear import Linear
from components.models.layers.precision import compute_dtype
from components.models.layers.softmax import linear_cross_entropy
from components.models.layers.vocabulary import remapped
from components.tokenization.special import END, START

Size = Annotated[int, Field(gt=0)]
Rate = Annotated[float, Field(ge=0, lt=1)]


class BERTConfig(ModelConfig):
    """Sizes and dropouts; the feed-forward layer is 4 times as wide as the model, a head 64 wide unless `heads` says.

    Attributes:
        width: D.
        layers: number of blocks.
        heads: attention heads; 0 for D / 64.
        positions: longest text in pieces, special ones included.
        dropout: of the embeddings' sum and of what each sub-layer adds.
        dropout_attention: of the attention weights.
    """

    width: Size = 256
    layers: Size = 4
    heads: Annotated[int, Field(ge=0)] = 0
    positions: Size = 512
    dropout: Rate = 0.1
    dropout_attention: Rate = 0.1

    @model_validator(mode="after")
    def _heads_divide(self) -> BERTConfig:
        if self.width % self.head_count:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.head_count}")
        return self

    @property
    def head_count(self) -> int:
        return self.heads or max(1, self.width // 64)


class Block(nn.Module):
    """One post-norm encoder block."""

    def __init__(self, config: BERTConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config.width, config.head_count, dropout=config.dropout_attention)
        self.attention_norm = nn.LayerNorm(config.width, eps=1e-12)
        self.expand = Linear(config.width, 4 * config.width)
        self.contract = Linear(4 * config.width, config.width)
        self.norm = nn.LayerNorm(config.width, eps=1e-12)
        self.drop = Dropout(config.dropout)

    def forward(self, x_BTD: Tensor, mask_B11T: Tensor | None) -> Tensor:
        x_BTD = self.attention_norm(x_BTD + self.drop(self.attention(x_BTD, mask_B11T)))
        return self.norm(x_BTD + self.drop(self.contract(F.gelu(self.expand(x_BTD)))))


class BERT(LanguageModel):
    """Masked language model with next-sentence prediction.

    `losses` reads `tokens`, `segments` (B, T), `positions`, `targets` (B, M; the columns of the masked pieces and what
    stood there) and `next_sentence` (B,; 1 where the second part is a random one). It has no carry.
    """

    config: BERTConfig

    def __init__(self, config: BERTConfig) -> None:
        super().__init__()
        self.config = config
        self.token = nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.position = nn.Parameter(torch.empty(config.positions, config.width))
        self.segment = nn.Parameter(torch.empty(2, config.width))
        self.embedding_norm = nn.LayerNorm(config.width, eps=1e-12)
        self.drop = Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.transform = Linear(config.width, config.width)
        self.transform_norm = nn.LayerNorm(config.width, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))
        self.pooler = nn.Linear(config.width, config.width)
        self.next_sentence = nn.Linear(config.width, 2)
        self.apply(self._initialise)
        for table in (self.token, self.position, self.segment):
            nn.init.trunc_normal_(table, std=0.02, a=-0.04, b=0.04)

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        # Deviation 0.02 cut at two deviations, biases zero (BERT's code, modeling.py: create_initializer).
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02, a=-0.04, b=0.04)
            nn.init.zeros_(module.bias)

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        top_BTD = self._run(batch["tokens"], batch["segments"], None)[-1]
        masked_BMD = top_BTD.gather(1, batch["positions"].unsqueeze(-1).expand(-1, -1, top_BTD.shape[-1]))
        masked_BMD = self.transform_norm(F.gelu(self.transform(masked_BMD)))
        targets_N = batch["targets"].reshape(-1)
        filled = linear_cross_entropy(masked_BMD.flatten(0, 1), self.token, self.bias, targets_N)
        first_BD = torch.tanh(self.pooler(top_BTD[:, 0]))
        follows = F.cross_entropy(self.next_sentence(first_BD).float(), batch["next_sentence"], reduction="sum")
        masked, rows = len(targets_N), len(first_BD)
        return Losses(
            loss=filled / masked + follows / rows,
            sums={
                "tokens": (filled.detach(), torch.tensor(masked, device=filled.device)),
                "next_sentence": (follows.detach(), torch.tensor(rows, device=filled.device)),
            },
        )

    def hidden_states(self, tokens: Tensor, lengths: Tensor) -> list[Tensor]:
        mask_BT = torch.arange(tokens.shape[1], device=tokens.device) < lengths.unsqueeze(1)
        return self._run(tokens, None, mask_BT[:, None, None, :])

    def summary(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        return hidden[:, 0]

    def layer_groups(self) -> list[list[nn.Parameter]]:
        embeddings = [self.token, self.position, self.segment, *self.embedding_norm.parameters()]
        return [embeddings, *(list(block.parameters()) for block in self.blocks)]

    def remap_vocabulary(self, rows: Tensor) -> None:
        self.token = remapped(self.token, rows)
        self.bias = remapped(self.bias, rows)
        self.config = self.config.model_copy(update={"vocabulary": len(rows)})

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        top_BTD = self._run(tokens, None, None)[-1]
        return F.linear(self.transform_norm(F.gelu(self.transform(top_BTD))).float(), self.token, self.bias), ()

    def piece_embedding(self) -> nn.Parameter:
        return self.token

    def set_output_bias(self, log_frequencies: Tensor) -> None:
        with torch.no_grad():
            self.bias.copy_(log_frequencies)

    def special_tokens(self, pieces: list[int]) -> list[int]:
        return [START, *pieces, END]

    @property
    def max_tokens(self) -> int:
        return self.config.positions

    def _run(self, tokens_BT: Tensor, segments_BT: Tensor | None, mask_B11T: Tensor | None) -> list[Tensor]:
        """Outputs (B, T, D) of the embeddings and of every block; segment 0 throughout where `segments_BT` is None."""
        segments_D = self.segment[0] if segments_BT is None else self.segment[segments_BT]
        x_BTD = self.token[tokens_BT] + self.position[: tokens_BT.shape[1]] + segments_D
        # From here on everything is in the type of the products: every block ends in a norm, which bounds the rounding.
        outputs = [self.drop(self.embedding_norm(x_BTD.to(compute_dtype(x_BTD))))]
        for block in self.blocks:
            outputs.append(block(outputs[-1], mask_B11T))
        return outputs


def _size(layers: int, width: int) -> dict[str, Any]:
    return {"layers": layers, "width": width, "heads": width // 64}


FAMILY = ModelFamily(
    name="bert",
    config=BERTConfig,
    build=BERT,
    objective="masked",
    sampler="sentence_pairs",
    tokenizers=("wordpiece",),
    presets={
        # The 24 miniatures: Turc et al. 2019, Well-Read Students Learn Better, table 1.
        **{f"{layers}x{width}": _size(layers, width) for layers in range(2, 13, 2) for width in (128, 256, 512, 768)},
        "base": _size(12, 768),
        "large": _size(24, 1024),
    },
)
