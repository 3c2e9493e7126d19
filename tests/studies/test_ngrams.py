"""N-grams against an independent implementation, and beside a language model on the same held-out pieces."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pytest

from components.core.errors import DataError
from components.studies.context import NEVER, _ends, context_losses
from components.studies.ngrams import FALLBACK, log_probs
from components.tokenization.special import END
from components.tokenization.store import TokenStore
from tests.studies.conftest import FILLER, findings, fits


def test_the_numbers(outputs, add_encoder, add_tokens):
    add_encoder("ulmfit")
    add_encoder("bert")
    outputs.params.run.__dict__["families"] = ["ulmfit"]
    rng = np.random.default_rng(0)
    train, heldout = ([" ".join(rng.choice(FILLER, 6)) for _ in range(count)] for count in (300, 80))
    add_tokens("domain-word", heldout, train)
    (outputs.out / "metrics" / "adapt").mkdir(parents=True)
    (outputs.out / "metrics" / "adapt" / "ulmfit.json").write_text(json.dumps({"tokens": 150}))
    actual = findings(outputs, "ngrams", order=3, positions=64, longest=8)
    fits(actual, "ngrams")
    ((row,),) = actual.numbers.values()
    train, heldout = (TokenStore(outputs.out / "tokens" / "domain-word", split) for split in ("train", "heldout"))
    assert (row["encoder"], row["read"]) == ("ulmfit-adapted", 150), "n-grams count as much text as the model has read"
    ends = _ends(heldout, longest=8, step=1, positions=64)
    learned, vocabulary = train.span(0, 150), heldout.vocab_size - len(NEVER)
    nats = -log_probs(heldout.span(0, heldout.tokens), learned=learned, order=3, vocabulary=vocabulary)[ends]
    assert row["of n-grams"] == pytest.approx(np.exp(nats.mean() * heldout.tokens / heldout.words))
    encoder = outputs.encoder("ulmfit", "adapted").model.eval()
    losses = context_losses(encoder, heldout, ends, longest=8, step=1, window=64)
    # The same pieces: the difference is paired by piece.
    assert row["minus n-grams, nats per piece"]["mean"] == pytest.approx((losses[-1] - nats).mean())
    assert "n-grams of domain-word" in actual.chapter.figures[0].svg


A, B, C, D = 5, 6, 7, 8


def stream(documents: Sequence[Sequence[int]]) -> np.ndarray:
    return np.asarray([piece for document in documents for piece in (*document, END)], dtype=np.int64)


def reference(documents: Sequence[Sequence[int]], order: int, vocabulary: int):
    """p(piece | context) by dictionaries of tuples, from the definition."""
    texts = [("^", *document, "$") for document in documents]
    seen = [Counter() for _ in range(order + 1)]
    for text in texts:
        for length in range(1, order + 1):
            for start in range(1 if length == 1 else 0, len(text) - length + 1):
                seen[length][text[start : start + length]] += 1
    values: list[dict] = [{} for _ in range(order + 1)]
    for length in range(1, order + 1):
        before = defaultdict(set)
        if length < order:
            for ngram in seen[length + 1]:
                before[ngram[1:]].add(ngram[0])
        for ngram, number in seen[length].items():
            whole = length == order or (length > 1 and ngram[0] == "^")
            values[length][ngram] = number if whole else len(before[ngram])
    discounts: list[tuple[float, ...]] = [()]
    for length in range(1, order + 1):
        n = [sum(value == size for value in values[length].values()) for size in range(5)]
        chosen = FALLBACK
        if all(n[1:]):
            y = n[1] / (n[1] + 2 * n[2])
            estimated = tuple(size - (size + 1) * y * n[size + 1] / n[size] for size in (1, 2, 3))
            chosen = estimated if all(0 <= value <= size for size, value in enumerate(estimated, 1)) else FALLBACK
        discounts.append((0, *chosen))

    def p(piece, context: tuple) -> float:
        length = len(context) + 1
        below = p(piece, context[1:]) if context else 1 / vocabulary
        following = {g: value for g, value in values[length].items() if g[:-1] == context}
        total = sum(following.values())
        if not total:
            return below
        value = following.get((*context, piece), 0)
        freed = sum(discounts[length][min(other, 3)] for other in following.values())
        return max(value - discounts[length][min(value, 3)], 0) / total + freed / total * below

    return p


@pytest.mark.parametrize("order", [1, 2, 4])
def test_equal_to_an_independent_implementation(order):
    rng = np.random.default_rng(3)
    # Skewed, so that the numbers n1 to n4 of short n-grams are not 0.
    documents = [(4 + rng.geometric(0.25, rng.integers(1, 12))).clip(max=24).tolist() for _ in range(60)]
    held = [(4 + rng.geometric(0.2, rng.integers(1, 9))).clip(max=26).tolist() for _ in range(20)]
    p = reference(documents, order, 30)
    expected = []
    for document in held:
        text = ("^", *document, "$")
        expected += [math.log(p(text[at], text[max(0, at - order + 1) : at])) for at in range(1, len(text))]
    actual = log_probs(stream(held), learned=stream(documents), order=order, vocabulary=30)
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_documents_shorter_than_the_longest_ngrams():
    learned, held = stream([[A], [B]]), stream([[A, B, C, D, A, B]])
    actual = log_probs(held, learned=learned, order=5, vocabulary=6)
    # No document has n-grams of four pieces.
    assert (actual < 0).all() and actual.tolist() == log_probs(held, learned=learned, order=3, vocabulary=6).tolist()
    with pytest.raises(DataError, match="there are no tokens to count"):
        log_probs(held, learned=stream([]), order=2, vocabulary=6)
