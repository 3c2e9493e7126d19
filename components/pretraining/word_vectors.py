"""A language model whose embedding table starts from word vectors of a file: word2vec, GloVe, fastText or one's own.

Pieces are matched with the words of the file. Rows without a match keep their initial values, or are mapped from
co-occurrence vectors of the corpus (`training.vectors`), as in adaptation to a new vocabulary.

Shape suffixes: V pieces, D width of the table, N words of the file, E their width.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from components.artifacts import digest_files, read_manifest, writing
from components.errors import ArtifactError, ConfigError
from components.interchange.vectors_text import UNKNOWN, WordVectors, read_vectors
from components.tokenization import Tokenizer
from components.tokenization.special import FIRST_ORDINARY, UNK
from components.training import threads

KIND: Final = "word-vectors"
FILE: Final = "vectors.safetensors"


@dataclass(frozen=True)
class Matched:
    """The vectors of a file that belong to pieces.

    Attributes:
        rows: (V,) index of each piece's word in the file; -1: none.
        pieces: number of ordinary pieces with a vector, as a share of all.
        occurrences: the same share of the pieces' occurrences in the corpus; None if they were not counted.
    """

    rows: NDArray[np.int64]
    pieces: float
    occurrences: float | None

    def numbers(self) -> dict[str, float]:
        """The shares, for the metrics of a stage."""
        found = {"vectors_pieces": round(self.pieces, 4)}
        return found if self.occurrences is None else found | {"vectors_occurrences": round(self.occurrences, 4)}


def match(tokenizer: Tokenizer, read: WordVectors) -> Matched:
    """Match the pieces of a tokenizer with the words of a file.

    A piece is matched as it is written, and a piece that begins a word also by its text, as it is and in lower case.
    The first match counts. UNK is matched with the names that published files use.
    """
    row_of = {word: row for row, word in enumerate(read.words)}
    rows = np.full(tokenizer.vocab_size, -1, dtype=np.int64)
    rows[UNK] = next((row_of[name] for name in UNKNOWN if name in row_of), -1)
    for index in range(FIRST_ORDINARY, tokenizer.vocab_size):
        forms = [tokenizer.pieces[index]]
        if not tokenizer.continues(index):
            surface = tokenizer.surface(index)
            forms += [surface, surface.lower()]
        rows[index] = next((row_of[form] for form in forms if form in row_of), -1)
    known = rows[FIRST_ORDINARY:] >= 0
    occurrences = None
    if tokenizer.frequencies is not None and (counts := tokenizer.frequencies[FIRST_ORDINARY:]).any():
        occurrences = float(counts[known].sum() / counts.sum())
    return Matched(rows, float(known.mean()) if len(known) else 0.0, occurrences)


def prepare_vectors(path: Path, tokenizer: Tokenizer, *, digest: str | None, output: Path) -> Matched:
    """Match a file of vectors with a tokenizer, and write the matching vectors as the directory `output`, which a
    worker on another node can read.

    Raises:
        DataError: the file is damaged.
        ArtifactError: it has another digest.
        ConfigError: no piece has a vector.
    """
    found = digest_files([path])
    if digest is not None and found != digest:
        raise ArtifactError(
            f"{path}: its digest is {found}, expected {digest} (vectors_digest); it is not the file that was specified"
        )
    read = read_vectors(path)
    matched = match(tokenizer, read)
    if not (matched.rows[FIRST_ORDINARY:] >= 0).any():
        raise ConfigError(f"{path}: none of its {len(read.words)} words is a piece of the vocabulary")
    known = matched.rows >= 0
    with writing(output, kind=KIND) as draft:
        tensors = {
            "vectors": torch.from_numpy(read.vectors[matched.rows[known]]),
            "pieces": torch.from_numpy(np.flatnonzero(known)),
        }
        save_file(tensors, draft.path / FILE)
        draft.facts |= {"source": found, "width": read.vectors.shape[1]}
    return matched


@threads.limited(1)
def start_from_vectors(table: nn.Parameter, directory: Path, *, keep_scale: bool) -> NDArray[np.bool_]:
    """Copy vectors of `prepare_vectors` into an embedding table (V, D); returns (V,) bool, the rows that have one.

    Wider vectors are reduced to their first D principal directions, through the origin; narrower ones fill the first E
    columns, and the others keep their initial values. One thread, because rounding depends on the number of threads.

    Args:
        table: of the model before training.
        directory: output of `prepare_vectors`.
        keep_scale: whether the vectors keep their length; otherwise they get the standard deviation of the table, for
            which the layers above are initialised.
    """
    read_manifest(directory, kind=KIND)
    stored = load_file(directory / FILE)
    vectors_NE, pieces_N = stored["vectors"], stored["pieces"]
    width = table.shape[1]
    if vectors_NE.shape[1] > width:
        vectors_NE = first_directions(vectors_NE, width)
    scale = 1.0 if keep_scale else float(table.detach().std() / vectors_NE.std().clamp_min(1e-12))
    with torch.no_grad():
        table[pieces_N, : vectors_NE.shape[1]] = (vectors_NE * scale).to(table.device)
    known = np.zeros(len(table), dtype=np.bool_)
    known[pieces_N.numpy()] = True
    return known


def first_directions(vectors_NE: Tensor, width: int) -> Tensor:
    """(N, width) coordinates in the directions of the largest second moments."""
    exact = vectors_NE.double()
    return (exact @ principal_directions(exact.t() @ exact, width)).float()


def principal_directions(moments_EE: Tensor, width: int) -> Tensor:
    """(E, width) eigenvectors of the largest eigenvalues; the sign of each makes its largest coordinate positive."""
    _, directions_EE = torch.linalg.eigh(moments_EE)
    directions_ED = directions_EE.flip(1)[:, :width]
    signs_1D = directions_ED.gather(0, directions_ED.abs().argmax(0, keepdim=True)).sign()
    return directions_ED * signs_1D
