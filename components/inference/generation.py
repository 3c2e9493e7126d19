"""What a language model says: text that goes on, pieces for a gap, translations, and sums of word vectors.

Sampling: temperature; the k most probable pieces (Fan, Lewis and Dauphin 2018, Hierarchical Neural Story Generation);
the smallest set of pieces that holds the probability p (Holtzman et al. 2020, The Curious Case of Neural Text
Degeneration, "nucleus"). All are pure functions of the logits and a seed.

Shape suffixes: T positions, V vocabulary, M gaps, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from components.errors import ConfigError, DataError, nearest
from components.inference.neighbours import nearest_words
from components.models.base import LanguageModel
from components.models.cove import CoVe
from components.models.static import StaticVectors
from components.tokenization import Tokenizer
from components.tokenization.special import END, FIRST_ORDINARY, MASK, UNK

#: How a gap is written in a text.
GAP: Final = "[MASK]"


@dataclass(frozen=True)
class Sampling:
    """How the next piece is drawn.

    Attributes:
        temperature: logits are divided by it; 0 takes the most probable piece (greedy).
        top_k: only the k most probable pieces; 0: all.
        top_p: of these, only the fewest that together have at least this probability.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        problems = [
            *(["temperature: 0 (greedy) or more"] if not self.temperature >= 0 else []),
            *(["top-k: 0 (all) or more"] if self.top_k < 0 else []),
            *(["top-p: above 0, at most 1"] if not 0 < self.top_p <= 1 else []),
        ]
        if problems:
            raise ConfigError(f"sampling: {'; '.join(problems)}")


def probabilities(logits_V: Tensor, sampling: Sampling) -> Tensor:
    """(V,) float64: what the next piece is drawn from. Of pieces with equal logits the one of lower id comes first."""
    logits_V = logits_V.double()
    if sampling.temperature == 0:
        return torch.zeros_like(logits_V).index_fill_(0, logits_V.argmax(), 1.0)
    ordered_V, order_V = (logits_V / sampling.temperature).sort(descending=True, stable=True)
    if sampling.top_k:
        ordered_V[sampling.top_k :] = -torch.inf
    shares_V = ordered_V.softmax(0)
    # A piece stays as long as those before it have not reached p: so one always does.
    before_V = shares_V.cumsum(0) - shares_V
    kept_V = shares_V.masked_fill(before_V >= sampling.top_p, 0)
    return torch.zeros_like(logits_V).index_copy_(0, order_V, kept_V / kept_V.sum())


@torch.no_grad()
def generate(
    model: LanguageModel, prompt: Sequence[int], *, length: int, sampling: Sampling, seed: int = 0
) -> list[int]:
    """Ids that go on after the ids of `prompt`: at most `length`, ending before END. No special piece is drawn.

    Each piece costs one step of the model, which carries its state along.

    Raises:
        ConfigError: the model predicts no pieces, or not those that come next; prompt and length are more than its
            positions.
    """
    room = model.max_tokens
    if room is not None and len(prompt) + length > room:
        raise ConfigError(
            f"{len(prompt)} pieces of text and {length} to come are more than the model's {room} positions; "
            "shorten the text or ask for fewer"
        )
    generator = torch.Generator().manual_seed(seed)
    model.eval()
    device = next(model.parameters()).device
    written: list[int] = []
    logits, carry = model.predict(torch.tensor([list(prompt)], device=device))
    while len(written) < length:
        last_V = logits[0, -1].float().cpu()
        last_V[[id_ for id_ in range(FIRST_ORDINARY) if id_ != END]] = -torch.inf
        drawn = int(torch.multinomial(probabilities(last_V, sampling), 1, generator=generator))
        if drawn == END:
            break
        written.append(drawn)
        if len(written) < length:
            logits, carry = model.predict(torch.tensor([[drawn]], device=device), carry)
    return written


