"""Word vectors of a file (word2vec, GloVe, fastText or one's own) or of the same text, in embedding tables and static
channels.

Pieces are matched with the words of a file. Rows of an embedding table without a match keep their initial values, or
are mapped from co-occurrence vectors of the corpus (`training.vectors`), as in adaptation to a new vocabulary. Rows of
a static channel without a match are zero. The rows of the channel of a model of characters are words of the file.

Levy and Goldberg 2014 (Neural Word Embedding as Implicit Matrix Factorization): skip-gram with negative sampling
implicitly factorises pointwise mutual information, so its truncated singular value decomposition gives similar vectors
in seconds, computed by randomised subspace iteration (Halko, Martinsson and Tropp 2011):

    PMI+(w, c) = max(0, log #(w, c) / (#(w) p(c)))   with p(c) ~ #(c)^0.75        vectors = U sqrt(S)

Shape suffixes: V pieces, D width of the table, N words of the file, E their width.
"""

import warnings
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from components.core import threads
from components.core.artifacts import digest_files, read_manifest, writing
from components.core.errors import ArtifactError, ConfigError
from components.interchange.vectors import UNKNOWN, WordVectors, read_vectors
from components.models.base import LanguageModel
from components.models.layers.text_words import LONGEST, TextWords, packed
from components.tokenization import Tokenizer
from components.tokenization.special import FIRST_ORDINARY, UNK
from components.training.pretraining.cooccurrence import CHUNK, count_pairs
from components.training.windows import Tokens

KIND: Final = "word-vectors"
FILE: Final = "vectors.safetensors"


@dataclass(frozen=True)
class Matched:
    """The vectors of a file that belong to pieces.

    Attributes:
        rows: (V,) index of each piece's word in the file; -1: none. Of a model of characters (R,), for each row's word.
        pieces: number of ordinary pieces (or words of the text) with a vector, as a share of all.
        occurrences: the same share of their occurrences in the corpus; None if they were not counted.
    """

    rows: NDArray[np.int64]
    pieces: float
    occurrences: float | None

    def numbers(self) -> dict[str, float]:
        """The shares, for the metrics of a stage."""
        results = {"vectors_pieces": round(self.pieces, 4)}
        return results if self.occurrences is None else results | {"vectors_occurrences": round(self.occurrences, 4)}


def match(tokenizer: Tokenizer, read: WordVectors) -> Matched:
    """Match the pieces of a tokenizer with the words of a file: as written, and a piece that begins a word also by its
    text, as it is and in lower case. The first match counts. UNK has the names that published files use."""
    row_of = {word: row for row, word in enumerate(read.words)}
    rows = np.full(tokenizer.vocab_size, -1, dtype=np.int64)
    rows[UNK] = next((row_of[name] for name in UNKNOWN if name in row_of), -1)
    for index in range(FIRST_ORDINARY, tokenizer.vocab_size):
        forms = [tokenizer.pieces[index]]
        if not tokenizer.continues(index):
            surface = tokenizer.surface(index)
            forms += [surface, surface.lower()]
        rows[index] = next((row_of[form] for form in forms if form in row_of), -1)
    matched = rows[FIRST_ORDINARY:] >= 0
    occurrences = None
    if tokenizer.frequencies is not None and (counts := tokenizer.frequencies[FIRST_ORDINARY:]).any():
        occurrences = float(counts[matched].sum() / counts.sum())
    return Matched(rows, float(matched.mean()) if len(matched) else 0.0, occurrences)


#: Characters of the text over which the coverage by a channel of words is counted.
COUNTED: Final = 1_000_000


def prepare_vectors(
    path: Path,
    tokenizer: Tokenizer,
    *,
    digest: str | None,
    output: Path,
    model: LanguageModel | None = None,
    text: Tokens | None = None,
) -> Matched:
    """Match a file of vectors with a tokenizer, and write the matching vectors as the directory `output`, which a
    worker on another node can read.

    Args:
        model: whose static channel is filled, if it has one; only its sizes are read.
        text: in which the coverage of a channel of words is counted.

    Raises:
        DataError: the file is damaged.
        ArtifactError: it has another digest.
        ConfigError: no piece has a vector, or the channel has another width.
    """
    actual = digest_files([path])
    if digest is not None and actual != digest:
        raise ArtifactError(
            f"{path}: its digest is {actual}, expected {digest} (vectors_digest); it is not the file that was specified"
        )
    read = read_vectors(path)
    channel = None if model is None else model.static_vectors()
    width = read.vectors.shape[1]
    if channel is not None and channel.shape[1] != width:
        raise ConfigError(
            f"{path}: its vectors have {width} numbers, but model.static is {channel.shape[1]}; set model.static to "
            f"{width}"
        )
    if model is not None and (table := model.static_words()) is not None:
        return _prepare_words(read, tokenizer, rows=len(table), source=actual, output=output, text=text)
    matched = match(tokenizer, read)
    if not (matched.rows[FIRST_ORDINARY:] >= 0).any():
        raise ConfigError(f"{path}: none of its {len(read.words)} words is a piece of the vocabulary")
    pieces = np.flatnonzero(matched.rows >= 0).tolist()
    vectors = list(read.take(matched.rows[pieces]))
    # Words that a file of fastText lacks have the vectors of their n-grams.
    for index in (np.flatnonzero(matched.rows[FIRST_ORDINARY:] < 0) + FIRST_ORDINARY).tolist():
        if not tokenizer.continues(index) and (vector := read.unseen(tokenizer.surface(index))) is not None:
            pieces.append(index)
            vectors.append(vector)
    _write(output, {"vectors": torch.from_numpy(np.stack(vectors)), "pieces": torch.tensor(pieces)}, source=actual)
    return matched


