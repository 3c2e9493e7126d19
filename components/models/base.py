"""The interface of a language-model family, through which training, adaptation, heads and registry use a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt
from torch import Tensor, nn

from components.core.errors import ConfigError
from components.models.layers.chunks import Chunking, Texts
from components.models.layers.dropout import Noise
from components.models.layers.softmax import remapped
from components.models.sentence import Reading, TextVectors, pooled
from components.tokenization.special import END

if TYPE_CHECKING:
    from components.tokenization import Tokenizer

#: Types of config fields: sizes, and dropout rates.
Size = PositiveInt
Rate = Annotated[float, Field(ge=0, lt=1)]

Batch = dict[str, Tensor]
Carry = tuple[Tensor, ...]
#: Summed negative log-likelihood (nats, differentiable) and the number of its targets.
Sum = tuple[Tensor, Tensor]

#: Pretraining objective: next piece; masked pieces; pieces in a random order (XLNet); context words of static vectors;
#: translation.
Objective = Literal["causal", "masked", "permuted", "static", "translation"]


class ModelConfig(BaseModel):
    """Base class of the families' configs. `vocabulary` is the number of pieces, special pieces included."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: Keys beside those that begin with `dropout` on which only training depends.
    penalties: ClassVar[tuple[str, ...]] = ()

    vocabulary: int
    #: How a sentence encoder was trained to read a text; None: the model is none.
    reading: Reading | None = Field(default=None, exclude_if=lambda value: value is None)

    @classmethod
    def of_training(cls) -> list[str]:
        """The keys on which only training depends: dropout rates and penalties. Trained weights fit any value."""
        return [name for name in cls.model_fields if name.startswith("dropout") or name in cls.penalties]


@dataclass
class Losses:
    """Result of the pretraining objective on one batch.

    Attributes:
        loss: scalar to minimise: the mean over the batch's targets, summed over objectives.
        sums: objective -> (summed negative log-likelihood in nats, number of targets), detached; of the language model
            `"tokens"`.
        carry: recurrent state or memory for the next window, detached; () for none. Dimension 0 of every tensor is the
            batch row, so rows can be split among workers and gathered again.
    """

    loss: Tensor
    sums: dict[str, tuple[Tensor, Tensor]]
    carry: Carry = ()


def counted(total: Tensor, *targets: Tensor) -> Sum:
    """A summed loss and the total number of its `targets`, (N,) each."""
    return total, count_tensor(sum(len(part) for part in targets), total)


def count_tensor(count: int, like: Tensor) -> Tensor:
    """A number as an int64 scalar on the device of `like`; `torch.tensor` on a GPU would wait for the device."""
    return torch.full((), count, dtype=torch.int64, device=like.device)


