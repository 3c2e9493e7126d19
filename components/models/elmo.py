"""ELMo: deep contextualised word vectors from characters.

Peters et al. 2018 (Deep contextualized word representations), with the sizes of Jozefowicz et al. 2016:

    x_t = CharCNN(w_t)      forward: r_t^l = LSTM_l(r_t^{l-1}, r_{t-1}^l)      backward: the same over the reversed text
    loss = sum_t -log p(w_{t+1} | w_1 .. w_t) - log p(w_{t-1} | w_t .. w_T)

The directions share the character layer and the softmax. From the second layer on, each LSTM's input is added to its
output (residual connection). `hidden_states` returns L + 1 layers of [forward; backward], the lowest with the character
layer's output twice, as published. The softmax is full; the paper uses a sampled softmax.

The character layer is Kim et al. 2016 (Character-Aware Neural Language Models). With x the character embeddings of a
word, for each filter width w, then for each highway layer (Srivastava 2015), and a projection:

    u_w = relu(max_p (W_w x[p : p + w] + b_w))       y = [u_1; u_2; ...]
    y <- g * relu(W y + b) + (1 - g) * y             g = sigmoid(W_g y + b_g)

Shape suffixes: B batch rows, T words, N distinct words, C characters, P projection, D = 2 P, V vocabulary.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import torch
from pydantic import NonNegativeInt, PositiveFloat
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.base import Batch, Carry, Losses, ModelConfig, ModelFamily, Rate, Size
from components.models.bidirectional import BidirectionalModel
from components.models.layers.chunks import Texts, joined, turn, turned
from components.models.layers.dropout import Dropout
from components.models.layers.host import is_fixed, move, on_host
from components.models.layers.linear import Linear
from components.models.layers.lstm import ProjectedLSTM
from components.models.layers.softmax import linear_cross_entropy
from components.tokenization import Tokenizer
from components.tokenization.special import END, SPECIAL_PIECES, START, UNK

#: Characters per word, begin and end included (Peters et al. 2018); bytes of UTF-8, as in the published code.
WORD_CHARACTERS: Final = 50
#: Numbers of characters, and number of words, of the batches in which words are computed where shapes are fixed.
FIXED_CHARACTERS: Final = (8, 16, WORD_CHARACTERS)
FIXED_WORDS: Final = 32
#: Ids after the ids of the 256 bytes.
BEGIN: Final = 256
FINISH: Final = 257
PADDING: Final = 258
#: Each special piece is one character of its own.
FIRST_SPECIAL: Final = 259
CHARACTERS: Final = FIRST_SPECIAL + len(SPECIAL_PIECES)


def spell(words: Iterable[str]) -> Tensor:
    """(N, WORD_CHARACTERS) int16: begin, the word's first 48 bytes of UTF-8, end, padding."""
    return _rows(list(word.encode()[: WORD_CHARACTERS - 2]) for word in words)


def spelling_table(pieces: Sequence[str]) -> Tensor:
    """(V, WORD_CHARACTERS) int16, the row of each piece; `pieces` begin with the special ones."""
    special = len(SPECIAL_PIECES)
    return torch.cat([_rows([id_] for id_ in range(FIRST_SPECIAL, CHARACTERS)), spell(pieces[special:])])


def _rows(words: Iterable[list[int]]) -> Tensor:
    rows = []
    for characters in words:
        row = [BEGIN, *characters, FINISH]
        rows.append(row + [PADDING] * (WORD_CHARACTERS - len(row)))
    return torch.from_numpy(np.asarray(rows, dtype=np.int16).reshape(-1, WORD_CHARACTERS))


