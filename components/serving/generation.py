"""`headstart try`: continuations, pieces for gaps, translations, and neighbours and analogies of word vectors.

Sampling: temperature; top-k (Fan, Lewis and Dauphin 2018, Hierarchical Neural Story Generation); top-p, the smallest
set of pieces with total probability p (Holtzman et al. 2020, The Curious Case of Neural Text Degeneration). All are
pure functions of the logits and a seed.

Shape suffixes: T positions, V vocabulary, M gaps, D width.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional as F

from components.core.errors import ConfigError, DataError, nearest
from components.interchange.published import OUTPUT_BIASES
from components.models import family as family_named
from components.models.base import LanguageModel
from components.models.bidirectional import BidirectionalModel
from components.models.encoder import Encoder, load_encoder
from components.models.static import StaticVectors
from components.models.translation import TranslationModel
from components.tokenization import Tokenizer
from components.tokenization.special import END, FIRST_ORDINARY, MASK, SPECIAL_PIECES, UNK

#: Marks a gap in a text; three or more underscores do so too.
GAP: Final = "[MASK]"
GAPS: Final = re.compile(r"\[MASK\]|_{3,}")

#: Pieces or words with their probabilities or cosines, best first.
Scored = list[tuple[str, float]]


@dataclass(frozen=True)
class Sampling:
    """How the next piece is sampled.

    Attributes:
        temperature: divisor of the logits; 0: greedy decoding.
        top_k: sample from the k most probable pieces; 0: all.
        top_p: of these, sample from the smallest set with at least this total probability.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        problems = [
            *(["temperature must be at least 0 (greedy)"] if not self.temperature >= 0 else []),
            *(["top-k must be at least 0 (all)"] if self.top_k < 0 else []),
            *(["top-p must be above 0 and at most 1"] if not 0 < self.top_p <= 1 else []),
        ]
        if problems:
            raise ConfigError(f"sampling: {'; '.join(problems)}")


def probabilities(logits_V: Tensor, sampling: Sampling) -> Tensor:
    """(V,) logits -> (V,) float64 sampling distribution. Pieces with equal logits are ordered by id."""
    logits_V = logits_V.double()
    if sampling.temperature == 0:
        return torch.zeros_like(logits_V).index_fill_(0, logits_V.argmax(), 1.0)
    ordered_V, order_V = (logits_V / sampling.temperature).sort(descending=True, stable=True)
    if sampling.top_k:
        ordered_V[sampling.top_k :] = -torch.inf
    sorted_V = ordered_V.softmax(0)
    # A piece is kept if the pieces before it have not reached p, so the first one always is.
    before_V = sorted_V.cumsum(0) - sorted_V
    kept_V = sorted_V.masked_fill(before_V >= sampling.top_p, 0)
    return torch.zeros_like(logits_V).index_copy_(0, order_V, kept_V / kept_V.sum())