def continued(
    model: LanguageModel, tokenizer: Tokenizer, text: str, *, length: int, sampling: Sampling, seed: int = 0
) -> str:
    """`text` and what the model writes after it.

    Raises:
        DataError: the text holds what the vocabulary does not know.
        ConfigError: as `generate`.
    """
    ids = known_ids(tokenizer, text)
    around = model.special_tokens([-1])
    # What stands behind a text would end it.
    prompt = [*around[: around.index(-1)], *ids]
    return tokenizer.decode([*ids, *generate(model, prompt, length=length, sampling=sampling, seed=seed)])


@torch.no_grad()
def filled(model: LanguageModel, tokenizer: Tokenizer, text: str, *, count: int = 5) -> list[list[tuple[str, float]]]:
    """For each "[MASK]" in `text` the `count` most probable pieces with their probabilities.

    Raises:
        DataError: no "[MASK]" in the text, or something that the vocabulary does not know.
        ConfigError: the model predicts no pieces; the text is longer than its positions.
    """
    parts = text.split(GAP)
    if len(parts) == 1:
        raise DataError(f"{text!r}: no gap to fill; write {GAP} where a word is missing")
    if tokenizer.leads_with_space:
        # The space before a gap belongs to the piece that is looked for.
        parts[:-1] = [part.rstrip() for part in parts[:-1]]
    pieces: list[int] = []
    for index, part in enumerate(parts):
        pieces += [*([MASK] if index else []), *known_ids(tokenizer, part)]
    tokens = model.special_tokens(pieces)
    if model.max_tokens is not None and len(tokens) > model.max_tokens:
        raise ConfigError(f"{len(tokens)} pieces are more than the model's {model.max_tokens} positions")
    logits, _ = model.eval().predict(torch.tensor([tokens], device=next(model.parameters()).device))
    gaps_M = [place for place, id_ in enumerate(tokens) if id_ == MASK]
    logits_MV = logits[0, gaps_M].float().cpu()
    logits_MV[:, :FIRST_ORDINARY] = -torch.inf
    best = logits_MV.softmax(1).topk(min(count, tokenizer.vocab_size - FIRST_ORDINARY), dim=1)
    return [
        [(tokenizer.pieces[id_], share) for id_, share in zip(ids, shares, strict=True)]
        for ids, shares in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def translated(model: CoVe, tokenizer: Tokenizer, text: str, *, length: int) -> str:
    """The most probable words of a translation, one after the other, `length` at most (greedy).

    Raises:
        DataError: the text is empty.
    """
    (pieces,) = tokenizer.encode_batch([text])
    if not len(pieces):
        raise DataError("the text holds nothing to translate")
    tokens = torch.tensor([model.special_tokens(pieces.tolist())])
    found = model.eval().translate(tokens, torch.tensor([tokens.shape[1]]), most=length)
    return tokenizer.decode(found[0].tolist())


def related(model: StaticVectors, tokenizer: Tokenizer, expression: str, *, count: int = 10) -> list[tuple[str, float]]:
    """The words nearest to a word, or to a sum: "king - man + woman". Vectors count with length 1 (3CosAdd).

    Raises:
        DataError: words without a sign between them, a sign without a word, a word that has no vector.
    """
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
    """The ids of a text of which everything is known.

    Raises:
        DataError: names what is not: words, or characters outside the alphabet.
    """
    ids, spans = tokenizer.encode_with_offsets(text)
    unknown = dict.fromkeys(text[start:end] for id_, (start, end) in zip(ids, spans, strict=True) if id_ == UNK)
    if unknown:
        named = ", ".join(map(repr, list(unknown)[:5]))
        what = "the alphabet does not hold" if tokenizer.kind == "char" else "the vocabulary does not know"
        close = nearest(next(iter(unknown)), tokenizer.pieces[FIRST_ORDINARY:]) if len(unknown) == 1 else ""
        raise DataError(f"{what} {named}{close if close.startswith('; did') else ''}")
    return [int(id_) for id_ in ids]
