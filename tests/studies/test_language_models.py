"""Language models on held-out text: losses against one pass per position, effective context, and n-grams against an
independent implementation."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from components.core.errors import ConfigError, DataError
from components.studies.context import NEVER, context_losses, effective, ends_in, gain
from components.studies.kneser_ney import FALLBACK, log_probs
from components.tokenization.special import END
from components.tokenization.store import TokenStore
from tests.studies.conftest import FILLER, findings, fits

TEXTS = [
    f"the {item} {other} is here and there very old" for item in ("red", "large") for other in ("bank", "river")
] * 40


def test_the_context_ends_where_the_rest_gains_less_than_a_hundredth():
    # Contexts of 10 to 40 pieces, at 16 positions; the last gain is 0.1 nats, or 0.001.
    far = np.array([[4.0] * 16, [3.0] * 16, [2.9] * 16, [2.5] * 16])
    near = np.array([[4.0] * 16, [3.0] * 16, [2.9] * 16, [2.899] * 16])
    assert effective(far, 10) == 40 and effective(near, 10) == 30
    assert 1 - math.exp(-0.001) < 0.01 < 1 - math.exp(-0.4)


def test_noise_is_no_gain_of_context():
    """A model without any effect of context, whose losses have a noise of 0.3 nats: the minimum over contexts of the
    original measure takes that for a gain at every context."""
    rng = np.random.default_rng(0)
    noise = 3 + 0.3 * rng.normal(size=(16, 256))
    assert effective(noise, 16) <= 32
    assert gain(noise[0], noise[-1]).low < 0 < gain(noise[0], noise[-1]).high


def test_a_gain_and_its_interval():
    before = np.repeat(np.arange(8.0), 4)
    actual = gain(before, np.zeros(32))
    # Of 8 segments of one size the jackknife is the standard error of their means, 2.45 / sqrt(8), with 7 degrees.
    assert actual.mean == 3.5 and actual.mean - actual.low == pytest.approx(2.365 * 2.449 / math.sqrt(8), rel=1e-3)


@pytest.mark.parametrize("name", ["ulmfit", "transformer-xl", "gpt"])
def test_losses_equal_those_of_one_pass_per_position(outputs, add_encoder, add_tokens, name):
    add_encoder(name)
    add_tokens("domain-word", TEXTS)
    model = outputs.encoder(name, "adapted").model
    store = TokenStore(outputs.out / "tokens" / "domain-word", "heldout")
    ends = np.array([40, 44, 48, 101])
    actual = context_losses(model, store, ends, longest=12, step=4, window=64)
    assert actual.shape == (3, 4)
    for index, context in enumerate((4, 8, 12)):
        # gpt has 8 positions.
        used = min(context, model.max_tokens or context)
        for column, end in enumerate(ends):
            window = torch.from_numpy(store.span(int(end) - used, used + 1))[None]
            with torch.no_grad():
                logits, _ = model.predict(window[:, :-1])
            expected = -logits[0, -1].log_softmax(-1)[window[0, -1]]
            assert actual[index, column] == pytest.approx(float(expected), abs=1e-4)
    # A model without a state is not used beyond the window of its training.
    short = context_losses(model, store, ends, longest=12, step=4, window=4)
    assert np.array_equal(short[0], short[2]) == (model.max_tokens is not None)


def test_the_study_compares_models_with_the_same_vocabulary(outputs, run_with, add_tokens):
    add_tokens("domain-word", TEXTS)
    run_with("ulmfit", "transformer-xl", "gpt", "bert")
    actual = findings(outputs, "effective-context", longest=16, step=4, positions=32, costs="16")
    fits(actual, "effective-context")
    models = ["ulmfit-adapted", "transformer-xl-adapted", "gpt-adapted"]
    contexts, gains, costs = actual.numbers.values()
    assert [row["encoder"] for row in contexts] == models
    pairs = {(row["encoder"], row["against"]): row["difference of the gain"]["mean"] for row in gains}
    assert len(pairs) == 6
    gained = {row["encoder"]: row["gain"]["mean"] for row in contexts}
    for (name, other), difference in pairs.items():
        assert difference == pytest.approx(gained[name] - gained[other])
    assert [row["ratio"] is None for row in costs] == [False, False, True]
    assert costs[0]["ratio"]["low"] < costs[0]["ratio"]["mean"] and len(actual.chapter.figures) == 3


def test_messages_about_unsuitable_options(outputs, run_with, add_tokens):
    run_with("bert", "gpt")
    add_tokens("domain-word", TEXTS)
    for options, error, message in (
        ({"encoder": "bert"}, ConfigError, "bert: not a causal language model; this study needs a causal family"),
        ({"longest": 16, "step": 10}, ConfigError, "--longest 16: must be at least two steps of 10"),
        ({"longest": 18, "step": 9, "positions": 16}, ConfigError, "--step 9 exceeds the model's 8 positions"),
        (
            {"longest": 1600, "step": 8, "positions": 64},
            DataError,
            r"1[0-9]{3} held-out pieces, needs \d+; lower --longest or --positions",
        ),
    ):
        with pytest.raises(error, match=message):
            findings(outputs, "effective-context", **{"encoder": "gpt"} | options)


def test_beside_ngrams(outputs, run_with, add_tokens):
    run_with("ulmfit")
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
    ends = ends_in(heldout, longest=8, step=1, positions=64)
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


def test_a_cut_document_is_no_context_of_the_next_text():
    held, learned = stream([[C, D], [A, B]]), stream([[A, B, C, D], [A, B]])[:-1]
    actual = log_probs(held, learned=learned, order=3, vocabulary=6)
    swapped = log_probs(stream([[A, B], [C, D]]), learned=learned, order=3, vocabulary=6)
    np.testing.assert_allclose(actual, np.roll(swapped, 3), rtol=1e-12)


def test_documents_shorter_than_the_longest_ngrams():
    learned, held = stream([[A], [B]]), stream([[A, B, C, D, A, B]])
    actual = log_probs(held, learned=learned, order=5, vocabulary=6)
    # No document has n-grams of four pieces.
    assert (actual < 0).all() and actual.tolist() == log_probs(held, learned=learned, order=3, vocabulary=6).tolist()
    with pytest.raises(DataError, match="there are no tokens to count"):
        log_probs(held, learned=stream([]), order=2, vocabulary=6)
