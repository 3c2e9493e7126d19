"""Nearest neighbours of words in a table of word vectors or in the embedding layer of another family, with a map.

The map is the plane of the first two principal components, or t-SNE (van der Maaten and Hinton 2008).

Shape suffixes: V vocabulary, D width, N plotted pieces.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
import torch
import typer
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from torch import Tensor

from components.errors import ConfigError, DataError, nearest
from components.inference.neighbours import nearest_words
from components.models.base import LanguageModel
from components.models.encoder import Encoder
from components.models.static import StaticVectors
from components.reporting import figures
from components.reporting.chapters import Chapter, Drawing, Table
from components.reporting.figures import Cloud
from components.reporting.findings import Findings
from components.studies.base import Study
from components.studies.occurrences import of_letters
from components.studies.outputs import Outputs
from components.tokenization import Tokenizer
from components.tokenization.special import FIRST_ORDINARY, UNK

#: Number of default words, and number of more frequent words that are skipped: those have unspecific neighbours.
CHOSEN = 6
SKIPPED = 150
#: Pieces per batch for families that compute their vectors from characters.
ROWS = 1024


def run(
    outputs: Outputs,
    *,
    encoder: Annotated[str, typer.Option(help="Encoder, such as bert-adapted; one per family by default.")] = "",
    words: Annotated[str, typer.Option(help="Words, separated by commas; frequent ones by default.")] = "",
    count: Annotated[int, typer.Option(help="Number of neighbours per word.", min=1)] = 8,
    background: Annotated[
        int, typer.Option(help="Number of frequent words in the background of the map.", min=0)
    ] = 150,
    method: Annotated[Literal["pca", "tsne"], typer.Option(help="Projection of the map.")] = "pca",
) -> Findings:
    """Neighbours of words in one or several tables, and a map of each.

    Raises:
        ConfigError: unknown encoder, or a character model.
        ArtifactError: its stage has not run.
        DataError: a word is not a single piece of the vocabulary.
    """
    asked = [word.strip() for word in words.split(",") if word.strip()]
    chapter = Chapter("Neighbours of a word")
    numbers: dict[str, Any] = {}
    chosen = outputs.chosen(encoder)
    if not encoder and len(chosen) > 1:
        # By default, character models are skipped.
        chosen = [found for found in chosen if outputs.block(found[0]).tokenizer != "char"]
        if not chosen:
            raise ConfigError("run.families: all are character models, which have no table of words")
    for block, start in chosen:
        name = f"{block}-{start}"
        loaded = outputs.encoder(block, start)
        if loaded.tokenizer.kind == "char":
            raise ConfigError(f"{name}: is a character model, which has no table of words; choose another encoder")
        table_VD = table(loaded.model)
        written = readable(loaded.tokenizer)
        found: dict[str, list[tuple[str, float]]] = {}
        for word in asked or frequent_words(loaded.tokenizer, count=CHOSEN, skip=SKIPPED):
            query_D, own = _vector(loaded, table_VD, word)
            found[word] = nearest_words(table_VD, written, query_D, count=count, without=own)
        numbers[name] = {word: [list(entry) for entry in near] for word, near in found.items()}
        rows = [
            [word, ", ".join(f"{near} {cosine:.2f}" for near, cosine in entries)] for word, entries in found.items()
        ]
        chapter.tables.append(Table(["word", "nearest, with cosines"], rows, name))
        others = frequent_words(loaded.tokenizer, count=background, skip=0)
        svg = figures.scatter(_map(loaded, table_VD, written, found, others, method=method))
        made = "two principal components" if method == "pca" else "t-SNE"
        chapter.figures.append(Drawing(svg, f"{name}: words and their neighbours ({made}); grey: frequent words."))
    chapter.text.append(
        "For families other than word vectors the table is the embedding layer, which does not depend on the context."
    )
    return Findings(chapter, numbers)


@torch.inference_mode()
def table(model: LanguageModel) -> Tensor:
    """(V, D) float32 vectors of all pieces. Families without a table compute them from the pieces' characters."""
    if isinstance(model, StaticVectors):
        return model.vectors()
    weight = model.piece_embedding()
    if weight is not None:
        return weight.detach().float().cpu()
    framed = model.special_tokens([-1])
    position = framed.index(-1)
    found = []
    for first in range(0, model.config.vocabulary, ROWS):
        ids = torch.arange(first, min(first + ROWS, model.config.vocabulary))
        tokens = torch.tensor([framed]).repeat(len(ids), 1)
        tokens[:, position] = ids
        hidden = model.hidden_states(tokens, torch.full((len(ids),), len(framed)))
        found.append(hidden[0][:, position].float())
    return torch.cat(found)


