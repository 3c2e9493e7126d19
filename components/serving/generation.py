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
from components.models.base import Carry, LanguageModel
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


def _predicted(model: LanguageModel, tokens: Sequence[int], carry: Carry = ()) -> tuple[Tensor, Carry]:
    """The (T, V) logits after each piece, and the state."""
    with torch.no_grad():
        logits, carry = model.eval().predict(
            torch.tensor([list(tokens)], device=next(model.parameters()).device), carry
        )
    return logits[0].float().cpu(), carry


def generate(
    model: LanguageModel, prompt: Sequence[int], *, length: int, sampling: Sampling, seed: int = 0
) -> list[int]:
    """Ids that continue `prompt`: at most `length`, up to END. Special pieces are not sampled. Each piece takes one
    step of the model, which carries its state. Where the positions of the model end, it reads the last half of them
    again as the beginning of a window."""
    generator, room = torch.Generator().manual_seed(seed), model.max_tokens
    written: list[int] = []
    unread, carry = list(prompt), Carry()
    context = unread
    while len(written) < length:
        if room is not None and len(context) > room:
            context = context[-max(1, room // 2) :]
            unread, carry = context, Carry()
        logits_TV, carry = _predicted(model, unread, carry)
        last_V = logits_TV[-1]
        last_V[[id_ for id_ in range(FIRST_ORDINARY) if id_ != END]] = -torch.inf
        sampled = int(torch.multinomial(probabilities(last_V, sampling), 1, generator=generator))
        if sampled == END:
            break
        written.append(sampled)
        unread = [sampled]
        context = context + unread
    return written


def continue_text(
    model: LanguageModel, tokenizer: Tokenizer, text: str, *, length: int, sampling: Sampling, seed: int = 0
) -> str:
    ids = known_ids(tokenizer, text)
    around = model.special_tokens([-1])
    # Only the special pieces before the text: those after it would end it.
    prompt = [*around[: around.index(-1)], *ids]
    return tokenizer.decode([*ids, *generate(model, prompt, length=length, sampling=sampling, seed=seed)])


def _best(scores_V: Tensor, tokenizer: Tokenizer, count: int) -> Scored:
    """The `count` most probable ordinary pieces with their probabilities, from their logits."""
    scores_V[:FIRST_ORDINARY] = -torch.inf
    best = scores_V.softmax(0).topk(min(count, tokenizer.vocab_size - FIRST_ORDINARY))
    return [
        (tokenizer.pieces[id_], value) for id_, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


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
    logits_TV, _ = _predicted(model, tokens)
    return [_best(logits_TV[index], tokenizer, count) for index, id_ in enumerate(tokens) if id_ == MASK]


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
    around = model.special_tokens([*left, MASK, *right])
    gap = around.index(MASK)
    forward_TV, _ = _predicted(model, around[:gap])
    with torch.no_grad():
        backward = model.predict_backward(torch.tensor([around[gap + 1 :]], device=next(model.parameters()).device))
    scores_V = forward_TV[-1].double().log_softmax(-1) + backward[0, 0].double().cpu().log_softmax(-1)
    if tokenizer.frequencies is not None:
        scores_V -= torch.from_numpy(tokenizer.log_frequencies()).double()
    return _best(scores_V, tokenizer, count)


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
    parts = expression.split()
    words, signs = parts[::2], ["+", *parts[1::2]]
    if {*words} & {"+", "-"} or {*signs} - {"+", "-"}:
        raise DataError(f"{expression!r}: expected words with + or - between them, such as king - man + woman")
    if len(parts) % 2 == 0:
        raise DataError(f"{expression!r}: expected {'a word after the last sign' if parts else 'a word'}")
    lowercase = getattr(tokenizer, "lowercase", False)
    spelled = [word.lower() if lowercase else word for word in words]
    vectors = [F.normalize(model.vector(word), dim=0) for word in spelled]
    query_D = sum((v if sign == "+" else -v for v, sign in zip(vectors, signs, strict=True)), torch.zeros(()))
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
    cosines_V[[index for index, piece in enumerate(pieces) if piece in without]] = -torch.inf
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
        return ["piece", "probability"], _shown(fill_between(model, tokenizer, text, count=count))
    if objective == "causal":
        seeds = range(seed, seed + (1 if sampling.temperature == 0 else count))
        several = (continue_text(model, tokenizer, text, length=length, sampling=sampling, seed=each) for each in seeds)
        return ["seed", "text"], [(str(each), written) for each, written in zip(seeds, several, strict=True)]
    if objective in ("masked", "permuted"):
        gaps = enumerate(fill_gaps(model, tokenizer, text, count=count), 1)
        return ["gap", "piece", "probability"], [(str(gap), *row) for gap, best in gaps for row in _shown(best)]
    if isinstance(model, TranslationModel):
        return ["translation"], [(translate_text(model, tokenizer, text, length=length),)]
    if isinstance(model, StaticVectors):
        return ["word", "cosine"], _shown(nearest_to(model, tokenizer, text, count=count))
    raise ConfigError(f"the family {encoder.family!r} has neither a language model nor word vectors")


def _shown(scored: Scored) -> list[tuple[str, ...]]:
    return [(piece, f"{value:.4f}") for piece, value in scored]


def require_output_layer(encoder: Encoder) -> None:
    """Refuse an encoder that was imported without its output layer: a newly initialised one predicts nothing useful."""
    fresh = encoder.manifest.facts.get("fresh", []) if encoder.manifest else []
    if lacking := [name for name in fresh if name.endswith(OUTPUT_BIASES)]:
        raise ConfigError(
            f"{encoder.family}: imported without its output layer ({lacking[0]}), so it cannot predict; adapt it "
            "first, which trains that layer"
        )
