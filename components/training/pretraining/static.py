"""The stages `static-*`: word vectors from an encoder, for prediction without a pass through it.

model2vec (Tulkens and van Dongen 2024), with the weights of smooth inverse frequency (Arora, Liang and Ma 2017, A
Simple but Tough-to-Beat Baseline for Sentence Embeddings, section 3): for every piece v of the vocabulary

    e(v) = mean over positions of the encoder's last layer for "[CLS] v [SEP]"
    t(v) = a / (a + p(v)) * (first D principal components of e(v))

The vector of a text is then the mean of its t(v). In a second step, as in model2vec's training on texts without
labels, the vectors learn to give the encoder's means of N passages of the domain: with X (N, V) the shares of the
pieces in each passage, and Y (N, D) the first principal components of the encoder's means of the passages,

    T = argmin |X T - Y|^2 + PRIOR |T - T0|^2

where T0 are the vectors of the first step after the linear map that is closest to Y. The problem is linear, so it is
solved by conjugate gradients instead of stochastic descent. The result is an encoder directory of the family word2vec.

Shape suffixes: V pieces, W words, T positions, E width of the encoder, D width of the vectors, N passages.
"""

import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from components.core import threads
from components.core.artifacts import read_manifest, writing
from components.core.errors import ConfigError, DataError
from components.core.progress import Progress
from components.models.base import LanguageModel
from components.models.encoder import KIND, Encoder, build_model, load_encoder, save_encoder, write_untrained
from components.settings.params import STATIC_FAMILY
from components.settings.section import Section
from components.settings.tokenizer import WordSettings
from components.settings.training import StaticSettings
from components.tokenization import Tokenizer
from components.tokenization.base import Ids
from components.tokenization.bert import count_words
from components.tokenization.special import FIRST_ORDINARY, UNK
from components.tokenization.train import choose_segmentation, count_pieces, sample
from components.tokenization.word import WordTokenizer, frequent_words, ranked
from components.tokenization.wordpiece import WordPieceTokenizer
from components.tokenization.words import encode_words
from components.training.pretraining.word_vectors import principal_directions
from components.training.rng import counter_seed

#: Number of pieces of a batch of the encoder.
BATCH_PIECES: Final = 2048
#: Minimum number of occurrences of a word that gets a vector of its own.
LEAST_COUNT: Final = 3
#: Passages of the second step, evenly spaced in the sample, and their length in characters. With fewer than
#: LEAST_PASSAGES the vectors stay those of the first step.
PASSAGES: Final = 10_000
PASSAGE: Final = 300
LEAST_PASSAGES: Final = 1_000
#: Weight of the first step: a piece in one passage of ten pieces has as much evidence.
PRIOR: Final = 0.01
#: Steps of the conjugate gradients.
STEPS: Final = 60
#: a of the weight a / (a + p) of a piece, p its relative frequency in the domain corpus (smooth inverse frequency).
#: Arora et al. 2017 use 1e-3 to 1e-4 for vectors that are compared as they are; a trained head also uses what frequent
#: words say.
SMOOTHING: Final = 1e-2


class StaticJob(Section):
    """Inputs and output of the stage.

    Attributes:
        corpus: output directory of the stage `ingest`: text for the frequencies of pieces, and the words.
        word: `tokenizer.word`, for a vocabulary of words.
        sample_megabytes: of `tokenizer`.
        seed: of random vectors, if the teacher is not trained.
    """

    name: str = ""
    teacher: Path
    corpus: Path
    output: Path
    settings: StaticSettings
    word: WordSettings = WordSettings()
    sample_megabytes: float = 16
    seed: int = 0


