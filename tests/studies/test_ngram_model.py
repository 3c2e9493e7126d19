"""Counts and smoothing of n-grams: values computed by hand, an independent implementation, bounded memory."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from components.errors import ArtifactError, DataError
from components.studies import ngram_counts as counts
from components.studies import ngram_model as model
from components.studies.ngram_model import FALLBACK, NgramModel, estimate, load
from components.tokenization.special import END
from tests.training.helpers import MemoryStore

A, B, C, D = 5, 6, 7, 8
PLENTY = 10_000_000


def store_of(documents: Sequence[Sequence[int]]) -> MemoryStore:
    return MemoryStore([[document] for document in documents])


def probabilities(found: NgramModel, *document: int) -> list[float]:
    """Of the pieces of a document, its END included."""
    return np.exp(found.log_probs(store_of([document]))).tolist()  # type: ignore[no-any-return]


def test_probabilities_computed_by_hand(tmp_path: Path) -> None:
    documents = [[A, B]] * 4 + [[A, C]] * 3 + [[D, B]] * 2 + [[D, C]]
    found = estimate(store_of(documents), tmp_path, order=2, vocabulary=6, memory=PLENTY)
    # Bigrams, with ^ and $ for the ends of a document: ^A 7, ^D 3, AB 4, AC 3, DB 2, DC 1, B$ 6, C$ 4; so n1 to n4 are
    # 1, 1, 2, 2, Y = 1/3, D1 = 1 - 2/3, D2 = 2 - 3 * 1/3 * 2/1, D3 = 3 - 4 * 1/3 * 2/2.
    assert found.facts["discounts"][1] == pytest.approx([1 / 3, 0, 5 / 3])
    # Different pieces before A: 1 (^), D: 1, B: 2, C: 2, $: 2; n3 is 0, so the discounts are the fallback.
    assert found.facts["discounts"][0] == list(FALLBACK) and found.facts["ngrams"] == [5, 8]
    # sum a = 8; gamma = (2 * 1/2 + 3 * 1) / 8 = 1/2; V = 6: A, B, C, D, $ and a piece that does not occur.
    p_a = Fraction(1, 2) / 8 + Fraction(1, 2) / 6
    p_b = Fraction(2 - 1, 8) + Fraction(1, 2) / 6
    p_new = Fraction(1, 2) / 6
    # After A: sum 7, N3+ = 2 (AB, AC). After ^: sum 10, N3+ = 2. After B: sum 6, N3+ = 1.
    p_b_after_a = (4 - Fraction(5, 3)) / 7 + Fraction(10, 3) / 7 * p_b
    p_a_first = (7 - Fraction(5, 3)) / 10 + Fraction(10, 3) / 10 * p_a
    p_end_after_b = (6 - Fraction(5, 3)) / 6 + Fraction(5, 3) / 6 * p_b
    expected = [p_a_first, p_b_after_a, p_end_after_b]
    assert probabilities(found, A, B) == pytest.approx([float(value) for value in expected])
    # An unseen bigram, an unseen piece, and a piece after an unseen context.
    first, *rest = probabilities(found, B, 9, C)
    assert first == pytest.approx(float(Fraction(10, 3) / 10 * p_b))
    assert rest == pytest.approx(
        [float(Fraction(5, 3) / 6 * p_new), float(p_b), float((4 - Fraction(5, 3)) / 4 + Fraction(5, 3) / 4 * p_b)]
    )


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
        found = FALLBACK
        if all(n[1:]):
            y = n[1] / (n[1] + 2 * n[2])
            estimated = tuple(size - (size + 1) * y * n[size + 1] / n[size] for size in (1, 2, 3))
            found = estimated if all(0 <= value <= size for size, value in enumerate(estimated, 1)) else FALLBACK
        discounts.append((0, *found))

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

    return p, discounts


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("memory", [PLENTY, 3_000])
def test_equal_to_an_independent_implementation(
    tmp_path: Path, order: int, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    # Skewed, so that the numbers n1 to n4 of short n-grams are not 0.
    documents = [(4 + rng.geometric(0.25, rng.integers(1, 12))).clip(max=24).tolist() for _ in range(60)]
    held = [(4 + rng.geometric(0.2, rng.integers(1, 9))).clip(max=26).tolist() for _ in range(20)]
    found = estimate(store_of(documents), tmp_path, order=order, vocabulary=30, memory=memory)
    monkeypatch.setattr(model, "CHUNK", 13)
    logs = found.log_probs(store_of(held))
    p, discounts = reference(documents, order, 30)
    for length in range(1, order + 1):
        assert found.facts["discounts"][length - 1] == pytest.approx(discounts[length][1:]), length
    expected = []
    for document in held:
        text = ("^", *document, "$")
        expected += [math.log(p(text[at], text[max(0, at - order + 1) : at])) for at in range(1, len(text))]
    np.testing.assert_allclose(logs, expected, rtol=1e-9)


def test_the_probabilities_after_every_context_add_up_to_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    pieces = [END, *range(5, 12)]
    documents = [rng.choice(pieces[1:], rng.integers(1, 6)).tolist() for _ in range(30)]
    found = estimate(store_of(documents), tmp_path, order=3, vocabulary=len(pieces), memory=PLENTY)
    for context in itertools.islice(itertools.product(pieces[1:], repeat=2), 20):
        # END ends the document, so its probability is the one after the last piece.
        texts = [[*context, piece] for piece in pieces[1:]]
        total = sum(probabilities(found, *text)[2] for text in texts) + probabilities(found, *context)[2]
        assert total == pytest.approx(1, abs=1e-12)


def test_memory_does_not_change_the_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    store = store_of([rng.integers(5, 15, rng.integers(1, 30)).tolist() for _ in range(80)])
    contents = []
    for memory in (PLENTY, 20_000, 2_000):
        folder = tmp_path / str(memory)
        folder.mkdir()
        estimate(store, folder, order=4, vocabulary=20, memory=memory)
        contents.append({path.name: path.read_bytes() for path in sorted(folder.iterdir())})
    assert contents[0] == contents[1] == contents[2]
    assert all(len(part) for part in contents)


def test_counting_reads_the_stream_in_chunks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    store = store_of([[A, B, C]] * 50)
    longest = 0
    span = store.span

    def watched(start: int, length: int):
        nonlocal longest
        longest = max(longest, length)
        return span(start, length)

    monkeypatch.setattr(store, "span", watched)
    estimate(store, tmp_path, order=3, vocabulary=6, memory=20 * counts.CHUNK_BYTES)
    assert longest <= 23


def test_documents_shorter_than_the_longest_ngrams(tmp_path: Path) -> None:
    found = estimate(store_of([[A], [B]]), tmp_path, order=5, vocabulary=6, memory=PLENTY)
    assert found.facts["ngrams"] == [3, 4, 2, 0, 0]
    assert all(0 < value < 1 for value in probabilities(found, A, B, C, D, A, B))


def test_bad_input_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there are no tokens to count"):
        estimate(store_of([]), tmp_path, order=2, vocabulary=6, memory=PLENTY)
    with pytest.raises(ArtifactError, match="no n-gram model, or a damaged one"):
        load(tmp_path)
    estimate(store_of([[A]]), tmp_path, order=1, vocabulary=6, memory=PLENTY)
    (tmp_path / "ngrams-1-key.npy").write_bytes(b"x")
    with pytest.raises(ArtifactError, match="damaged"):
        load(tmp_path)
