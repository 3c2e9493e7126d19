"""What every family of language models offers, and nothing a family may do in its own way.

A family is a file that ends in `FAMILY = ModelFamily(...)`. The training loop, the adaptation, the downstream heads and
the registry know a model only through `LanguageModel`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from components.errors import ConfigError
from components.models.layers.chunks import Chunking, Texts
from components.models.layers.dropout import Noise
from components.tokenization.special import END

if TYPE_CHECKING:
    from components.tokenization import Tokenizer

Batch = dict[str, Tensor]
Carry = tuple[Tensor, ...]
#: A sum of negative log-likelihoods (nats, with its gradient) and the number of its targets.
Sum = tuple[Tensor, Tensor]

#: What a family learns: the next piece, disguised pieces, pieces in a drawn order, a vector a piece, a translation.
Objective = Literal["causal", "masked", "permuted", "static", "translation"]


class ModelConfig(BaseModel):
    """Sizes of one model; every family extends it. `vocabulary` is the number of pieces, padding included."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    vocabulary: int


@dataclass
class Losses:
    """What one batch says.

    Attributes:
        loss: scalar to minimise, the mean over this batch's targets (objectives added up).
        sums: name -> (sum of the negative log-likelihood in nats, number of targets), one entry an objective, detached.
            `"tokens"` is the language-model objective that perplexity is computed from.
        carry: recurrent state or memory for the next window, detached; () for none. Dimension 0 of every tensor is the
            batch row, so that rows can be shared out among workers and gathered again.
    """

    loss: Tensor
    sums: dict[str, tuple[Tensor, Tensor]]
    carry: Carry = ()


def counted(total: Tensor, *targets: Tensor) -> Sum:
    """A sum with the number of its targets."""
    return total, torch.tensor(sum(len(part) for part in targets), device=total.device)