def static(job: StaticJob) -> Path:
    """Write an encoder directory with the word vectors of an encoder; returns it. An encoder with random weights gives
    random vectors, and the fact `trained: false`.

    Raises:
        ArtifactError: the encoder or the corpus is incomplete.
        ConfigError: the encoder reads characters, and no words are requested.
        DataError: the corpus has too few words.
    """
    teacher = load_encoder(job.teacher)
    if teacher.tokenizer.kind == "char" and not job.settings.words:
        raise ConfigError(
            f"static.{job.name}: {job.settings.teacher} reads characters, which have no useful vectors; set "
            f"static.{job.name}.words to a number of words, such as 20000"
        )
    texts = list(sample(job.corpus, megabytes=job.sample_megabytes))
    tokenizer = _vocabulary(job, teacher.tokenizer, texts)
    frequencies = tokenizer.frequencies
    assert frequencies is not None  # counted in the sample
    if teacher.trained:
        vectors_VE = encode_pieces(teacher, tokenizer, name=f"static {job.name}")
        table_VD = reduce(vectors_VE, width=job.settings.width)
        weights_V = piece_weights(frequencies, smoothing=SMOOTHING)
        table_VD = table_VD * torch.from_numpy(weights_V).float()[:, None]
        if len(passages := cut_passages(texts)) >= LEAST_PASSAGES:
            table_VD = learn_means(teacher, tokenizer, table_VD, passages, name=f"static {job.name}")
        settings: dict[str, Any] = {"width": table_VD.shape[1]}
    else:
        settings = {"width": min(job.settings.width, _width(teacher.model))}
    torch.manual_seed(counter_seed(job.seed, "weights"))
    model = build_model(STATIC_FAMILY, vocabulary=tokenizer.vocab_size, settings=settings)
    if teacher.trained:
        model.load_state_dict({"input": table_VD, "output": torch.zeros_like(table_VD)})
    with writing(job.output, kind=KIND) as draft, tempfile.TemporaryDirectory() as folder:
        tokenizer.save(Path(folder))
        save_encoder(draft.path, family=STATIC_FAMILY, model=model, tokenizer=Path(folder))
        write_untrained(draft.path, model, pieces=tokenizer.vocab_size, width=settings["width"])
        draft.facts |= {
            "trained": teacher.trained,
            "family": STATIC_FAMILY,
            "tokenizer": tokenizer.fingerprint(),
            "parent": read_manifest(job.teacher).digest,
            "teacher": {"family": teacher.family, "tokenizer": teacher.tokenizer.fingerprint()},
            "corpus": read_manifest(job.corpus).digest,
            "settings": job.settings.model_dump(mode="json"),
            "seed": job.seed,
            "torch": torch.__version__,
        }
    return job.output


def _vocabulary(job: StaticJob, teacher: Tokenizer, texts: Sequence[str]) -> Tokenizer:
    """The tokenizer of the vectors, with its frequencies: the teacher's; with `words` and WordPiece, with words as
    further pieces; with `words` and another kind, a vocabulary of words."""
    if not job.settings.words:
        tokenizer = teacher
    elif isinstance(teacher, WordPieceTokenizer):
        tokenizer = with_words(teacher, texts, count=job.settings.words)
    else:
        tokenizer = word_vocabulary(job, texts)
    spaced = [tokenizer.segmentation.spaced(text, tokenizer.separator) for text in texts]
    count_pieces(tokenizer, spaced)
    return tokenizer


def with_words(teacher: WordPieceTokenizer, texts: Sequence[str], *, count: int) -> WordPieceTokenizer:
    """A WordPiece vocabulary with the `count` most frequent words of the texts as further pieces, which are no longer
    split, because WordPiece takes the longest piece that matches."""
    words = count_words([teacher.segmentation.spaced(text) for text in texts], teacher.backend)
    for piece in teacher.pieces:
        del words[piece]
    return WordPieceTokenizer(
        [*teacher.pieces, *ranked(words, least=LEAST_COUNT)[:count]],
        segmentation=teacher.segmentation,
        lowercase=teacher.lowercase,
        strip_accents=teacher.strip_accents,
    )