@torch.no_grad()
def generate(
    model: LanguageModel, prompt: Sequence[int], *, length: int, sampling: Sampling, seed: int = 0
) -> list[int]:
    """Ids that continue `prompt`: at most `length`, up to END. Special pieces are not sampled. Each piece takes one
    step of the model, which carries its state. Where the positions of the model end, it reads the last half of them
    again as the beginning of a window."""
    room, context = model.max_tokens, list(prompt)
    if room is not None and len(context) > room:
        context = context[-max(1, room // 2) :]
    generator = torch.Generator().manual_seed(seed)
    model.eval()
    device = next(model.parameters()).device
    written: list[int] = []
    logits, carry = model.predict(torch.tensor([context], device=device))
    while len(written) < length:
        last_V = logits[0, -1].float().cpu()
        last_V[[id_ for id_ in range(FIRST_ORDINARY) if id_ != END]] = -torch.inf
        sampled = int(torch.multinomial(probabilities(last_V, sampling), 1, generator=generator))
        if sampled == END:
            break
        written.append(sampled)
        context.append(sampled)
        if len(written) == length:
            break
        if room is not None and len(context) > room:
            context = context[-max(1, room // 2) :]
            logits, carry = model.predict(torch.tensor([context], device=device))
        else:
            logits, carry = model.predict(torch.tensor([[sampled]], device=device), carry)
    return written


def continue_text(
    model: LanguageModel, tokenizer: Tokenizer, text: str, *, length: int, sampling: Sampling, seed: int = 0
) -> str:
    ids = known_ids(tokenizer, text)
    around = model.special_tokens([-1])
    # Only the special pieces before the text: those after it would end it.
    prompt = [*around[: around.index(-1)], *ids]
    return tokenizer.decode([*ids, *generate(model, prompt, length=length, sampling=sampling, seed=seed)])


@torch.no_grad()
def fill_gaps(model: LanguageModel, tokenizer: Tokenizer, text: str, *, count: int = 5) -> list[Scored]:
    """The `count` most probable pieces with their probabilities, for each gap in `text`."""
    parts = GAPS.split(text)
    if len(parts) == 1:
        raise DataError(f"{text!r}: has no gap; write {GAP} in place of a word")
    if tokenizer.leads_with_space:
        # The space before a gap is part of the predicted piece.
        parts[:-1] = [part.rstrip() for part in parts[:-1]]
    pieces: list[int] = []
    for index, part in enumerate(parts):
        pieces += [*([MASK] if index else []), *known_ids(tokenizer, part)]
    tokens = model.special_tokens(pieces)
    if model.max_tokens is not None and len(tokens) > model.max_tokens:
        raise ConfigError(f"{len(tokens)} pieces exceed the model's {model.max_tokens} positions")
    logits, _ = model.eval().predict(torch.tensor([tokens], device=next(model.parameters()).device))
    gaps_M = [index for index, id_ in enumerate(tokens) if id_ == MASK]
    logits_MV = logits[0, gaps_M].float().cpu()
    logits_MV[:, :FIRST_ORDINARY] = -torch.inf
    best = logits_MV.softmax(1).topk(min(count, tokenizer.vocab_size - FIRST_ORDINARY), dim=1)
    return [
        [(tokenizer.pieces[id_], probability) for id_, probability in zip(ids, values, strict=True)]
        for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


@torch.no_grad()
def fill_between(model: BidirectionalModel, tokenizer: Tokenizer, text: str, *, count: int = 5) -> Scored:
    """The `count` most probable pieces for the gap of `text`, with

        p(w | left, right), proportional to p_forward(w | left) p_backward(w | right) / p(w)

    by Bayes' rule, if both sides are independent given w; p(w) is the frequency in the tokenizer's text, or constant if
    the tokenizer is imported. Normalised over the ordinary pieces. Raises DataError: the text has more than one gap, or
    none.
    """
    parts = GAPS.split(text)
    if len(parts) != 2:
        raise DataError(f"{text!r}: has {len(parts) - 1} gaps; write one {GAP} or ___, each direction reads up to it")
    left, right = (known_ids(tokenizer, part if tokenizer.kind == "char" else part.strip()) for part in parts)
    device = next(model.parameters()).device
    around = model.special_tokens([*left, MASK, *right])
    gap = around.index(MASK)
    forward, _ = model.eval().predict(torch.tensor([around[:gap]], device=device))
    backward = model.predict_backward(torch.tensor([around[gap + 1 :]], device=device))
    scores_V = forward[0, -1].double().log_softmax(0) + backward[0, 0].double().log_softmax(0)
    scores_V = scores_V.cpu()
    if tokenizer.frequencies is not None:
        scores_V -= torch.from_numpy(tokenizer.log_frequencies()).double()
    scores_V[:FIRST_ORDINARY] = -torch.inf
    best = scores_V.softmax(0).topk(min(count, tokenizer.vocab_size - FIRST_ORDINARY))
    return [
        (tokenizer.pieces[id_], value) for id_, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def translate_text(model: TranslationModel, tokenizer: Tokenizer, text: str, *, length: int) -> str:
    """The translation of a text with greedy decoding, at most `length` pieces."""
    (pieces,) = tokenizer.encode_batch([text])
    if not len(pieces):
        raise DataError("the text is empty: nothing to translate")
    tokens = torch.tensor([model.special_tokens(pieces.tolist())])
    collected = model.eval().translate(tokens, torch.tensor([tokens.shape[1]]), most=length)
    return tokenizer.decode(collected[0].tolist())


def nearest_to(model: StaticVectors, tokenizer: Tokenizer, expression: str, *, count: int = 10) -> Scored:
    """The words nearest to a word or a sum of words, such as "king - man + woman", and their cosines: 3CosAdd with
    vectors of length 1 (Mikolov, Yih and Zweig 2013). The words of the expression are excluded."""
    words: list[str] = []
    signs: list[int] = []
    sign = 1
    expected = True
    for part in expression.split():
        if not expected and part in ("+", "-"):
            sign, expected = (1 if part == "+" else -1), True
        elif expected and part not in ("+", "-"):
            words.append(part)
            signs.append(sign)
            expected = False
        else:
            raise DataError(f"{expression!r}: expected words with + or - between them, such as king - man + woman")
    if expected:
        raise DataError(f"{expression!r}: expected {'a word' if not words else 'a word after the last sign'}")
    lowercase = getattr(tokenizer, "lowercase", False)
    spelled = [word.lower() if lowercase else word for word in words]
    vectors_D = [torch.nn.functional.normalize(model.vector(word), dim=0) for word in spelled]
    query_D = sum((vector * sign for vector, sign in zip(vectors_D, signs, strict=True)), torch.zeros(()))
    return nearest_words(model.vectors(), tokenizer.pieces, query_D, count=count, without=spelled)


def known_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text that the vocabulary covers completely.

    Raises:
        DataError: names the unknown words or characters.
    """
    ids, spans = tokenizer.encode_with_offsets(text)
    unknown = dict.fromkeys(text[start:end] for id_, (start, end) in zip(ids, spans, strict=True) if id_ == UNK)
    if unknown:
        named = ", ".join(map(repr, list(unknown)[:5]))
        what = "not in the alphabet:" if tokenizer.kind == "char" else "not in the vocabulary:"
        close = nearest(next(iter(unknown)), tokenizer.pieces[FIRST_ORDINARY:]) if len(unknown) == 1 else ""
        raise DataError(f"{what} {named}{close if close.startswith('; did') else ''}")
    return [int(id_) for id_ in ids]


def nearest_words(
    table_VD: Tensor, pieces: Sequence[str], query_D: Tensor, *, count: int = 10, without: Collection[str] = ()
) -> list[tuple[str, float]]:
    """The pieces with the highest cosine similarity to the query, in descending order, with their cosines.

    Raises:
        DataError: table and pieces differ in length, or the query is zero.
    """
    if len(table_VD) != len(pieces):
        raise DataError(f"{len(table_VD)} vectors for {len(pieces)} pieces; use those of the same model")
    if not bool(query_D.any()):
        raise DataError("the query is a zero vector, which has no neighbours")
    cosines_V = F.normalize(table_VD.float(), dim=1) @ F.normalize(query_D.float(), dim=0)
    # Special pieces are first in every vocabulary that was trained here, but absent in imported word lists.
    special = FIRST_ORDINARY if tuple(pieces[:FIRST_ORDINARY]) == SPECIAL_PIECES else 0
    cosines_V[:special] = -torch.inf
    excluded = [index for index, piece in enumerate(pieces) if piece in without] if without else []
    cosines_V[excluded] = -torch.inf
    best, indices = cosines_V.topk(min(count, len(pieces)))
    collected = zip(indices.tolist(), best.tolist(), strict=True)
    return [(pieces[index], cosine) for index, cosine in collected if cosine != float("-inf")]


def try_model(
    directory: Path, text: str, *, length: int, count: int, sampling: Sampling, seed: int
) -> tuple[list[str], list[tuple[str, ...]]]:
    """Columns and rows: continuations of a text, candidates for its gaps, a translation, or the nearest words.

    Args:
        text: the prompt; with [MASK] or ___ for masked families, ELMo and FLAIR; an expression of words for word
            vectors.
        length: maximum number of pieces to generate (causal families and translators).
        count: number of continuations, of candidates per gap, or of words.
    """
    if count < 1 or length < 1:
        raise ConfigError("count and length must be at least 1")
    encoder = load_encoder(Path(directory))
    require_output_layer(encoder)
    model, tokenizer = encoder.model, encoder.tokenizer
    objective = family_named(encoder.family).objective
    if isinstance(model, BidirectionalModel) and GAPS.search(text):
        return ["piece", "probability"], [
            (piece, f"{probability:.4f}") for piece, probability in fill_between(model, tokenizer, text, count=count)
        ]
    if objective == "causal":
        copies = 1 if sampling.temperature == 0 else count
        texts = [
            continue_text(model, tokenizer, text, length=length, sampling=sampling, seed=seed + copy)
            for copy in range(copies)
        ]
        return ["seed", "text"], [(str(seed + copy), written) for copy, written in enumerate(texts)]
    if objective in ("masked", "permuted"):
        gaps = fill_gaps(model, tokenizer, text, count=count)
        return ["gap", "piece", "probability"], [
            (str(gap), piece, f"{probability:.4f}") for gap, best in enumerate(gaps, 1) for piece, probability in best
        ]
    if isinstance(model, TranslationModel):
        return ["translation"], [(translate_text(model, tokenizer, text, length=length),)]
    if isinstance(model, StaticVectors):
        return ["word", "cosine"], [
            (word, f"{cosine:.4f}") for word, cosine in nearest_to(model, tokenizer, text, count=count)
        ]
    raise ConfigError(f"the family {encoder.family!r} has neither a language model nor word vectors")


def require_output_layer(encoder: Encoder) -> None:
    """Refuse an encoder that was imported without its output layer: a newly initialised one predicts nothing useful."""
    fresh = encoder.manifest.facts.get("fresh", []) if encoder.manifest else []
    if lacking := [name for name in fresh if name.endswith(OUTPUT_BIASES)]:
        raise ConfigError(
            f"{encoder.family}: imported without its output layer ({lacking[0]}), so it cannot predict; adapt it "
            "first, which trains that layer"
        )
