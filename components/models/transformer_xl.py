"""Transformer-XL: a causal Transformer with a memory of earlier segments.

Dai, Yang, Yang, Carbonell, Le and Salakhutdinov 2019 (Transformer-XL: Attentive Language Models beyond a Fixed-Length
Context). Layer n attends to the previous segment in a memory without gradient (SG), for segment tau:

    h~ = [SG(h_{tau-1}^{n-1}); h_tau^{n-1}]     q = W_q h_tau^{n-1},  k, v = W_kv h~     h_tau^n = block(q, k, v, R)

with relative positions (components.models.layers.relative) and, for large vocabularies, the adaptive softmax
(components.models.layers.adaptive).

Shape suffixes: B batch rows, T positions, R rows of W positions when packed, S memory and segment, D width, C = 2 D
keys and values, N heads, K head width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from pydantic import NonNegativeInt, model_validator
from torch import Tensor, nn

from components.models.base import (
    Batch,
    Carry,
    Losses,
    ModelFamily,
    Rate,
    Size,
    Sum,
    at_columns,
    count_tensor,
    counted,
)
from components.models.layers.adaptive import TiedVocabulary
from components.models.layers.chunks import following, for_learners
from components.models.layers.dropout import Dropout
from components.models.layers.host import both
from components.models.layers.linear import compute_dtype
from components.models.layers.packing import packing
from components.models.layers.relative import (
    RelativeBlock,
    RelativeConfig,
    RelativeModel,
    Scope,
    distances,
    sinusoids,
)
from components.tokenization.special import END


class TransformerXLConfig(RelativeConfig):
    """Keys of `RelativeConfig`, and:

    Attributes:
        evaluation_memory: `memory` in evaluation; null: as in training. It may be longer, because distances that do not
            occur in training have encodings, too (Dai et al. 2019 train with 384 and evaluate with 1,600).
        tied_biases: whether all layers share u and v.
        cutoffs: first ids of the softmax's clusters after the first; needs a vocabulary sorted by frequency (words).
        divide: factor between the widths of consecutive clusters.
        output_projection: whether the softmax has another projection of the first cluster, as the published weights
        have.
        same_length: whether every position attends to `memory` (in evaluation `evaluation_memory`) positions only,
            itself included, so that all have the same context (the published evaluation).
    """

    evaluation_memory: NonNegativeInt | None = None
    tied_biases: bool = True
    cutoffs: tuple[Size, ...] = ()
    divide: Size = 1
    output_projection: bool = False
    same_length: bool = False
    dropout_attention: Rate = 0.0

    @model_validator(mode="after")
    def _cutoffs_rise(self) -> TransformerXLConfig:
        if any(high <= low for low, high in zip(self.cutoffs, self.cutoffs[1:], strict=False)):
            raise ValueError(f"cutoffs {list(self.cutoffs)} are not increasing")
        return self


class TransformerXL(RelativeModel):
    """Causal language model with memory; `losses` reads `tokens` and `targets` (B, T). Its carry is each block's input
    at the last m <= `memory` positions, (B, m, D); of `predict` each block's keys and values (B, m, 2 D)."""

    config: TransformerXLConfig
    attention = "before"
    carries_state = True

    def __init__(self, config: TransformerXLConfig) -> None:
        super().__init__()
        self.config = config
        # With std 0.02, as for all other weights, the untrained model would predict the current piece: the normalised
        # state is close to that piece's row, whose logit is then about 0.02 D. The scripts for WikiText-103 and larger
        # data use 0.005.
        self.pieces = TiedVocabulary(
            config.vocabulary,
            config.width,
            cutoffs=config.cutoffs,
            divide=config.divide,
            output_projection=config.output_projection,
            std=0.005,
        )
        self.blocks = nn.ModuleList(
            RelativeBlock(config, activation="relu", eps=1e-5, biased=not config.tied_biases)
            for _ in range(config.layers)
        )
        size = (config.head_count, config.width // config.head_count)
        self.content_bias = nn.Parameter(torch.zeros(size)) if config.tied_biases else None
        self.position_bias = nn.Parameter(torch.zeros(size)) if config.tied_biases else None
        self.drop = Dropout(config.dropout)
        self.apply(self._initialise)

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        # Std 0.02 (the published code's --init_std); u, v and all other biases are initialised with 0.
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    @property
    def memory(self) -> int:
        """Number of positions of earlier segments that are kept, in the current mode (training or evaluation)."""
        if self.training or self.config.evaluation_memory is None:
            return self.config.memory
        return self.config.evaluation_memory

    def set_memory(self, positions: int) -> None:
        """Set the number of positions of earlier segments that are kept in evaluation."""
        self.config = self.config.model_copy(update={"evaluation_memory": positions})

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        outputs = self._run(batch["tokens"], carry)
        total = self.pieces.loss_sum(self.drop(outputs[-1]).flatten(0, 1), both(torch.flatten, batch["targets"]))
        count = batch["targets"].numel()
        carried = self._remembered(carry, outputs[:-1])
        return Losses(total / count, {"tokens": (total.detach(), count_tensor(count, total))}, carried)

    def hidden_states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        # Padding is at the end and attention is causal, so it needs no mask.
        chunks = self.texts(lengths).chunks(tokens.shape[1])
        if chunks is None:
            packed = packing(lengths, tokens.shape[1])
            if packed is None:
                return self._run(tokens, ())
            return [packed.unpack(state_RWD) for state_RWD in self._run(packed.pack(tokens), (), mask=packed.mask)]
        carry: Carry = ()
        parts: list[list[Tensor]] = []
        for columns, learns_B in chunks:
            with torch.set_grad_enabled(torch.is_grad_enabled() and bool(learns_B.any())):
                outputs = self._run(tokens[:, columns], carry)
            carry = self._remembered(carry, outputs[:-1])
            parts.append([for_learners(output_BTD, learns_B[:, None, None]) for output_BTD in outputs])
        return [torch.cat(layer, dim=1) for layer in zip(*parts, strict=True)]

    def text_loss(self, batch: Batch, hidden: Sequence[Tensor]) -> Sum:
        states_ND, targets_N = following(self.drop(hidden[-1]), batch["tokens"], batch["lengths"])
        return counted(self.pieces.loss_sum(states_ND, targets_N), targets_N)

    def unit_states(self, hidden: Tensor, units: Tensor) -> Tensor:
        return at_columns(hidden, units[..., 1])

    def layer_groups(self) -> list[list[nn.Parameter]]:
        shared = [bias for bias in (self.content_bias, self.position_bias) if bias is not None]
        groups = [self.pieces.embedding_parameters(), *(list(block.parameters()) for block in self.blocks)]
        # Shared biases belong to the lowest block that uses them.
        groups[1] += shared
        return groups

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        keys: list[Tensor] = []
        outputs = self._run(tokens, carry, keys)
        return self.pieces.logits(self.drop(outputs[-1])), tuple(self._last(key_BSC).detach() for key_BSC in keys)

    def special_tokens(self, pieces: list[int]) -> list[int]:
        # In pretraining every document follows an END.
        return [END, *pieces]

    def _run(
        self, tokens_BT: Tensor, carry: Carry, keys: list[Tensor] | None = None, *, mask: Tensor | None = None
    ) -> list[Tensor]:
        segment = tokens_BT.shape[1]
        # From here on in the dtype of the matrix products: every block ends in a norm, which bounds rounding errors.
        x_BTD = self.pieces.embed(tokens_BT) * self.config.width**0.5
        outputs = [self.drop(x_BTD.to(compute_dtype(x_BTD)))]
        scope = self._scope(segment, segment + (carry[0].shape[1] if carry else 0), tokens_BT.device).within(mask)
        biases = None
        if self.content_bias is not None and self.position_bias is not None:
            biases = self.content_bias, self.position_bias
        for index, block in enumerate(cast(Iterable[RelativeBlock], self.blocks)):
            x_BTD = outputs[-1]
            if keys is None:
                keys_BSC = block.keys(_after(carry, index, x_BTD))
            else:
                keys_BSC = _after(carry, index, block.keys(x_BTD))
                keys.append(keys_BSC)
            outputs.append(block(x_BTD, keys_BSC, scope, biases))
        return outputs

    def _scope(self, segment: int, keys: int, device: torch.device) -> Scope:
        config = self.config
        encoding = sinusoids(distances(segment, keys, ahead=False, clamp=config.clamp, device=device), config.width)
        ahead_TS = torch.arange(keys, device=device) - torch.arange(keys - segment, keys, device=device).unsqueeze(1)
        hidden_TS = ahead_TS > 0
        if config.same_length and self.memory:
            hidden_TS |= ahead_TS <= -self.memory
        return Scope(segment, self.drop(encoding), hidden_TS)

    def _remembered(self, carry: Carry, inputs: list[Tensor]) -> Carry:
        if not self.memory:
            return ()
        return tuple(self._last(_after(carry, index, x_BTD)).detach() for index, x_BTD in enumerate(inputs))

    def _last(self, x_BS: Tensor) -> Tensor:
        return x_BS[:, max(0, x_BS.shape[1] - self.memory) :]


def _after(carry: Carry, index: int, new: Tensor) -> Tensor:
    return torch.cat([carry[index].to(new.dtype), new], dim=1) if carry else new


def _wikitext(layers: int, width: int, heads: int, feedforward: int, **others: Any) -> dict[str, Any]:
    return {
        "layers": layers, "width": width, "heads": heads, "feedforward": feedforward,
        "cutoffs": (20_000, 40_000, 200_000), **others,
    }  # fmt: skip


FAMILY = ModelFamily(
    name="transformer-xl",
    config=TransformerXLConfig,
    build=TransformerXL,
    objective="causal",
    sampler="stream",
    tokenizers=("wordpiece", "word", "bpe", "char"),
    tiny={"width": 32, "layers": 2, "heads": 2, "memory": 12},
    presets={
        # Dai et al. 2019, tables 1 and 2: 151M and 257M parameters on WikiText-103 (267,735 words), 41M and 277M on
        # enwik8, with the sizes and the memory of the published scripts. The paper does not state the depth of the 257M
        # model; with the published width, clusters and projections it is 16. The released weights have 18 layers
        # (284M). `clamp` is the published value for evaluation, or the largest distance in training if that is larger.
        "wt103-base": _wikitext(16, 410, 10, 2100, memory=150, evaluation_memory=640, clamp=400),
        **{
            name: _wikitext(
                layers, 1024, 16, 4096, divide=4, tied_biases=False, memory=384, evaluation_memory=1600, clamp=1000,
                dropout=0.2, dropout_attention=0.2,
            )
            for name, layers in (("wt103-large", 16), ("wt103-large-18", 18))
        },
        "enwik8-12": {
            "layers": 12, "width": 512, "heads": 8, "feedforward": 2048, "memory": 512, "evaluation_memory": 2100,
            "clamp": 1024,
        },
        "enwik8-24": {
            "layers": 24, "width": 1024, "heads": 8, "feedforward": 3072, "memory": 768, "evaluation_memory": 3800,
            "clamp": 1536, "dropout": 0.15, "dropout_attention": 0.15, "tied_biases": False,
        },
    },
)  # fmt: skip