def word_vocabulary(job: StaticJob, texts: Sequence[str]) -> WordTokenizer:
    """A vocabulary of the `job.settings.words` most frequent words, by the rules of `tokenizer.word`."""
    segmentation = choose_segmentation(list(texts))
    spaced = [segmentation.spaced(text) for text in texts]
    tokenizer = frequent_words(spaced, settings=job.word, segmentation=segmentation, most=job.settings.words or 0)
    if tokenizer.vocab_size == FIRST_ORDINARY:
        raise DataError(
            f"{job.corpus}: no word occurs {job.word.min_frequency} times (tokenizer.word.min_frequency); add text"
        )
    return tokenizer


def encode_pieces(teacher: Encoder, tokenizer: Tokenizer, *, name: str) -> Tensor:
    """(V, E) float32: the teacher's vector of a piece alone, the special pieces of the family included. Pieces
    that the teacher lacks are read as words. The vectors of the special pieces other than UNK are 0."""
    ids = {piece: index for index, piece in enumerate(teacher.tokenizer.pieces)}
    others = [piece for piece in tokenizer.pieces[FIRST_ORDINARY:] if piece not in ids]
    spelt = dict(zip(others, encode_words(teacher.tokenizer, [[piece] for piece in others]), strict=True))
    room, sequences = room_of(teacher.model), {}
    for index, piece in enumerate(tokenizer.pieces):
        if index == UNK or index >= FIRST_ORDINARY:
            pieces = [ids[piece]] if piece in ids else spelt[piece].ids.tolist()[:room]
            sequences[index] = teacher.model.special_tokens(pieces or [UNK])
    return mean_states(teacher.model, sequences, rows=tokenizer.vocab_size, name=name)


def room_of(model: LanguageModel) -> int | None:
    """Maximum number of pieces of a text; None: no limit."""
    return None if model.max_tokens is None else model.max_tokens - len(model.special_tokens([]))


def mean_states(model: LanguageModel, sequences: Mapping[int, Sequence[int]], *, rows: int, name: str) -> Tensor:
    """(rows, E) float32: the vector of each sequence (`LanguageModel.vectors_of`), by its row; other rows are 0."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for row, sequence in sequences.items():
        by_length[len(sequence)].append(row)
    results = torch.zeros(rows, _width(model.eval()))
    with Progress(name, total=len(sequences), unit="sequences") as bar, torch.inference_mode():
        for length, group in sorted(by_length.items()):
            size = max(1, BATCH_PIECES // length)
            for chosen in (group[start : start + size] for start in range(0, len(group), size)):
                tokens_BT = torch.tensor([sequences[row] for row in chosen])
                results[chosen] = _vectors(model, tokens_BT)
                bar.advance(len(chosen))
    return results


def cut_passages(texts: Sequence[str]) -> list[str]:
    """At most PASSAGES passages of at most PASSAGE characters, evenly spaced, cut at spaces where there are some."""
    passages = []
    for text in texts:
        start = 0
        while start < len(text):
            end = start + PASSAGE
            if end < len(text):
                space = text.rfind(" ", start + 1, end + 1)
                end = space if space > start else end
            if passage := text[start:end].strip():
                passages.append(passage)
            start = end
    chosen = np.linspace(0, len(passages) - 1, min(PASSAGES, len(passages))).astype(np.int64)
    return [passages[number] for number in chosen]


def learn_means(
    teacher: Encoder, tokenizer: Tokenizer, table_VD: Tensor, passages: Sequence[str], *, name: str
) -> Tensor:
    """(V, D) float32: the vectors after the second step. Special pieces other than UNK stay 0."""
    room = room_of(teacher.model)
    read = teacher.tokenizer.encode_texts(passages)
    sequences = {row: teacher.model.special_tokens(ids[:room].tolist() or [UNK]) for row, ids in enumerate(read)}
    means_NE = mean_states(teacher.model, sequences, rows=len(passages), name=f"{name} passages")
    return fit_means(piece_shares(tokenizer.encode_batch(passages), pieces=len(table_VD)), means_NE, table_VD)


@threads.limited(1)
def fit_means(shares_NV: sparse.csr_array, means_NE: Tensor, table_VD: Tensor) -> Tensor:
    """The vectors (V, D) after the second step, from the shares of the pieces in passages, and the encoder's means."""
    centred = means_NE.double() - means_NE.double().mean(0)
    targets_ND = (centred @ principal_directions(centred.t() @ centred, table_VD.shape[1])).numpy()
    before_VD = table_VD.double().numpy()
    # The shares of a passage sum to 1, so that a constant in every row is the intercept.
    inputs = np.hstack([shares_NV @ before_VD, np.ones((len(centred), 1))])
    map_D1D = np.linalg.lstsq(inputs, targets_ND, rcond=None)[0]
    result = before_VD @ map_D1D[:-1] + map_D1D[-1]
    # Pieces that no passage has keep the vectors of the first step.
    used = np.unique(shares_NV.indices)
    result[used] = _ridge(shares_NV[:, used], targets_ND, result[used])
    result[[index for index in range(FIRST_ORDINARY) if index != UNK]] = 0
    return torch.from_numpy(result).float()