def _prepare_words(
    read: WordVectors, tokenizer: Tokenizer, *, rows: int, source: str, output: Path, text: Tokens | None
) -> Matched:
    """The first `rows` words of a file that fit a row of `packed`, and their vectors."""
    chosen = [row for row, word in enumerate(read.words) if len(word.encode()) <= LONGEST and word.strip()][:rows]
    words = packed([read.words[row] for row in chosen])
    kept = np.asarray(chosen, dtype=np.int64)
    tensors = {"vectors": torch.from_numpy(read.take(kept)), "pieces": torch.arange(len(chosen)), "words": words}
    _write(output, tensors, source=source)
    counts: Counter[tuple[str, bool]] = Counter()
    if text is not None:
        reader = TextWords(words, tokenizer.pieces)
        sample = reader.text(text.span(0, min(COUNTED, text.tokens)).tolist())
        counts.update((sample[begin:end], row >= 0) for begin, end, row in reader.words(sample))
    if not counts:
        return Matched(kept, 0.0, None)
    present = [count for (_, inside), count in counts.items() if inside]
    return Matched(kept, len(present) / len(counts), sum(present) / counts.total())


def _write(output: Path, tensors: dict[str, Tensor], *, source: str) -> None:
    with writing(output, kind=KIND) as draft:
        save_file(tensors, draft.path / FILE)
        draft.facts |= {"source": source, "width": tensors["vectors"].shape[1]}


def fill_channel(model: LanguageModel, directory: Path) -> None:
    """Set the static channel of a model to the vectors of `prepare_vectors`; rows without a vector are zero."""
    read_manifest(directory, kind=KIND)
    stored = load_file(directory / FILE)
    channel, words = model.static_vectors(), model.static_words()
    assert channel is not None
    channel.zero_()[stored["pieces"]] = stored["vectors"].to(channel.device)
    if words is not None:
        words.zero_()[stored["pieces"]] = stored["words"].to(words.device)


@threads.limited(1)
def start_from_vectors(table: nn.Parameter, directory: Path, *, keep_scale: bool) -> NDArray[np.bool_]:
    """Copy vectors of `prepare_vectors` into an embedding table (V, D); returns (V,) bool, the rows that have one.

    Wider vectors are reduced to their first D principal directions, through the origin; narrower ones fill the first E
    columns, and the others keep their initial values. One thread, because rounding depends on the number of threads.

    Args:
        keep_scale: whether the vectors keep their length; otherwise they get the standard deviation of the table, for
            which the layers above are initialised.
    """
    read_manifest(directory, kind=KIND)
    stored = load_file(directory / FILE)
    vectors_NE, pieces_N = stored["vectors"], stored["pieces"]
    width = table.shape[1]
    if vectors_NE.shape[1] > width:
        exact_NE = vectors_NE.double()
        vectors_NE = (exact_NE @ principal_directions(exact_NE.t() @ exact_NE, width)).float()
    scale = 1.0 if keep_scale else float(table.detach().std() / vectors_NE.std().clamp_min(1e-12))
    with torch.no_grad():
        table[pieces_N, : vectors_NE.shape[1]] = (vectors_NE * scale).to(table.device)
    trained = np.zeros(len(table), dtype=np.bool_)
    trained[pieces_N.numpy()] = True
    return trained


def principal_directions(moments_EE: Tensor, width: int) -> Tensor:
    """(E, width) eigenvectors of the largest eigenvalues; the sign of each makes its largest coordinate positive."""
    _, directions_EE = torch.linalg.eigh(moments_EE)
    directions_ED = directions_EE.flip(1)[:, :width]
    signs_1D = directions_ED.gather(0, directions_ED.abs().argmax(0, keepdim=True)).sign()
    return directions_ED * signs_1D


#: Weight of a pair at distance 1, 2 ...: the expectation for word2vec's random window of 1 to 5.
WEIGHTS: Final = (1.0, 0.8, 0.6, 0.4, 0.2)
#: Maximum number of pieces that are counted, in evenly spaced chunks of the text.
MAX_PIECES: Final = 8_000_000
OVERSAMPLING: Final = 20
ITERATIONS: Final = 4
#: Ridge penalty of the linear map between two vector spaces.
RIDGE: Final = 10.0


