"""ELECTRA: a Transformer encoder that tells replaced pieces from original ones; a small generator replaces them.

Clark, Luong, Le and Manning 2020 (ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators),
sections 2 and 3.2; the encoder is BERT's, with embeddings of width E as in ALBERT:

    generator:      p(piece) = softmax(E_token LN(gelu(W x)) + b) at the masked positions, of a narrower network
    discriminator:  p(replaced) = sigmoid(v gelu(U x) + c) at all positions of the text with samples of the generator
    loss = mean -log p(piece) + 50 mean cross entropy of p(replaced); a sample equal to the original is not replaced

Both share the embeddings, their norm included. No gradient flows through the samples. The encoder that is fine-tuned
is the discriminator; pieces are predicted by the generator.

Shape suffixes: B batch rows, T positions, D width, E width of the embeddings, G width of the generator, M masked
positions per row, N = B M.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.base import Batch, Carry, Losses, ModelFamily, Size, Sum, counted
from components.models.layers.attention import Mask
from components.models.layers.host import on_host, places
from components.models.layers.linear import Linear
from components.models.layers.masked import MaskedConfig, MaskedModel, through
from components.models.layers.softmax import sampled_cross_entropy
from components.models.layers.transformer import Block, gelu


class ELECTRAConfig(MaskedConfig):
    """Keys of `MaskedConfig`, and:

    Attributes:
        embedding: E.
        generator: G / D; the generator's heads have a width of 64, as the discriminator's.
        generator_layers: number of the generator's blocks; 0: as many as the discriminator has.
        discriminator_weight: factor of the discriminator's loss.
    """

    embedding: Size = 128
    generator: Annotated[float, Field(gt=0, le=1)] = 0.25
    generator_layers: Annotated[int, Field(ge=0)] = 0
    discriminator_weight: Annotated[float, Field(gt=0)] = 50.0

    @model_validator(mode="after")
    def _generator_heads_divide(self) -> Self:
        if self.generator_width % max(1, self.generator_width // 64):
            raise ValueError(
                f"generator {self.generator} of width {self.width} is {self.generator_width}, which is neither below "
                "128 nor a multiple of the number of its heads; choose a fraction that gives a multiple of 64"
            )
        return self

    @property
    def generator_width(self) -> int:
        return max(1, round(self.width * self.generator))

    def of_generator(self) -> MaskedConfig:
        """The sizes of the generator's blocks."""
        layers = self.generator_layers or self.layers
        return self.model_copy(update={"width": self.generator_width, "heads": 0, "layers": layers})


