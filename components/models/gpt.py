"""GPT, GPT-2 and GPT-3: causal Transformers that differ in settings.

Radford et al. 2018 (Improving Language Understanding by Generative Pre-Training), 2019 (Language Models are
Unsupervised Multitask Learners), Brown et al. 2020 (Language Models are Few-Shot Learners, section 2.1):

    x = E_token + E_position                     p(w_{t+1}) = softmax(E_token x_t + b)
    GPT:    per block  x = LN(x + attention(x));  x = LN(x + W_2 gelu(W_1 x))
    GPT-2:  per block  x = x + attention(LN(x));  x = x + W_2 gelu(W_1 LN(x));  at the end  x = LN(x)
    GPT-3:  as GPT-2, every other block attends only to a band of the preceding positions

Inputs of tasks have three tokens that do not occur in pretraining (2018, section 3.3): start, delimiter, extract.

    one text: start text extract           two texts: start first delimiter second extract

Shape suffixes: B batch rows, T positions, R rows of W positions when packed, D width, N = B T, V vocabulary.
"""

import math
from collections.abc import Sequence
from typing import Any, Final, Literal

import torch
from pydantic import NonNegativeInt
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.base import Batch, Carry, LanguageModel, Losses, ModelFamily, Sum, at_columns, counted
from components.models.layers.attention import Rotation
from components.models.layers.chunks import following
from components.models.layers.dropout import Dropout
from components.models.layers.linear import LayerNorm, compute_dtype
from components.models.layers.packing import packing
from components.models.layers.softmax import linear_cross_entropy
from components.models.layers.transformer import (
    INITIAL_STD,
    Activation,
    Block,
    TransformerConfig,
    check_length,
    position_rows,
)
from components.tokenization.special import END


class GPTConfig(TransformerConfig):
    """Keys of `TransformerConfig`, and:

    Attributes:
        norm: position of layer norms: after each sum (`post`, GPT) or before each sub-layer (`pre`, GPT-2 and GPT-3).
        band: number of positions that every other block attends to, the current one included (GPT-3); 0: all.
        output_bias: whether logits have a bias b, so that training starts at the log unigram frequencies; the published
            models have none.
        task_tokens: whether the model has the three tokens of tasks; `add_task_tokens` sets it, before fine-tuning.
    """

    activation: Activation = "gelu_tanh"
    norm_eps: float = 1e-5
    norm: Literal["pre", "post"] = "pre"
    band: NonNegativeInt = 0
    output_bias: bool = True
    task_tokens: bool = False


#: The tokens of tasks; their ids follow the ids of the vocabulary.
TASK_TOKENS: Final = ("start", "delimiter", "extract")