def readable(tokenizer: Tokenizer) -> list[str]:
    """The surface forms of the pieces, all different. Pieces that continue a word keep their mark."""
    names = list(tokenizer.pieces)
    taken = set(names)
    for id_ in range(FIRST_ORDINARY, tokenizer.vocab_size):
        surface = tokenizer.surface(id_)
        if not tokenizer.continues(id_) and surface not in taken:
            taken.add(surface)
            names[id_] = surface
    return names


def frequent_words(tokenizer: Tokenizer, *, count: int, skip: int) -> list[str]:
    """The most frequent words of at least three letters that are a single piece, after skipping `skip` of them."""
    counts = tokenizer.frequencies
    order = np.arange(tokenizer.vocab_size) if counts is None else np.argsort(-counts, kind="stable")
    found: dict[str, None] = {}
    for id_ in order.tolist():
        if id_ < FIRST_ORDINARY or tokenizer.continues(id_):
            continue
        word = tokenizer.surface(id_)
        if len(word) >= 3 and of_letters(word) and _piece(tokenizer, word) == id_:
            found[word] = None
            if len(found) == skip + count:
                break
    # A small vocabulary may have fewer words to skip.
    return list(found)[-count:] if count else []


def _piece(tokenizer: Tokenizer, word: str) -> int | None:
    """The id of a word that is a single piece; None for other words."""
    (ids,) = tokenizer.encode_batch([f" {word}" if tokenizer.leads_with_space else word])
    return int(ids[0]) if len(ids) == 1 and ids[0] != UNK else None


def _vector(encoder: Encoder, table_VD: Tensor, word: str) -> tuple[Tensor, list[str]]:
    """A word's vector, and the names of the word itself, which are excluded from its neighbours.

    Raises:
        DataError: the word is not a single piece, and the family has no vectors for other words.
    """
    tokenizer, model = encoder.tokenizer, encoder.model
    spelled = word.lower() if getattr(tokenizer, "lowercase", False) else word
    own = [word, spelled]
    if isinstance(model, StaticVectors):
        return model.vector(spelled), own
    id_ = _piece(tokenizer, word)
    if id_ is None:
        (ids,) = tokenizer.encode_batch([word])
        parts = " + ".join(tokenizer.pieces[piece] for piece in ids)
        close = nearest(spelled, tokenizer.pieces[FIRST_ORDINARY:])
        raise DataError(
            f"{word!r} is not a single piece of the vocabulary but {parts or 'nothing'}"
            f"{close if close.startswith('; did') else ''}"
        )
    return table_VD[id_], [*own, tokenizer.pieces[id_]]


def _map(
    encoder: Encoder,
    table_VD: Tensor,
    written: list[str],
    found: dict[str, list[tuple[str, float]]],
    others: list[str],
    *,
    method: Literal["pca", "tsne"],
) -> dict[str, Cloud]:
    """The groups of the map: each word with its neighbours, and the frequent words in the background."""
    id_of = {name: id_ for id_, name in enumerate(written)}
    groups = {word: [word, *(near for near, _ in entries)] for word, entries in found.items()}
    shown = {name for names in groups.values() for name in names}
    groups = {"frequent words": [word for word in others if word not in shown and word in id_of], **groups}
    rows = [
        _vector(encoder, table_VD, name)[0] if name in found else table_VD[id_of[name]]
        for names in groups.values()
        for name in names
    ]
    vectors_ND = torch.nn.functional.normalize(torch.stack(rows), dim=1).numpy()
    positions_N2 = planar(vectors_ND, method=method)
    clouds = {}
    first = 0
    for group, names in groups.items():
        part_N2 = positions_N2[first : first + len(names)]
        first += len(names)
        background = group not in found
        if names:
            clouds[group] = Cloud(
                part_N2[:, 0].tolist(), part_N2[:, 1].tolist(), [] if background else names, background
            )
    return clouds


def planar(vectors_ND: np.ndarray, *, method: Literal["pca", "tsne"] = "pca") -> np.ndarray:
    """(N, D) -> (N, 2) projection, deterministic. For PCA, the largest absolute value of each axis is positive.

    Raises:
        DataError: fewer than three vectors.
    """
    if len(vectors_ND) < 3:
        raise DataError(f"{len(vectors_ND)} words are too few for a map; name at least three")
    if method == "tsne":
        perplexity = min(30.0, (len(vectors_ND) - 1) / 3)
        found: np.ndarray = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(vectors_ND)
        return found
    positions: np.ndarray = PCA(2, svd_solver="full").fit_transform(vectors_ND)
    largest = np.abs(positions).argmax(0)
    oriented: np.ndarray = positions * np.sign(positions[largest, [0, 1]])
    return oriented


STUDY = Study("neighbours", "Which words are nearest to a word?", run)