class LanguageModel(nn.Module, ABC):
    """An encoder with its pretraining objective."""

    config: ModelConfig
    #: Which pieces a piece's state may look at directly; with `none` (static vectors, recurrent models) two texts in
    #: one sequence are hardly compared.
    attention: ClassVar[Literal["none", "before", "around"]] = "none"
    #: Whether `hidden_states` carries a state from chunk to chunk: a text of any length is one row then. Of the others
    #: long texts are cut into windows, each a row of its own.
    carries_state: ClassVar[bool] = False
    #: Whether `text_loss` needs masks.
    masks_texts: ClassVar[bool] = False
    _chunking: Chunking | None = None

    @abstractmethod
    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        """The pretraining objective on one batch made by the family's sampler."""

    @abstractmethod
    def hidden_states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        """Embedding output and every layer's output for whole texts.

        Args:
            tokens: (B, T) int64, already with the special pieces that the family expects, padded with id 0.
            lengths: (B,) int64, number of real tokens in each row.
            segments: (B, T) int64, 0 at the first of two texts and its special pieces, 1 at the second, as
                `pair_tokens` gives them; None: all 0. Families that know no segments do not look at it.

        Returns:
            L + 1 tensors (B, T, D_l), lowest first. Padding never changes the values at real positions.

        Raises:
            ConfigError: T is more than `max_tokens`.
        """

    def text_loss(self, batch: Batch, hidden: Sequence[Tensor]) -> Sum:
        """The language-model objective on labelled texts, to be learned beside their labels (Radford et al. 2018,
        section 3.2): negative log-likelihood in nats, summed, and the number of targets.

        Args:
            batch: `tokens` (B, T), `lengths` (B,) and perhaps `segments` (B, T), as for `hidden_states`; for masked and
                permuted families also what `components.training.masking.mask_texts` makes of them: `masked_tokens`
                (B, T), `masked_positions` and `masked_targets` (B, M; -1 fills up).
            hidden: what `hidden_states` gave for them; causal families predict from it, without a second pass.

        Raises:
            ConfigError: the family has no language-model objective on plain text.
        """
        raise ConfigError(
            f"{type(self).__name__} has no language-model objective that could be learned beside a task; "
            "set lm_weight to 0"
        )

    @abstractmethod
    def summary(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """One vector a text from a layer (B, T, D) -> (B, D): the first token (BERT), the last state (causal models),
        the last forward state joined to the first backward state (FLAIR)."""

    def unit_states(self, hidden: Tensor, units: Tensor) -> Tensor:
        """One vector a unit (a word, say): the state of its first piece (Devlin et al. 2019, section 5.3). A model that
        reads in one direction gives the state that has read all of the unit.

        Args:
            hidden: (B, T, D) of one layer.
            units: (B, U, 2) columns of each unit's first and last piece; -1 where a row has fewer units.

        Returns:
            (B, U, D); anything where there is no unit.
        """
        return at_columns(hidden, units[..., 0])

    @abstractmethod
    def layer_groups(self) -> list[list[nn.Parameter]]:
        """The encoder's parameters from the embeddings (first) to the last layer, for discriminative rates and
        unfreezing. Every parameter that `hidden_states` uses stands in exactly one group; layers that share their
        weights are one group together, so there may be fewer groups than layers."""

    @abstractmethod
    def remap_vocabulary(self, rows: Tensor) -> None:
        """Change to a new vocabulary: new row i takes old row `rows[i]`, or the mean of all old rows where it is -1.
        Embedding, output layer and its bias follow; `config.vocabulary` becomes `len(rows)`."""

    def set_output_bias(self, log_frequencies: Tensor) -> None:
        """Start the output layer's bias at the log unigram frequencies (V,), so that training does not spend its first
        minutes on finding them. Families without an output bias leave this as it is."""

    @abstractmethod
    def special_tokens(self, pieces: list[int]) -> list[int]:
        """A text's pieces with the family's special pieces around them, as `hidden_states` expects."""

    def pair_tokens(self, first: list[int], second: list[int]) -> tuple[list[int], list[int]]:
        """Two texts' pieces as one sequence with END between them and the family's special pieces around; and the
        segment of each piece: 0 up to that END, 1 behind it."""
        pieces = self.special_tokens([*first, END, *second])
        begins = self.special_tokens([-1]).index(-1) + len(first) + 1
        return pieces, [int(place >= begins) for place in range(len(pieces))]

    def bind(self, tokenizer: Tokenizer) -> None:
        """Told which pieces the rows stand for: after building, loading and every change of vocabulary. Families that
        look into a piece (its characters, its n-grams) derive their tables here; the others have no use for it."""

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        """Logits of the language-model objective.

        Args:
            tokens: (B, T) int64 without padding; they go on where `carry` ended.
            carry: what an earlier call returned; dimension 0 is the batch row.

        Returns:
            (B, T, V): at each position, of the piece after it (causal), or of the piece at it (masked); and the carry.

        Raises:
            ConfigError: the family predicts no pieces.
        """
        raise ConfigError(f"{type(self).__name__} predicts no pieces: it can neither generate nor fill in")

    def piece_embedding(self) -> nn.Parameter | None:
        """The table (V, D) of the pieces' embeddings, if it may start from word vectors; None for characters."""
        return None

    @property
    def backward(self) -> bool:
        """Whether it says what stands before a text, not what follows."""
        return False

    @property
    def max_tokens(self) -> int | None:
        """Most tokens that `hidden_states` takes, special pieces included; None where there is no limit."""
        return None

    def set_chunks(self, length: int, *, learned: int) -> None:
        """From now on read long texts in chunks of `length` pieces: the state goes on from chunk to chunk, a gradient
        only through the last `learned` of each text (Howard and Ruder 2018, section 3.3). Only where `carries_state`.
        """
        self._chunking = Chunking(length, learned)

    def texts(self, lengths: Tensor) -> Texts:
        """Texts of these lengths (B,), cut as `set_chunks` has said."""
        return Texts(lengths, self._chunking)

    def set_dropout(self, scale: float) -> None:
        """Multiply every dropout's probability by `scale` (ULMFiT's drop multiplier); 1 is as configured."""
        for module in self.modules():
            if isinstance(module, Noise):
                module.scale = scale


def at_columns(hidden: Tensor, columns: Tensor) -> Tensor:
    """The states (B, U, D) at the columns (B, U) of (B, T, D); at column 0 where it is -1."""
    return hidden.gather(1, columns.clamp(min=0).unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))


ConfigT = TypeVar("ConfigT", bound=ModelConfig)


@dataclass(frozen=True)
class ModelFamily(Generic[ConfigT]):
    """One line of the FAMILIES table.

    Attributes:
        config: the family's config class.
        build: config -> model with fresh weights drawn from torch's global generator.
        objective: what pretraining learns.
        sampler: name of the batch sampler in `components.pretraining.samplers.SAMPLERS`.
        tokenizers: kinds of tokenizer that fit, the default one first.
        presets: published sizes, as keyword arguments of `config` without `vocabulary`.
    """

    name: str
    config: type[ConfigT]
    build: Callable[[ConfigT], LanguageModel]
    objective: Objective
    sampler: str
    tokenizers: tuple[str, ...]
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