class GPT(LanguageModel):
    """Causal language model; `losses` reads `tokens` and `targets` (B, T). The carry of `predict` is each block's keys
    and values (B, heads, positions read so far, D / heads)."""

    config: GPTConfig
    attention = "before"
    compiles = True
    piece_parameters = ("token", "bias")
    position: nn.Parameter | None
    bias: nn.Parameter | None
    task: nn.Parameter | None

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.token = nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.register_parameter("position", self._position_table())
        self.drop = Dropout(config.dropout)
        self.blocks = nn.ModuleList(self._block(config.band if layer % 2 else 0) for layer in range(config.layers))
        self.final_norm = self._final_norm()
        self.register_parameter("bias", nn.Parameter(torch.zeros(config.vocabulary)) if config.output_bias else None)
        #: (3, D) rows of TASK_TOKENS.
        self.task = self._task_rows() if config.task_tokens else None
        self._initialise()

    def _position_table(self) -> nn.Parameter | None:
        return nn.Parameter(torch.empty(self.config.positions, self.config.width))

    def _block(self, band: int) -> Block:
        return Block(self.config, norm_first=self.config.norm == "pre", causal=True, band=band)

    def _final_norm(self) -> nn.Module:
        return LayerNorm(self.config.width, eps=self.config.norm_eps) if self.config.norm == "pre" else nn.Identity()

    def _initialise(self) -> None:
        nn.init.normal_(self.token, std=INITIAL_STD)
        if self.position is not None:
            # GPT-2's code halves the std of the positions (model.py: wpe).
            nn.init.normal_(self.position, std=INITIAL_STD / 2 if self.config.norm == "pre" else INITIAL_STD)
        for name, module in self.blocks.named_modules():
            if isinstance(module, nn.Linear):
                # 2 L sub-layers are summed in the residual stream (GPT-2, section 2.3).
                residual = self.config.norm == "pre" and name.endswith(("attention.output", "contract"))
                nn.init.normal_(module.weight, std=INITIAL_STD / (math.sqrt(2 * self.config.layers) if residual else 1))
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def _task_rows(self) -> nn.Parameter:
        # Runs with different seeds share the features of the frozen encoder, so the rows do not depend on the seed.
        rows = torch.empty(len(TASK_TOKENS), self.config.width, device=self.token.device)
        generator = torch.Generator(self.token.device).manual_seed(0) if self.token.device.type != "meta" else None
        return nn.Parameter(nn.init.normal_(rows, std=INITIAL_STD, generator=generator))

    def add_task_tokens(self) -> None:
        if self.task is None:
            self.task = self._task_rows()
            self.config = self.config.model_copy(update={"task_tokens": True})

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        total, count = self._loss_sum(self._run(batch["tokens"])[-1].flatten(0, 1), batch["targets"].reshape(-1))
        return Losses(total / count, {"tokens": (total.detach(), count)})

    def hidden_states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        # Padding is at the end and attention is causal, so it needs no mask.
        check_length(tokens.shape[1], self.config.positions)
        packed = None if self.config.band else packing(lengths, tokens.shape[1])
        if packed is None:
            return self._run(tokens)
        states = self._run(packed.pack(tokens), packed.mask, packed.positions)
        return [packed.unpack(state_RWD) for state_RWD in states]

    def text_loss(self, batch: Batch, hidden: Sequence[Tensor]) -> Sum:
        # The delimiter and the extract token are predicted as well, as in the paper's code.
        return self._loss_sum(*following(hidden[-1], batch["tokens"], batch["lengths"]), task=self.task)

    def unit_states(self, hidden: Tensor, units: Tensor) -> Tensor:
        return at_columns(hidden, units[..., 1])

    def layer_groups(self) -> list[list[nn.Parameter]]:
        embeddings = [self.token] if self.position is None else [self.token, self.position]
        groups = [embeddings, *(list(block.parameters()) for block in self.blocks)]
        groups[-1] += self.final_norm.parameters()
        if self.task is not None:
            # New, as the head is: they learn from the first step, at the highest rate.
            groups[-1].append(self.task)
        return groups

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        # The first block keeps the keys of all positions.
        read = carry[0].shape[2] if carry else 0
        x_BTD, rotation = self._enter(tokens, start=read)
        past: list[Tensor] = []
        for index, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            x_BTD, kept = block.extend(x_BTD, carry[2 * index : 2 * index + 2], rotation)
            past += kept
        return F.linear(self.final_norm(x_BTD).to(self.token.dtype), self.token, self.bias), tuple(past)

    def piece_embedding(self) -> nn.Parameter:
        return self.token

    def special_tokens(self, pieces: list[int]) -> list[int]:
        if self.task is not None:
            start, _, extract = self._task_ids()
            return [start, *pieces, extract]
        # In pretraining every document follows an END.
        return [END, *pieces]

    def pair_tokens(self, first: list[int], second: list[int]) -> tuple[list[int], list[int]]:
        if self.task is None:
            return super().pair_tokens(first, second)
        _, delimiter, _ = self._task_ids()
        pieces = self.special_tokens([*first, delimiter, *second])
        begin = len(first) + 2
        return pieces, [int(position >= begin) for position in range(len(pieces))]

    def _task_ids(self) -> range:
        return range(self.config.vocabulary, self.config.vocabulary + len(TASK_TOKENS))

    @property
    def max_tokens(self) -> int:
        return self.config.positions

    def _loss_sum(self, top_ND: Tensor, targets_N: Tensor, *, task: Tensor | None = None) -> Sum:
        table_VD = self.token if task is None else torch.cat([self.token, task])
        bias_V = self.token.new_zeros(len(self.token)) if self.bias is None else self.bias
        bias_V = F.pad(bias_V, (0, len(table_VD) - len(bias_V)))
        return counted(linear_cross_entropy(top_ND, table_VD, bias_V, targets_N), targets_N)

    def _enter(
        self, tokens_BT: Tensor, positions_BT: Tensor | None = None, *, start: int = 0
    ) -> tuple[Tensor, Rotation | None]:
        """The input of the first block (B, T, D), and the rotation of its positions: from `start` on, if not given."""
        assert self.position is not None
        if positions_BT is None:
            positions_BTD = position_rows(self.position, tokens_BT.shape[1], start=start)
        else:
            positions_BTD = F.embedding(positions_BT, self.position)
        return self._embed(self._rows(tokens_BT) + positions_BTD), None

    def _embed(self, x_BTD: Tensor) -> Tensor:
        # A pre-norm residual stream keeps the type of the weights, because its sums are not normalised.
        return self.drop(x_BTD if self.config.norm == "pre" else x_BTD.to(compute_dtype(x_BTD)))

    def _rows(self, tokens_BT: Tensor) -> Tensor:
        if self.task is None:
            return F.embedding(tokens_BT, self.token)
        own_BT = tokens_BT - self.config.vocabulary
        known_BTD = F.embedding(tokens_BT.clamp(max=self.config.vocabulary - 1), self.token)
        return torch.where((own_BT >= 0).unsqueeze(-1), F.embedding(own_BT.clamp(min=0), self.task), known_BTD)

    def _run(self, tokens_BT: Tensor, mask: Tensor | None = None, positions_BT: Tensor | None = None) -> list[Tensor]:
        entered_BTD, rotation = self._enter(tokens_BT, positions_BT)
        outputs = [entered_BTD]
        for block in self.blocks:
            outputs.append(block(outputs[-1], mask, rotation))
        outputs[-1] = self.final_norm(outputs[-1])
        return outputs