class Highway(nn.Module):
    """g * relu(W y + b) + (1 - g) * y, initialised with nearly closed gates, close to the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform = Linear(width, width)
        self.gate = Linear(width, width)
        for layer in (self.transform, self.gate):
            nn.init.normal_(layer.weight, std=width**-0.5)
        nn.init.zeros_(self.transform.bias)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, y_NF: Tensor) -> Tensor:
        return torch.lerp(y_NF, F.relu(self.transform(y_NF)), self.gate(y_NF).sigmoid())


class CharacterCNN(nn.Module):
    """A CNN over the characters of a word; `filters`: (width in characters, number of such filters), F in total."""

    def __init__(self, *, width: int, filters: Sequence[tuple[int, int]], highway: int, output: int) -> None:
        super().__init__()
        features = sum(count for _, count in filters)
        self.widest = max(size for size, _ in filters)
        self.characters = nn.Parameter(torch.empty(CHARACTERS, width).uniform_(-1, 1))
        convolutions = [nn.Conv1d(width, count, size) for size, count in filters]
        self.filters = nn.ModuleList(convolutions)
        self.highways = nn.ModuleList(Highway(features) for _ in range(highway))
        self.projection = Linear(features, output)
        for conv in convolutions:
            # He et al. 2015. The published +-0.05 makes outputs so small that small models learn slowly at first.
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
            nn.init.zeros_(conv.get_parameter("bias"))
        nn.init.normal_(self.projection.weight, std=features**-0.5)
        nn.init.zeros_(self.projection.bias)

    def forward(self, spelt_NC: Tensor) -> Tensor:
        """(N, C) character ids -> (N, D)."""
        if is_fixed():
            return self._in_fixed_batches(spelt_NC)
        if not spelt_NC.is_cuda:
            spelt_NC = spelt_NC[:, : int(_lengths(spelt_NC).max()) + self.widest]
        return self._compute(spelt_NC)

    def _in_fixed_batches(self, spelt_NC: Tensor) -> Tensor:
        lengths_N, shorter, rows, results = _lengths(spelt_NC), 0, [], []
        for longest in FIXED_CHARACTERS:
            for part in ((lengths_N > shorter) & (lengths_N <= longest)).nonzero()[:, 0].split(FIXED_WORDS):
                if len(part):
                    padded = torch.cat([part, part[:1].expand(FIXED_WORDS - len(part))])
                    rows.append(part)
                    results.append(self._compute(spelt_NC[padded, : longest + self.widest])[: len(part)])
            shorter = longest
        return torch.cat(results)[torch.cat(rows).argsort()]

    def _compute(self, spelt_NC: Tensor) -> Tensor:
        # Convolution windows of padding only all have the same value, so the maximum needs only one of them.
        x_NEC = F.embedding(spelt_NC.int(), self.characters).transpose(1, 2)
        # `max`, because the backward pass of `amax` takes twice as long.
        y_NF = F.relu(torch.cat([conv(x_NEC).max(-1).values for conv in self.filters], dim=1))
        for highway in self.highways:
            y_NF = highway(y_NF)
        return self.projection(y_NF)


def _lengths(spelt_NC: Tensor) -> Tensor:
    return (spelt_NC != PADDING).sum(1)


class ELMoConfig(ModelConfig):
    """Sizes; the names of the published models ("4096/512") are `cells`/`projection`.

    Attributes:
        characters: width of the character embeddings.
        filters: (width of a filter in characters, number of such filters).
        highway: number of highway layers above the filters.
        cells, projection: cells of each LSTM; width of its output and of the word vectors.
        layers: number of LSTMs in each direction.
        clip: maximum absolute value of cells and LSTM outputs.
        residual: whether an LSTM's input is added to its output, from the second layer on.
        sentences: whether a text is between [CLS] and [SEP], as the published models read sentences, instead of between
            two [SEP], as documents are in pretraining here.
        dropout: rate on every LSTM's input and on the last one's output.
        static: width of word vectors that are not trained and are joined to the states of every layer, so that a task
            reads [GloVe(w); ELMo(w)] (section 3.3). The language model does not read them. 0: none.
    """

    characters: Size = 16
    filters: tuple[tuple[Size, Size], ...] = ((1, 16), (2, 16), (3, 32), (4, 64), (5, 64), (6, 64), (7, 64))
    highway: NonNegativeInt = 1
    cells: Size = 512
    projection: Size = 128
    layers: Size = 2
    clip: PositiveFloat = 3.0
    residual: bool = True
    sentences: bool = False
    dropout: Rate = 0.1
    static: NonNegativeInt = 0


class Direction(nn.Module):
    def __init__(self, config: ELMoConfig) -> None:
        super().__init__()
        self.lstms = nn.ModuleList(
            ProjectedLSTM(config.projection, config.cells, config.projection, clip=config.clip)
            for _ in range(config.layers)
        )
        self.drop = Dropout(config.dropout)
        self.residual = config.residual

    def forward(self, x_TBP: Tensor, carry: Carry, texts: Texts | None = None) -> tuple[list[Tensor], Carry]:
        """Outputs (T, B, P) of every layer, and the state after the window."""
        outputs: list[Tensor] = []
        states: list[Tensor] = []
        for index, lstm in enumerate(self.lstms):
            x_TBP = self.drop(x_TBP)
            out_TBP, state = lstm(x_TBP, carry[2 * index : 2 * index + 2], texts=texts)
            x_TBP = out_TBP + x_TBP if index and self.residual else out_TBP
            outputs.append(x_TBP)
            states += state
        return outputs, tuple(states)


class ELMo(BidirectionalModel):
    """Two word language models over one character layer. The carry is r (B, P) and c (B, cells) per layer."""

    config: ELMoConfig
    spelling: Tensor
    piece_parameters = ("output", "bias", "static")

    def __init__(self, config: ELMoConfig) -> None:
        super().__init__()
        self.config = config
        self.words = CharacterCNN(
            width=config.characters, filters=config.filters, highway=config.highway, output=config.projection
        )
        self.forwards = Direction(config)
        self.backwards = Direction(config)
        self.output = nn.Parameter(torch.empty(config.vocabulary, config.projection))
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))
        self.drop = Dropout(config.dropout)
        nn.init.normal_(self.output, std=config.projection**-0.5)
        # (V, C) characters of each piece; empty until `bind`. Not stored: it is derived from the pieces.
        self.register_buffer("spelling", torch.empty(0, WORD_CHARACTERS, dtype=torch.int16), persistent=False)
        self.register_buffer("static", torch.zeros(config.vocabulary, config.static) if config.static else None)
        self._tokenizer: Tokenizer | None = None

    def bind(self, tokenizer: Tokenizer) -> None:
        self.spelling = spelling_table(tokenizer.pieces).to(self.bias.device)
        self._tokenizer = tokenizer

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        half = len(carry) // 2
        both_NT = torch.cat([batch["tokens"], batch["backward_tokens"]])
        ahead_TBP, back_TBP = self._vectors(both_NT).transpose(0, 1).chunk(2, dim=1)
        forward, carry_forward = self.forwards(ahead_TBP, carry[:half])
        backward, carry_backward = self.backwards(back_TBP, carry[half:])
        return self.joint_losses(
            (self._loss_sum(forward[-1], batch["targets"]), carry_forward),
            (self._loss_sum(backward[-1], batch["backward_targets"]), carry_backward),
            batch["targets"],
        )

    def hidden_states(self, tokens: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        turned_BT = turned(lengths, tokens.shape[1])
        x_BTP = self._vectors(tokens, unseen=True)
        forward, _ = self.forwards(x_BTP.transpose(0, 1), (), self.texts(lengths))
        backward, _ = self.backwards(turn(x_BTP, turned_BT).transpose(0, 1), (), self.texts(lengths))
        states = [
            torch.cat([x_BTP, x_BTP], dim=-1),
            *(
                joined(ahead_TBP.transpose(0, 1), back_TBP.transpose(0, 1), turned_BT)
                for ahead_TBP, back_TBP in zip(forward, backward, strict=True)
            ),
        ]
        if self.static is None:
            return states
        # Words outside the vocabulary have the vector of UNK.
        return self.beside_static(tokens.masked_fill(tokens >= len(self.static), UNK), states)

    def special_tokens(self, pieces: list[int]) -> list[int]:
        return [START, *pieces, END] if self.config.sentences else super().special_tokens(pieces)

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [
            list(self.words.parameters()),
            *(
                [*self.forwards.lstms[layer].parameters(), *self.backwards.lstms[layer].parameters()]
                for layer in range(self.config.layers)
            ),
        ]

    def remap_vocabulary(self, rows: Tensor) -> None:
        super().remap_vocabulary(rows)
        # New pieces are spelt as UNK until `bind`.
        self.spelling = self.spelling[torch.where(rows < 0, UNK, rows).to(self.spelling.device)]

    def predict(self, tokens: Tensor, carry: Carry = ()) -> tuple[Tensor, Carry]:
        x_BTP = self._vectors(tokens, unseen=True)
        outputs, carry = self.forwards(x_BTP.transpose(0, 1), carry)
        return F.linear(self.drop(outputs[-1]).transpose(0, 1).float(), self.output, self.bias), carry

    def predict_backward(self, tokens: Tensor) -> Tensor:
        x_BTP = self._vectors(tokens.flip(1), unseen=True)
        outputs, _ = self.backwards(x_BTP.transpose(0, 1), ())
        return F.linear(self.drop(outputs[-1]).transpose(0, 1).float(), self.output, self.bias).flip(1)

    def _loss_sum(self, outputs_TBP: Tensor, targets_BT: Tensor) -> Tensor:
        return linear_cross_entropy(
            self.drop(outputs_TBP).flatten(0, 1), self.output, self.bias, targets_BT.t().reshape(-1)
        )

    def _vectors(self, tokens_BT: Tensor, *, unseen: bool = False) -> Tensor:
        """(B, T, P) word vectors without context; `unseen`: whether ids of words outside the vocabulary may occur."""
        if tokens_BT.is_cuda and not (unseen and int(on_host(tokens_BT).max()) >= len(self.spelling)):
            return self.words(self.spelling[tokens_BT.flatten()]).unflatten(0, tokens_BT.shape)
        # A batch repeats few distinct words; on the CPU each is encoded once.
        distinct_N, indices_BT = on_host(tokens_BT).unique(return_inverse=True)
        return F.embedding(move(indices_BT, tokens_BT.device), self.words(self._characters(distinct_N)))

    def _characters(self, ids_N: Tensor) -> Tensor:
        """(N, C) characters of words; ids are sorted and on the host. Concurrent calls share no state."""
        inside, device = int((ids_N < len(self.spelling)).sum()), self.spelling.device
        if inside == len(ids_N):
            return self.spelling[move(ids_N, device)]
        assert self._tokenizer is not None, "ids of unseen words need a tokenizer: call bind()"
        unseen = spell(self._tokenizer.spelling(id_) for id_ in ids_N[inside:].tolist())
        return torch.cat([self.spelling[move(ids_N[:inside], device)], move(unseen, device)])


FAMILY = ModelFamily(
    name="elmo",
    config=ELMoConfig,
    build=ELMo,
    objective="causal",
    sampler="bidirectional_stream",
    tokenizers=("open_word",),
    tiny={"characters": 8, "filters": ((1, 16), (2, 16)), "cells": 48, "projection": 32, "dropout": 0.1},
    presets={
        # The published models (allennlp.org/elmo); their character layers differ in the highway layers only.
        name: {
            "characters": 16,
            "filters": ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024)),
            "highway": highway,
            "cells": cells,
            "projection": projection,
            "layers": 2,
        }
        for name, cells, projection, highway in (
            ("elmo-small", 1024, 128, 1),
            ("elmo-medium", 2048, 256, 1),
            ("elmo-original", 4096, 512, 2),
        )
    },
)