class TextVectors:
    """Co-occurrence vectors of a text, whose pairs are counted once for all widths, when the first is asked for."""

    def __init__(self, store: Tokens, *, vocabulary: int) -> None:
        self.store, self.vocabulary = store, vocabulary
        self._made: dict[int, Tensor] = {}

    @cached_property
    def _counted(self) -> Tensor:
        return _counts(self.store, self.vocabulary)

    def of(self, width: int) -> Tensor:
        """(V, width) float32: vectors normalised to unit length, then centred; the same for any number of threads; must
        not be changed. Pieces that do not occur have the zero vector before centring; dimensions beyond the vocabulary
        size are zero."""
        if width not in self._made:
            self._made[width] = _vectors(self._counted, self.vocabulary, width)
        return self._made[width]


# One thread, because the rounding of products and decompositions depends on the number of threads.
@threads.limited(1)
def _vectors(counts: Tensor, vocabulary: int, width: int) -> Tensor:
    totals = counts.sum(1).to_dense()
    context = totals.pow(0.75)
    context /= context.sum()
    rows, columns = counts.indices()
    information = (counts.values() / (totals[rows] * context[columns])).log()
    kept = information > 0
    matrix = torch.sparse_coo_tensor(
        counts.indices()[:, kept], information[kept], (vocabulary, vocabulary), check_invariants=False
    )
    with warnings.catch_warnings():
        # "Sparse CSR tensor support is in beta state": products in CSR are three times as fast as in COO.
        warnings.simplefilter("ignore", UserWarning)
        by_row, by_column = matrix.to_sparse_csr(), matrix.t().to_sparse_csr()
    rank = min(width, vocabulary)
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(vocabulary, min(rank + OVERSAMPLING, vocabulary), generator=generator)
    for _ in range(ITERATIONS):
        basis = torch.linalg.qr(by_row @ (by_column @ basis)).Q
    small = (by_column @ basis).t()
    left, values, _ = torch.linalg.svd(small, full_matrices=False)
    vectors = torch.zeros(vocabulary, width)
    vectors[:, :rank] = (basis @ left)[:, :rank] * values[:rank].sqrt()
    # The vector of a piece without co-occurrences consists of rounding errors.
    vectors[totals == 0] = 0
    vectors /= vectors.norm(dim=1, keepdim=True).clamp_min(1e-6)
    return vectors - vectors.mean(0)


@threads.limited(1)
def initialise_embeddings(table: nn.Parameter, vectors: Tensor, *, trained: NDArray[np.bool_] | None = None) -> None:
    """Initialise an embedding table (V, D) with vectors (V, D), on the CPU; its scale does not change.

    `trained`: (V,) bool, rows that remain unchanged; the vectors of the others are mapped to the table's space by a
    linear map, fitted to the trained rows by ridge regression (after Mikolov, Le and Sutskever 2013)."""
    with torch.no_grad():
        if trained is None:
            table.copy_(vectors * (table.cpu().std() / vectors.std()))
            return
        anchors = torch.from_numpy(trained).clone()
        anchors[:FIRST_ORDINARY] = False
        new = torch.from_numpy(~trained)
        if int(anchors.sum()) < 2 or not bool(new.any()):
            return
        inputs = torch.cat([vectors / vectors.std(), torch.ones(len(vectors), 1)], dim=1).double()
        rows = table.cpu()
        learned = rows[anchors].double()
        square = inputs[anchors].t() @ inputs[anchors] + RIDGE * torch.eye(inputs.shape[1], dtype=torch.float64)
        mapped = inputs[new] @ torch.linalg.solve(square, inputs[anchors].t() @ learned)
        # Regression shrinks the predictions, so they are rescaled to the std of the trained rows.
        rows[new] = (mapped * (learned.std() / mapped.std().clamp_min(1e-6))).float()
        table.copy_(rows)


def _counts(store: Tokens, vocabulary: int) -> Tensor:
    chunks = max(1, min(store.tokens, MAX_PIECES) // CHUNK)
    length = min(CHUNK, store.tokens)
    starts = np.linspace(0, store.tokens - length, chunks).astype(np.int64)
    keys, counts = count_pairs(
        ((store.span(int(start), length), length) for start in starts), vocabulary=vocabulary, weights=WEIGHTS
    )
    low, high = torch.from_numpy(np.stack(np.divmod(keys, vocabulary)))
    values = torch.from_numpy(counts.astype(np.float32))
    # Both (i, j) and (j, i); on the diagonal the two are summed by coalescing.
    return torch.sparse_coo_tensor(
        torch.stack([torch.cat([low, high]), torch.cat([high, low])]),
        torch.cat([values, values]),
        (vocabulary, vocabulary),
        check_invariants=False,
    ).coalesce()
