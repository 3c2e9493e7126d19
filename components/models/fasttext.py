"""fastText: skip-gram with word vectors composed of character n-grams, so that unseen words have vectors, too.

Bojanowski, Grave, Joulin and Mikolov 2017 (Enriching Word Vectors with Subword Information), section 3.2:

    i_w = mean of I[w] and of G[h(g)] for every n-gram g of "<w>"          skip-gram of i_w as in word2vec

h is the FNV-1a hash modulo the number of buckets. The paper sums the vectors; the published code takes the mean, and so
does this. The vector of a word outside the vocabulary is the mean of its n-grams.

Shape suffixes: B batch rows, T words per row, S noise words per row, U = T + S, D width, V vocabulary, N words, W
distinct words among them, G n-grams of all of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import torch
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from components.models.base import Batch, Carry, Losses, ModelFamily, Size
from components.models.layers.host import both, move, on_host
from components.models.static import NegativeSamplingConfig, StaticVectors, skip_gram
from components.tokenization.special import FIRST_ORDINARY, UNK

if TYPE_CHECKING:
    from components.tokenization import Tokenizer

FNV_OFFSET: Final = 2_166_136_261
FNV_PRIME: Final = 16_777_619
WORD_32: Final = 0xFFFF_FFFF


class FastTextConfig(NegativeSamplingConfig):
    """Settings of `NegativeSamplingConfig`, and:

    Attributes:
        shortest, longest: length range of the n-grams in characters, including the marks "<" and ">" of a word's ends.
        buckets: rows of the n-gram table; unless `sparse`, time and memory per step are proportional to it.
        sparse: whether a step updates only the n-grams that it reads, in AdamW (`components.training.optim`).
    """

    shortest: Size = 3
    longest: Size = 6
    buckets: Size = 20_000
    sparse: bool = False

    @model_validator(mode="after")
    def _some_length(self) -> FastTextConfig:
        if self.shortest > self.longest:
            raise ValueError(f"shortest {self.shortest} is greater than longest {self.longest}")
        return self


def fnv1a_update(value: int, byte: int) -> int:
    """32-bit FNV-1a: the hash after one more byte, sign-extended as in the published code (C++ `int8_t`)."""
    return ((value ^ (byte if byte < 128 else byte | 0xFFFF_FF00)) * FNV_PRIME) & WORD_32


def ngram_buckets(word: str, config: FastTextConfig) -> list[int]:
    """The buckets of a word's n-grams, in the published code's order: by first character, then by length. A single mark
    is not an n-gram; "<word>" as a whole is one, if it is short enough."""
    letters = [letter.encode() for letter in f"<{word}>"]
    results = []
    for first in range(len(letters)):
        value = FNV_OFFSET
        for last in range(first, min(first + config.longest, len(letters))):
            for byte in letters[last]:
                value = fnv1a_update(value, byte)
            if last - first + 1 >= config.shortest and not (first == last and first in (0, len(letters) - 1)):
                results.append(value % config.buckets)
    return results


class FastText(StaticVectors):
    """Skip-gram over words and their n-grams; `losses` reads the batches of `NegativeSampler` and has no carry.

    `bind` provides the spelling of pieces; before it, and for special pieces, the vector is the word's row alone. Ids
    beyond the vocabulary (`OpenWordTokenizer`) are spelt by the tokenizer when they occur."""

    config: FastTextConfig
    piece_parameters = ("word", "output")
    #: Concatenated n-grams of all pieces (G,), and the offset of each piece's first one (V + 1,).
    grams: Tensor
    begins: Tensor

    def __init__(self, config: FastTextConfig) -> None:
        super().__init__()
        self.config = config
        self.word = nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.gram = nn.Parameter(torch.empty(config.buckets, config.width))
        self.output = nn.Parameter(torch.zeros(config.vocabulary, config.width))
        # As the published code.
        for table in (self.word, self.gram):
            nn.init.uniform_(table, -1 / config.width, 1 / config.width)
        self.register_buffer("grams", torch.empty(0, dtype=torch.int64), persistent=False)
        self.register_buffer("begins", torch.empty(0, dtype=torch.int64), persistent=False)
        #: `begins` on the host.
        self._known_begins = self.begins
        self._spelt: list[str] = []
        self._spelling: Callable[[int], str] | None = None
        self._foreign: dict[int, list[int]] = {}

    def losses(self, batch: Batch, carry: Carry = ()) -> Losses:
        tokens_BT = batch["tokens"]
        # On a GPU, `unique` in `embed` would synchronise with the device.
        flat = both(torch.flatten, tokens_BT)
        in_BTD = self._known(flat).view(*tokens_BT.shape, -1) if tokens_BT.is_cuda else self.embed(tokens_BT)
        out_BUD = F.embedding(torch.cat([tokens_BT, batch["noise"]], 1), self.output)
        total = skip_gram(in_BTD, out_BUD, batch["left"], batch["right"], negatives=self.config.negatives)
        pairs = batch["pairs"].sum()
        return Losses(total / pairs.to(total.dtype), {"tokens": (total.detach(), pairs)})

    def embed(self, tokens: Tensor) -> Tensor:
        # Each distinct word is composed once.
        distinct_W, indices = on_host(tokens).unique(return_inverse=True)
        inside = int((distinct_W < self.config.vocabulary).sum())
        vectors_WD = self._known(move(distinct_W[:inside], tokens.device))
        if inside < len(distinct_W):
            vectors_WD = torch.cat(
                [vectors_WD, self._unseen([self._buckets(id_) for id_ in distinct_W[inside:].tolist()])]
            )
        return F.embedding(move(indices, tokens.device), vectors_WD)

    def vector(self, word: str) -> Tensor:
        """(D,) float32, on the CPU, of any word; UNK's vector if the word is too short for an n-gram."""
        if word in self._indices:
            return super().vector(word)
        with torch.no_grad():
            return self._unseen([ngram_buckets(word, self.config)])[0].float().cpu()

    def bind(self, tokenizer: Tokenizer) -> None:
        super().bind(tokenizer)
        self._spelling = tokenizer.spelling
        self._foreign = {}
        self._spell([""] * FIRST_ORDINARY + tokenizer.pieces[FIRST_ORDINARY:])

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [[self.word, self.gram]]

    def sparse_parameters(self) -> list[nn.Parameter]:
        return [self.gram] if self.config.sparse else []

    def remap_vocabulary(self, rows: Tensor) -> None:
        super().remap_vocabulary(rows)
        if self._spelt:
            # New pieces have no spelling until `bind`.
            self._spell([self._spelt[row] if row >= 0 else "" for row in rows.tolist()])

    def _spell(self, pieces: Sequence[str]) -> None:
        self._spelt = list(pieces)
        buckets = [ngram_buckets(piece, self.config) if piece else [] for piece in pieces]
        self.grams, self.begins = _ragged(buckets, self.word.device)
        self._known_begins = on_host(self.begins)

    def _known(self, tokens_N: Tensor) -> Tensor:
        words_ND = F.embedding(tokens_N, self.word)
        if not len(self.begins):
            return words_ND
        first_N = self.begins[tokens_N]
        many_N = self.begins[tokens_N + 1] - first_N
        begins_N = many_N.cumsum(0) - many_N
        # Gather each word's n-grams from `grams`, word after word.
        known_N = on_host(tokens_N)
        total = int((self._known_begins[known_N + 1] - self._known_begins[known_N]).sum())
        moved_G = (first_N - begins_N).repeat_interleave(many_N, output_size=total)
        grams_G = self.grams[moved_G + torch.arange(len(moved_G), device=moved_G.device)]
        summed_ND = F.embedding_bag(grams_G, self.gram, begins_N, mode="sum", sparse=self.config.sparse)
        return (words_ND + summed_ND) / (many_N + 1).unsqueeze(1).to(words_ND.dtype)

    def _buckets(self, id_: int) -> list[int]:
        if id_ not in self._foreign:
            assert self._spelling is not None
            self._foreign[id_] = ngram_buckets(self._spelling(id_), self.config)
        return self._foreign[id_]

    def _unseen(self, buckets: list[list[int]]) -> Tensor:
        grams_G, begins_W = _ragged(buckets, self.gram.device)
        means_WD = F.embedding_bag(grams_G, self.gram, begins_W[:-1], mode="mean", sparse=self.config.sparse)
        return torch.where(begins_W.diff().unsqueeze(1) > 0, means_WD, self.word[UNK])


def _ragged(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    begins = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
    grams = torch.tensor([number for row in rows for number in row], dtype=torch.int64)
    return move(grams, device), move(begins, device)


FAMILY = ModelFamily(
    name="fasttext",
    config=FastTextConfig,
    build=FastText,
    objective="static",
    sampler="negative_sampling",
    tokenizers=("open_word", "word"),
    tiny={"width": 32, "context": 2, "noise_words": 4, "buckets": 50},
    # Section 4.2 of the paper and its code: width 300, 2,000,000 buckets, t = 1e-4.
    presets={"fasttext-300": {"width": 300, "buckets": 2_000_000, "sparse": True, "subsample": 1e-4}},
)