def piece_shares(encoded: Sequence[Ids], *, pieces: int) -> sparse.csr_array:
    """(N, V): the share of each piece in each passage."""
    lengths = np.asarray([len(ids) for ids in encoded])
    rows, columns = np.repeat(np.arange(len(encoded)), lengths), np.concatenate(encoded)
    values = np.repeat(1.0 / np.maximum(lengths, 1), lengths)
    return sparse.csr_array((values, (rows, columns)), shape=(len(encoded), pieces))


def _ridge(x: sparse.csr_array, y: NDArray[np.float64], start: NDArray[np.float64]) -> NDArray[np.float64]:
    """argmin |x t - y|^2 + PRIOR |t - start|^2, by conjugate gradients (Hestenes and Stiefel 1952)."""
    transposed = x.T.tocsr()
    change, residual = np.zeros_like(start), transposed @ (y - x @ start)
    direction, size = residual.copy(), (residual**2).sum(0)
    for _ in range(STEPS):
        image = transposed @ (x @ direction) + PRIOR * direction
        step = size / np.maximum((direction * image).sum(0), np.finfo(np.float64).tiny)
        change += step * direction
        residual -= step * image
        size, before = (residual**2).sum(0), size
        direction = residual + size / np.maximum(before, np.finfo(np.float64).tiny) * direction
    return start + change


@threads.limited(1)
def reduce(vectors_VE: Tensor, *, width: int) -> Tensor:
    """(V, D) float32: the first D principal components of the vectors, D at most `width`, E and the number of pieces.
    The directions follow from the ordinary pieces; the sign of each makes its largest coordinate positive. Special
    pieces other than UNK stay 0. One thread, because rounding depends on the number of threads."""
    ordinary = vectors_VE[FIRST_ORDINARY:].double()
    mean_E = ordinary.mean(0)
    centred = ordinary - mean_E
    kept = min(width, vectors_VE.shape[1], max(1, len(ordinary)))
    table_VD = (vectors_VE.double() - mean_E) @ principal_directions(centred.t() @ centred, kept)
    table_VD[[index for index in range(FIRST_ORDINARY) if index != UNK]] = 0
    return table_VD.float()


def piece_weights(frequencies: NDArray[np.int64], *, smoothing: float) -> NDArray[np.float64]:
    """(V,) a / (a + p), with a the smoothing and p the relative frequency of a piece; 1 for special pieces."""
    counts = frequencies[FIRST_ORDINARY:].astype(np.float64)
    weights = smoothing / (smoothing + counts / max(counts.sum(), 1e-12))
    return np.concatenate([np.ones(min(FIRST_ORDINARY, len(frequencies))), weights])


def _width(model: LanguageModel) -> int:
    with torch.no_grad():
        return _vectors(model, torch.tensor([model.special_tokens([UNK])])).shape[1]


def _vectors(model: LanguageModel, tokens_BT: Tensor) -> Tensor:
    """(B, E): not scaled to length 1, so that frequent pieces can be weighted down by their lengths."""
    lengths = torch.full((len(tokens_BT),), tokens_BT.shape[1])
    return model.vectors_of(model.hidden_states(tokens_BT, lengths)[-1], lengths, scaled=False)