def _size(layers: int, width: int, heads: int, positions: int = 1024, **settings: Any) -> dict[str, Any]:
    return {
        "layers": layers, "width": width, "heads": heads, "positions": positions, "output_bias": False, **settings,
    }  # fmt: skip


#: Adam of GPT-3 (Brown et al. 2020, appendix B), which later trainings of the other sizes use as well; the papers of
#: GPT and GPT-2 do not state the decay rates.
ADAM = {"betas": (0.9, 0.95)}

FAMILY = ModelFamily(
    name="gpt",
    config=GPTConfig,
    build=GPT,
    objective="causal",
    sampler="packed",
    tokenizers=("bpe", "wordpiece", "unigram"),
    tiny={"width": 32, "layers": 2, "heads": 2, "positions": 24, "band": 4},
    presets={
        "gpt": _size(12, 768, 12, positions=512, norm="post"),
        "gpt2": _size(12, 768, 12),
        "gpt2-medium": _size(24, 1024, 16),
        "gpt2-large": _size(36, 1280, 20),
        "gpt2-xl": _size(48, 1600, 25),
        # Brown et al. 2020, table 2.1. The band's width is not published; GPT-Neo has 256.
        "gpt3": _size(96, 12288, 96, positions=2048, band=256, dropout=0.0, dropout_attention=0.0),
    },
    training={
        **dict.fromkeys(("gpt", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"), ADAM),
        "gpt3": {**ADAM, "weight_decay": 0.1, "clip": 1.0},
    },
    task_tokens=True,
)
