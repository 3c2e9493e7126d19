"""Stacked embeddings: the states of several encoders at each word, concatenated.

Akbik, Blythe and Vollgraf 2018 (Contextual String Embeddings for Sequence Labeling), section 2.4: FLAIR beside word
vectors; Peters et al. 2018, section 3.3: ELMo beside word vectors. Each part splits the words by its own tokenizer.

    s(w) = [h_1(w); h_2(w); ...]        h_p(w): the state of part p at the word w (`LanguageModel.unit_states`)

A stacked encoder is computed from trained ones and has no objective of its own. All parts can be fine-tuned together.

Shape suffixes: B batch rows, T words, D width of the stack; of a part: S windows, P pieces, U words of a window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Never

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from components.errors import ConfigError
from components.models.base import Batch, Carry, LanguageModel, Losses, ModelConfig, ModelFamily
from components.models.layers.fixed_shapes import is_fixed
from components.tokenization.special import END, FIRST_ORDINARY
from components.tokenization.unit_windows import columns, cut
from components.tokenization.words import encode_words

if TYPE_CHECKING:
    from components.tokenization import Tokenizer

Layers = Literal["last", "all"]


class Part(BaseModel):
    """One encoder of a stack.

    Attributes:
        family: its family.
        model: its config, the vocabulary included.
        layers: which hidden states are read: those of the last layer, or of all layers and the embedding.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    family: str
    model: dict[str, Any]
    layers: Layers = "last"


class StackedConfig(ModelConfig):
    """The parts, in the order of their states."""

    parts: tuple[Part, ...]


class Stacked(LanguageModel):
    """Several encoders; `bind` needs a `StackedTokenizer` with the tokenizers of the parts."""

    config: StackedConfig
    # A text of any length is one row: parts with a maximum length read it in windows.
    carries_state = True

    def __init__(self, config: StackedConfig) -> None:
        from components.models import family

        super().__init__()
        self.config = config
        self.parts = nn.ModuleList(
            family(part.family).build(family(part.family).config(**part.model)) for part in config.parts
        )
        self._tokenizer: Tokenizer | None = None

    def bind(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        for part, own in zip(self.encoders(), self._tokenizers(), strict=True):
            part.bind(own)

    def encoders(self) -> list[LanguageModel]:
        """The parts."""
        return [part for part in self.parts if isinstance(part, LanguageModel)]

    def _tokenizers(self) -> Sequence[Tokenizer]:
        found: Sequence[Tokenizer] = getattr(self._tokenizer, "parts", ())
        return found

    def hidden_states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        if is_fixed() and len(tokens) > 1:
            # The numbers of pieces of the other rows would change the shapes.
            return [
                torch.cat([self._stack(tokens[row : row + 1], lengths[row : row + 1]) for row in range(len(tokens))])
            ]
        return [self._stack(tokens, lengths)]

    def _stack(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        rows = [row[:length] for row, length in zip(tokens.tolist(), lengths.tolist(), strict=True)]
        words = [[self._word(id_) for id_ in row] for row in rows]
        parts = zip(self.encoders(), self._tokenizers(), self.config.parts, strict=True)
        found = [
            states_of_words(encoder, own, words, columns_=tokens.shape[1], layers=part.layers, device=tokens.device)
            for encoder, own, part in parts
        ]
        return torch.cat(found, dim=-1)

    def _word(self, id_: int) -> str:
        # Special pieces represent empty texts; each part has an unknown piece for them.
        return "" if id_ < FIRST_ORDINARY or self._tokenizer is None else self._tokenizer.spelling(id_)

    def summary(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """The mean of the text's words."""
        inside_BT1 = (torch.arange(hidden.shape[1], device=hidden.device) < lengths[:, None]).unsqueeze(-1)
        return hidden.masked_fill(~inside_BT1, 0).sum(1) / lengths[:, None].to(hidden.dtype)

    def special_tokens(self, pieces: list[int]) -> list[int]:
        # The parts add their own special pieces; END represents an empty text.
        return pieces or [END]

    def pair_tokens(self, first: list[int], second: list[int]) -> tuple[list[int], list[int]]:
        return self.special_tokens([*first, *second]), [0] * len(first) + [1] * len(second)

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [[parameter for part in self.encoders() for group in part.layer_groups() for parameter in group]]

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        _no_objective()

    def remap_vocabulary(self, rows: Tensor) -> None:
        _no_objective()


def _no_objective() -> Never:
    raise ConfigError("a stacked encoder is computed from trained ones and is not trained as a language model")


def states_of_words(
    encoder: LanguageModel,
    tokenizer: Tokenizer,
    texts: Sequence[Sequence[str]],
    *,
    columns_: int,
    layers: Layers,
    device: torch.device,
) -> Tensor:
    """(B, T, D_p): the state of an encoder at each word, 0 at padding.

    Texts that are longer than the encoder's limit are read in windows that overlap by half; the state of a word is that
    of the window with the most context around it.

    Args:
        encoder: one part.
        tokenizer: of the part.
        texts: words of each of the B texts, at least one.
        columns_: T.
        layers: as in `Part`.
        device: of the tokens.
    """
    around = encoder.special_tokens([-1])
    lead, most = around.index(-1), encoder.max_tokens
    sequences: list[list[int]] = []
    units: list[np.ndarray[Any, np.dtype[np.int64]]] = []
    places: list[tuple[int, int]] = []
    for row, found in enumerate(encode_words(tokenizer, texts)):
        room = len(found.ids) if most is None else max(1, most - len(around) + 1)
        for window in cut(found.spans, room=room, stride=max(1, room // 2)):
            sequences.append(encoder.special_tokens(found.ids[slice(*window.pieces)].tolist()))
            units.append(columns(found.spans, window, units=(window.first, window.last)) + lead)
            places.append((row, window.first))
    tokens_SP = torch.zeros(len(sequences), max(map(len, sequences)), dtype=torch.int64)
    units_SU2 = torch.full((len(units), max(map(len, units)), 2), -1, dtype=torch.int64)
    for number, (sequence, own) in enumerate(zip(sequences, units, strict=True)):
        tokens_SP[number, : len(sequence)] = torch.tensor(sequence)
        units_SU2[number, : len(own)] = torch.from_numpy(own)
    lengths_S = torch.tensor([len(sequence) for sequence in sequences])
    hidden = encoder.hidden_states(tokens_SP.to(device), lengths_S.to(device))
    read = hidden if layers == "all" else hidden[-1:]
    states_SUD = torch.cat([encoder.unit_states(layer, units_SU2.to(device)) for layer in read], dim=-1)
    rows_N = torch.cat([torch.full((len(own),), row) for own, (row, _) in zip(units, places, strict=True)])
    columns_N = torch.cat([first + torch.arange(len(own)) for own, (_, first) in zip(units, places, strict=True)])
    inside_SU = units_SU2[..., 0] >= 0
    out_BTD = states_SUD.new_zeros(len(texts), columns_, states_SUD.shape[-1])
    return out_BTD.index_put((rows_N.to(device), columns_N.to(device)), states_SUD[inside_SU.to(device)])


FAMILY = ModelFamily(
    name="stacked",
    config=StackedConfig,
    build=Stacked,
    objective="static",
    sampler="",
    tokenizers=("stacked",),
    tiny={},
)