class ELECTRA(MaskedModel):
    """Replaced-token detection.

    `losses` reads `tokens`, `segments` (B, T), `positions`, `targets` and `noise` (B, M; uniform in [0, 1), for the
    samples). It has no carry.
    """

    config: ELECTRAConfig

    def __init__(self, config: ELECTRAConfig) -> None:
        super().__init__(config, embedding=config.embedding, segments=2, predictor=config.generator_width)
        self.project = _projection(config.embedding, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.detect = Linear(config.width, config.width)
        self.detect_output = nn.Linear(config.width, 1)
        small = config.of_generator()
        self.generator_project = _projection(config.embedding, small.width)
        self.generator_blocks = nn.ModuleList(Block(small) for _ in range(small.layers))
        self.initialise()

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        tokens_BT, segments_BT = batch["tokens"], batch["segments"]
        positions_BM, targets_BM = batch["positions"], batch["targets"]
        top_BTG = self.generate(tokens_BT, segments_BT, None)[-1]
        masked_BMG = self._predicting(top_BTG, positions_BM)
        predicted, sampled_N = self._sampled(masked_BMG.flatten(0, 1), targets_BM.reshape(-1), batch["noise"].flatten())
        sampled_BM = sampled_N.view_as(positions_BM)
        replaced_BT = torch.zeros_like(tokens_BT).scatter(1, positions_BM, (sampled_BM != targets_BM).long())
        top_BTD = self.run(tokens_BT.scatter(1, positions_BM, sampled_BM), segments_BT, None)[-1]
        return self._weighted(tokens=predicted, replaced=self._detection(top_BTD, replaced_BT))

    def text_loss(self, batch: Batch, hidden: Sequence[Tensor]) -> Sum:
        """The discriminator's loss, its number of targets that of all pieces. The generator is not trained."""
        tokens_BT, lengths, segments = batch["tokens"], batch["lengths"], batch.get("segments")
        rows_N, columns_N = places(on_host(batch["masked_targets"]) >= 0, tokens_BT.device)
        positions_N = batch["masked_positions"][rows_N, columns_N]
        with torch.no_grad():
            top_BTG = self.over_texts(self.generate, batch["masked_tokens"], lengths, segments)[-1]
            targets_N, noise_N = (batch[f"masked_{name}"][rows_N, columns_N] for name in ("targets", "noise"))
            _, sampled_N = self._sampled(top_BTG[rows_N, positions_N], targets_N, noise_N)
        corrupted_BT = tokens_BT.index_put((rows_N, positions_N), sampled_N)
        top_BTD = self.hidden_states(corrupted_BT, lengths, segments)[-1]
        inside_BT = torch.arange(tokens_BT.shape[1]) < on_host(lengths).unsqueeze(1)
        inside = places(inside_BT, tokens_BT.device)
        return self._detection(top_BTD[inside], (corrupted_BT != tokens_BT)[inside])

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        top_BTG = self.generate(tokens, None, None)[-1]
        return F.linear(self._transformed(top_BTG).to(self.token.dtype), self.token, self.bias), ()

    def replaced_logits(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """(B, T) logits of p(replaced) at each piece of a text; arguments as for `hidden_states`."""
        return self._detected(self.hidden_states(tokens, lengths, segments)[-1])

    def generate(
        self, tokens_BT: Tensor, segments_BT: Tensor | None, mask: Mask | None, positions_BT: Tensor | None = None
    ) -> list[Tensor]:
        """Outputs (B, T, G) of the generator's embeddings and blocks; arguments as for `run`."""
        x_BTG: Tensor = self.generator_project(self.embed(tokens_BT, segments_BT, positions_BT))
        return through(cast(Iterable[Block], self.generator_blocks), x_BTG, mask)

    def body(self) -> Iterable[Block]:
        return cast(Iterable[Block], self.blocks)

    def enter(self, x_BTE: Tensor) -> Tensor:
        x_BTD: Tensor = self.project(x_BTE)
        return x_BTD

    def embeddings(self) -> list[nn.Parameter]:
        return [*super().embeddings(), *self.project.parameters()]

    def _sampled(self, x_NG: Tensor, targets_N: Tensor, noise_N: Tensor) -> tuple[Sum, Tensor]:
        """The generator's summed loss and its number of targets, and the samples (N,)."""
        total, sampled_N = sampled_cross_entropy(self._transformed(x_NG), self.token, self.bias, targets_N, noise_N)
        return counted(total, targets_N), sampled_N

    def _detected(self, x: Tensor) -> Tensor:
        logits: Tensor = self.detect_output(gelu(self.detect(x), self.config.activation))
        return logits.squeeze(-1)

    def _detection(self, x: Tensor, replaced: Tensor) -> Sum:
        """The discriminator's summed loss at positions (..., D), and their number."""
        logits_N, labels_N = self._detected(x).float().flatten(), replaced.float().flatten()
        return counted(F.binary_cross_entropy_with_logits(logits_N, labels_N, reduction="sum"), labels_N)

    def _weighted(self, *, tokens: Sum, replaced: Sum) -> Losses:
        loss = tokens[0] / tokens[1] + self.config.discriminator_weight * replaced[0] / replaced[1]
        return Losses(
            loss, {"tokens": (tokens[0].detach(), tokens[1]), "replaced": (replaced[0].detach(), replaced[1])}
        )


def _projection(inputs: int, outputs: int) -> nn.Module:
    """A linear layer where the widths differ."""
    return nn.Identity() if inputs == outputs else Linear(inputs, outputs)


FAMILY = ModelFamily(
    name="electra",
    config=ELECTRAConfig,
    build=ELECTRA,
    objective="masked",
    sampler="two_segments",
    tokenizers=("wordpiece", "bpe", "unigram"),
    tiny={"width": 32, "embedding": 16, "layers": 2, "heads": 2, "positions": 24, "generator": 0.5},
    presets={
        # Clark et al. 2020, table 6.
        "small": {"layers": 12, "width": 256, "heads": 4, "embedding": 128, "generator": 1 / 4},
        "base": {"layers": 12, "width": 768, "heads": 12, "embedding": 768, "generator": 1 / 3},
        "large": {"layers": 24, "width": 1024, "heads": 16, "embedding": 1024, "generator": 1 / 4, "masking": 0.25},
    },
)
