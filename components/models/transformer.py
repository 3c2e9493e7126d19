"""The Transformer: an encoder and a decoder of attention layers, for the translation objective of CoVe.

Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser and Polosukhin 2017 (Attention Is All You Need), section 3:

    x = sqrt(D) E[w] + R_position                R sinusoids, E one table for sources, targets and the output (3.4)
    encoder:  x = LN(x + attention(x));  x = LN(x + W_2 relu(W_1 x))
    decoder:  y = LN(y + causal attention(y));  y = LN(y + attention(y, x));  y = LN(y + W_2 relu(W_1 y))
    p(w^z_t) = softmax(E y_t + b)

The outputs of the encoder's blocks are the features of tasks, as CoVe's LSTM states are. There are two additions to the
paper: dropout on the attention weights, as in the authors' later code, and an output bias b, which starts from the log
frequencies of the target words.

Shape suffixes: B batch rows, T source positions, U target positions, R rows of W positions when packed, D width.
"""

from typing import Self

import torch
from pydantic import PositiveFloat, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.base import ModelFamily
from components.models.layers.dropout import Dropout
from components.models.layers.linear import Linear, compute_dtype
from components.models.layers.packing import packing
from components.models.layers.relative import sinusoids
from components.models.layers.transformer import Activation, Block, DecoderBlock, TransformerConfig, check_length
from components.models.sentence import pooled
from components.models.translation import Memory, State, TranslationModel


class TranslatorConfig(TransformerConfig):
    """Keys of `TransformerConfig`, for encoder and decoder each; `positions` bounds both lengths."""

    activation: Activation = "relu"
    norm_eps: PositiveFloat = 1e-6

    @model_validator(mode="after")
    def _width_is_even(self) -> Self:
        if self.width % 2:
            raise ValueError(f"width {self.width} is odd; sines and cosines of the positions have half of it each")
        return self


class Transformer(TranslationModel):
    config: TranslatorConfig
    attention = "around"
    piece_parameters = ("embedding", "bias")

    def __init__(self, config: TranslatorConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.decoder = nn.ModuleList(DecoderBlock(config) for _ in range(config.layers))
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))
        self.drop = Dropout(config.dropout)
        # A quarter of the usual std D^-0.5. With the usual one, the normalised outputs determine the first predictions,
        # not the bias. With a much smaller one, words are negligible beside positions.
        nn.init.normal_(self.embedding, std=0.25 * config.width**-0.5)
        for module in self.modules():
            if isinstance(module, Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)

    def read(self, tokens: Tensor, lengths: Tensor) -> Memory:
        """The keys and values of every block of the decoder, and the mask (B, T) of the sources."""
        states_BTD = self.hidden_states(tokens, lengths)[-1]
        mask_BT = torch.arange(tokens.shape[1], device=tokens.device) < lengths.unsqueeze(1)
        return *[part for block in self._decoder() for part in block.cross.read(states_BTD)], mask_BT

    def decode(self, tokens: Tensor, memory: Memory, state: State = ()) -> tuple[Tensor, State]:
        *keys_values, mask_BT = memory
        before = state[0].shape[2] if state else 0
        check_length(before + tokens.shape[1], self.config.positions)
        y_BUD = self._embed(tokens, torch.arange(before, before + tokens.shape[1], device=tokens.device))
        after: list[Tensor] = []
        for index, block in enumerate(self._decoder()):
            two = slice(2 * index, 2 * index + 2)
            y_BUD, kept = block.decode(y_BUD, state[two], tuple(keys_values[two]), mask_BT)
            after += kept
        return y_BUD, tuple(after)

    def output_table(self) -> nn.Parameter:
        return self.embedding

    def hidden_states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        check_length(tokens.shape[1], self.config.positions)
        packed = packing(lengths, tokens.shape[1])
        if packed is None:
            positions_T = torch.arange(tokens.shape[1], device=tokens.device)
            return self._encode(tokens, positions_T, (positions_T < lengths.unsqueeze(1))[:, None, None, :])
        states = self._encode(packed.pack(tokens), packed.positions, packed.mask)
        return [packed.unpack(state_RWD) for state_RWD in states]

    def summary(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        return pooled(hidden, lengths, "mean")

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [[self.embedding], *(list(block.parameters()) for block in self.blocks)]

    def piece_embedding(self) -> nn.Parameter:
        return self.embedding

    @property
    def max_tokens(self) -> int:
        return self.config.positions

    def _decoder(self) -> list[DecoderBlock]:
        return [block for block in self.decoder if isinstance(block, DecoderBlock)]

    def _embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        width = self.config.width
        x = width**0.5 * F.embedding(tokens, self.embedding)
        x = x + sinusoids(positions.flatten(), width).view(*positions.shape, width).to(x.dtype)
        return self.drop(x.to(compute_dtype(x)))

    def _encode(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> list[Tensor]:
        outputs = [self._embed(tokens, positions)]
        for block in self.blocks:
            outputs.append(block(outputs[-1], mask))
        return outputs


#: Section 5.3.
ADAM = {"betas": (0.9, 0.98)}

FAMILY = ModelFamily(
    name="transformer",
    config=TranslatorConfig,
    build=Transformer,
    objective="translation",
    sampler="translation",
    tokenizers=("word", "wordpiece"),
    tiny={"width": 32, "layers": 2, "heads": 2, "positions": 24},
    presets={
        # Table 3; positions are not limited in the paper.
        "base": {"width": 512, "layers": 6, "heads": 8, "dropout": 0.1},
        "big": {"width": 1024, "layers": 6, "heads": 16, "dropout": 0.3},
    },
    training={"base": ADAM, "big": ADAM},
)