class LanguageModel(nn.Module, ABC):
    config: ModelConfig
    #: Positions to which a position attends: none (static vectors, recurrent models), the preceding ones, or all.
    #: Models without attention hardly relate two texts in one sequence to each other.
    attention: ClassVar[Literal["none", "before", "around"]] = "none"
    #: Whether `hidden_states` carries a state from chunk to chunk, so that a text of any length is one row. Other
    #: families split long texts into windows, one row each.
    carries_state: ClassVar[bool] = False
    #: Names of the parameters and buffers that have one row per piece, which `remap_vocabulary` moves; those whose last
    #: part is `bias` are output biases.
    piece_parameters: ClassVar[tuple[str, ...]] = ()
    #: Whether long pretraining runs on a GPU are compiled (`components.training.loop`).
    compiles: ClassVar[bool] = False
    _chunking: Chunking | None = None
    #: The layers of `config.reading`, which `build_model` adds.
    sentence: TextVectors | None
    #: The pieces of the prompt of `config.reading`, which `special_tokens` puts before a text.
    prompt: Sequence[int] = ()

    def __init__(self) -> None:
        super().__init__()
        self.sentence = None

    @abstractmethod
    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        """The pretraining objective on one batch of the family's sampler."""

    @abstractmethod
    def hidden_states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        """Outputs of the embedding and of every layer for whole texts.

        Args:
            tokens: (B, T) int64, with the special pieces of `special_tokens`, padded with id 0.
            lengths: (B,) int64, number of tokens in each row, without padding.
            segments: (B, T) int64, 0 in the first of two texts and 1 in the second, as `pair_tokens` returns them;
                None: all 0. Ignored by families without segments.

        Returns:
            L + 1 tensors (B, T, D_l), lowest layer first. Values at real positions do not depend on padding.

        Raises:
            ConfigError: T is more than `max_tokens`.
        """

    def text_loss(self, batch: Batch, hidden: Sequence[Tensor]) -> Sum:
        """The language-model objective on labelled texts, an auxiliary loss of fine-tuning (Radford et al. 2018,
        section 3.2): summed negative log-likelihood in nats, and the number of targets.

        Raises:
            ConfigError: the family does not predict the next piece of a text in one direction.
        """
        raise ConfigError(f"{type(self).__name__} has no causal language model of whole texts; set lm_weight to 0")

    def activation_penalty(self, hidden: Sequence[Tensor], lengths: Tensor) -> Tensor:
        """The regularisation of activations that the config sets, a scalar, of `hidden_states` of whole texts.
        Raises ConfigError: the family has no such regularisation."""
        raise ConfigError(f"{type(self).__name__} has no activation regularisation; set activation_penalty to 0")

    def summary(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """One vector per text from a layer, (B, T, D) -> (B, D): the last state (causal models), the first position
        (BERT), [last forward state; first backward state] (FLAIR)."""
        return last_states(hidden, lengths)

    def vectors_of(self, hidden: Tensor, lengths: Tensor, *, scaled: bool = True) -> Tensor:
        """One vector per text from a layer, (B, T, D) -> (B, F) float32, as the encoder was trained
        (`config.reading`); the mean if it is no sentence encoder. Without `scaled`, not scaled to length 1."""
        if self.sentence is None:
            return pooled(hidden, lengths, "mean")
        return self.sentence(hidden, lengths, lead=self.special_tokens([-1]).index(-1), scaled=scaled)

    def unit_states(self, hidden: Tensor, units: Tensor) -> Tensor:
        """One vector per unit, such as a word: the state at its first piece (Devlin et al. 2019, section 5.3), or for a
        recurrent or causal model the state after it has read the whole unit.

        Args:
            hidden: (B, T, D) of one layer.
            units: (B, U, 2) columns of each unit's first and last piece; padded with -1.

        Returns:
            (B, U, D), undefined at padding.
        """
        return at_columns(hidden, units[..., 0])

    @abstractmethod
    def layer_groups(self) -> list[list[nn.Parameter]]:
        """The encoder's parameters from the embeddings (first) to the last layer, for discriminative learning rates and
        gradual unfreezing. Every parameter that `hidden_states` uses is in exactly one group; layers with shared
        weights form one group."""

    def remap_vocabulary(self, rows: Tensor) -> None:
        """Change the vocabulary to `len(rows)` pieces: new row i of every table is old row `rows[i]`, or the mean of
        all old rows where it is -1."""
        for name in self.piece_parameters:
            module, leaf = self._owner(name)
            if (table := getattr(module, leaf)) is not None:
                moved = remapped(table, rows)
                setattr(module, leaf, moved if isinstance(table, nn.Parameter) else moved.data)
        self.config = self.config.model_copy(update={"vocabulary": len(rows)})

    def set_output_bias(self, log_frequencies: Tensor) -> None:
        """Set the output biases, if there are any, to the log unigram frequencies (V,)."""
        for name in self.piece_parameters:
            module, leaf = self._owner(name)
            if leaf == "bias" and (bias := getattr(module, leaf)) is not None:
                with torch.no_grad():
                    bias.copy_(log_frequencies)

    def _owner(self, name: str) -> tuple[nn.Module, str]:
        path, _, leaf = name.rpartition(".")
        return self.get_submodule(path), leaf

    @abstractmethod
    def special_tokens(self, pieces: list[int]) -> list[int]:
        """A text's pieces with the family's special pieces, as `hidden_states` expects them."""

    def pair_tokens(self, first: list[int], second: list[int]) -> tuple[list[int], list[int]]:
        """Two texts as one sequence with the family's special pieces, and the segment of each piece."""
        pieces = self.special_tokens([*first, END, *second])
        begin = self.special_tokens([-1]).index(-1) + len(first) + 1
        return pieces, [int(position >= begin) for position in range(len(pieces))]

    def add_task_tokens(self) -> None:
        """Give the inputs of tasks special tokens of their own, once, in families whose special pieces do not occur in
        pretraining; `special_tokens` and `pair_tokens` then use them."""

    def bind(self, tokenizer: Tokenizer) -> None:
        """Set the tokenizer, after building, loading, and every change of vocabulary. Families that depend on the
        spelling of pieces (characters, n-grams) derive their tables here."""
        prompt = self.config.reading.prompt if self.config.reading is not None else ""
        self.prompt, tokenizer.lead = (), ""
        if prompt:
            self.prompt = tokenizer.after_prompt(prompt)

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        """Logits of the language-model objective.

        Args:
            tokens: (B, T) int64 without padding; with a `carry`, they continue the tokens of the preceding call.
            carry: from the preceding call; dimension 0 is the batch row.

        Returns:
            (B, T, V) logits of the next piece (causal) or of the piece at the position (masked); and the carry.

        Raises:
            ConfigError: the family does not predict pieces.
        """
        raise ConfigError(f"{type(self).__name__} predicts no pieces, so it can neither generate nor fill in")

    def sparse_parameters(self) -> list[nn.Parameter]:
        """Tables (R, D) whose gradients are sparse, because a step reads few of their rows."""
        return []

    def piece_embedding(self) -> nn.Parameter | None:
        """The embedding table (V, D) if it may be initialised with word vectors; else None (character models)."""
        return None

    def static_vectors(self) -> Tensor | None:
        """The table (V, S) of word vectors that are features beside the states and are not trained; else None."""
        return None

    def static_words(self) -> Tensor | None:
        """The words of `static_vectors` in a model of characters (`text_words.packed`); else None."""
        return None

    @property
    def backward(self) -> bool:
        """Whether the model predicts the piece before a text instead of the one after it."""
        return False

    @property
    def max_tokens(self) -> int | None:
        """Maximum number of tokens of a row of `hidden_states`, special pieces included; None for no limit."""
        return None

    def set_chunks(self, length: int, *, learned: int) -> None:
        """Read long texts in chunks of `length` pieces, if `carries_state`; only the last `learned` chunks of each text
        have gradients (Howard and Ruder 2018, section 3.3)."""
        self._chunking = Chunking(length, learned)

    def texts(self, lengths: Tensor) -> Texts:
        """Texts of lengths (B,) with the chunks of `set_chunks`."""
        return Texts(lengths, self._chunking)

    def set_dropout(self, scale: float) -> None:
        """Multiply every dropout rate by `scale` (ULMFiT's drop multiplier); 1 restores the configured rates."""
        for module in self.modules():
            if isinstance(module, Noise):
                module.scale = scale


def last_states(hidden: Tensor, lengths: Tensor) -> Tensor:
    """The state (B, D) of (B, T, D) at each text's last position."""
    return hidden[torch.arange(hidden.shape[0], device=hidden.device), lengths - 1]


def at_columns(hidden: Tensor, columns: Tensor) -> Tensor:
    """The states (B, U, D) at columns (B, U) of (B, T, D); -1 selects column 0."""
    return hidden.gather(1, columns.clamp(min=0).unsqueeze(-1).expand(-1, -1, hidden.shape[-1]))


ConfigT = TypeVar("ConfigT", bound=ModelConfig)


@dataclass(frozen=True)
class ModelFamily(Generic[ConfigT]):
    """One entry of the table `components.models.FAMILIES`.

    Attributes:
        build: config -> model with initial weights, sampled from torch's global generator.
        sampler: name of the batch sampler in `components.training.pretraining.samplers.SAMPLERS`.
        tokenizers: supported kinds of tokenizer; `components.settings.recipes` names the default.
        tiny: settings, without `vocabulary`, of a model that trains in milliseconds, for the contract tests; they
        should
            enable the family's options (dropout, memory).
        presets: name -> published settings, in the same format as `tiny`.
        training: preset -> published keys of `pretrain.<name>.training`, which apply where the settings have none.
        task_tokens: whether `LanguageModel.add_task_tokens` has an effect.
    """

    name: str
    config: type[ConfigT]
    build: Callable[[ConfigT], LanguageModel]
    objective: Objective
    sampler: str
    tokenizers: tuple[str, ...]
    tiny: Mapping[str, Any]
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    training: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    task_tokens: bool = False
